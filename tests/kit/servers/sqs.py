"""SNS and SQS for the tests: moto's server on the loopback, in a process of its own, ended by its process id.

POSTHOUSE_TEST_SQS_URL names something else, such as `sqs://eu-central-1` with credentials in the environment.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.kit.servers.process import Server, folder_of, serves, started
from tests.kit.servers.table import give_up, report


class SqsServer(Server):
    """It keeps everything in its memory: a new process knows nothing."""

    def __init__(self, folder: Path, *, remembered: float = 300.0) -> None:
        super().__init__(folder)
        self._remembered = remembered

    @property
    def url(self) -> str:
        return url_at(self.port)

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.kit.servers.sqs_rules", str(self.port), str(self._remembered)]

    def _answers(self) -> bool:
        return serves(f"http://127.0.0.1:{self.port}/moto-api/")


def url_at(port: int) -> str:
    return f"sqs://test:test@eu-central-1?endpoint=http://127.0.0.1:{port}"


@contextlib.contextmanager
def running(*, remembered: float = 300.0) -> Iterator[SqsServer]:
    """A new server with nothing in it; `remembered`: seconds for which a queue drops a repeated id."""
    if importlib.util.find_spec("moto") is None:
        give_up("sqs", "no moto: pip install 'moto[server,sns,sqs]'")
    with folder_of("sqs") as folder, started(SqsServer(folder, remembered=remembered)) as server:
        yield server


@pytest.fixture(scope="session")
def sqs_server() -> Iterator[SqsServer]:
    """One emulated server for the whole run."""
    with running(remembered=4.0) as server:
        report("sqs", "emulated", f"moto {version('moto')}, with AWS's rules for FIFO queues put right")
        yield server


@pytest.fixture(scope="session")
def sqs_url(request: pytest.FixtureRequest) -> str:
    """What the contract runs on."""
    given = os.environ.get("POSTHOUSE_TEST_SQS_URL")
    if given:
        report("sqs", "real", given.partition("?")[0].rpartition("@")[2])
        return given
    server: SqsServer = request.getfixturevalue("sqs_server")
    return server.url
