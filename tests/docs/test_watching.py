"""The page on watching: its commands are run, and what it shows is what is answered."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.watch.http import LARGEST_HEAD, PLACES, SEND_WITHIN
from posthouse.watch.pages import PATHS, SILENT
from tests.kit.servers.ports import free_port
from tests.kit.shell import Shell
from tests.kit.waiting import until

PAGE = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()
HERE = "127.0.0.1:9464"


@pytest.fixture
def bakery(tmp_path: Path) -> Iterator[Shell]:
    Shell(tmp_path).posthouse("new", "bakery")
    with Shell(tmp_path / "bakery") as made:
        yield made


def commands(word: str) -> list[str]:
    return [line for line in PAGE.splitlines() if line.startswith(f"{word} ")]


def test_the_commands_of_the_page_show_what_it_says(bakery: Shell) -> None:
    served = [shlex.split(line)[1:] for line in commands("posthouse")]
    assert [verb for verb, *_ in served] == ["run", "watch"]
    for verb, *arguments in served:
        place = f"127.0.0.1:{free_port()}"
        process = bakery.start(*(place if word == HERE else word for word in arguments), verb=verb)
        until(lambda place=place: fetched(f"curl -sf http://{place}/readyz", place), "readiness", pause=0.1)  # type: ignore[misc]
        metrics, ready, scale = (fetched(line, place) for line in commands("curl"))
        assert 'posthouse_consumer_unaccounted{consumer="bakery"' in metrics
        assert 'posthouse_outbox_oldest_unsent_seconds{service="bakery"}' in metrics
        assert ready.startswith("ready\n")
        ((name, work),) = json.loads(scale)["consumers"].items()
        (shown,) = (json.loads(line) for line in PAGE.splitlines() if line.startswith('{"service"'))
        assert (name, list(work)) == ("bakery", list(shown))
        process.terminate()
        assert process.wait(30) == 0


def fetched(line: str, place: str) -> str:
    assert line.startswith("curl -s")
    return subprocess.run(
        line.replace(HERE, place), shell=True, capture_output=True, text=True, timeout=30, check=False
    ).stdout


def test_the_page_has_every_path_and_the_bounds_of_the_server() -> None:
    assert re.findall(r"^\| `(/\w+)` \|", PAGE, re.MULTILINE) == list(PATHS)
    assert f"503 with words when it has not for {SILENT:g} s" in PAGE
    assert f"there are {PLACES} places" in PAGE
    assert f"a request has {SEND_WITHIN:g} s and {LARGEST_HEAD // 1024} kB" in PAGE.replace("\n", " ")
