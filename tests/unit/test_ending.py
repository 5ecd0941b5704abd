"""A server that costs something while nobody asks it is ended behind its last test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

CONFTEST = """
import pytest

from tests.kit.servers.ending import by_server, end_unused, note_last_uses


def pytest_collection_modifyitems(items):
    by_server(items)


def pytest_collection_finish(session):
    note_last_uses(session.config, session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    yield
    end_unused(item)


@pytest.fixture(scope="session")
def kafka_server():
    print("\\nkafka starts")
    yield "kafka"
    print("\\nkafka ends")


@pytest.fixture(scope="session")
def rabbitmq_server():
    print("\\nrabbitmq starts")
    yield "rabbitmq"
    print("\\nrabbitmq ends")
"""

TESTS = """
import pytest


def test_plain():
    print("\\nplain")


@pytest.mark.parametrize("which", ["rabbitmq", "kafka"])
def test_either(which, request):
    print("\\neither", request.getfixturevalue(f"{which}_server"))


def test_kafka(kafka_server):
    print("\\nonly", kafka_server)


def test_late(request):
    print("\\nlate", request.getfixturevalue("kafka_server"))
"""


def test_costly_servers_come_first_and_end_with_their_last_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    said = [
        line for line in done.stdout.splitlines() if line.startswith(("kafka", "rabbit", "either", "only", "pl", "la"))
    ]
    assert said == [
        *("kafka starts", "either kafka", "only kafka", "kafka ends"),
        *("rabbitmq starts", "either rabbitmq", "rabbitmq ends"),
        *("plain", "kafka starts", "late kafka", "kafka ends"),
    ], "one that is asked for behind everybody's back starts again"
