"""What the crash tests share: processes that start quickly, worlds to break, and the sum of all reports."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kit import tally
from tests.faults.kit.ground import Databases, Files, Ground
from tests.faults.kit.nursery import Nursery
from tests.faults.kit.world import Worlds
from tests.kit.servers.memory import in_memory
from tests.kit.servers.postgres import PostgresServer, Unavailable, binaries, give_up, running

CRASH_TESTS = "test_crash_*.py"


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("results")) as nursery:
        yield nursery


@pytest.fixture(scope="session")
def postgres_in_memory() -> Iterator[PostgresServer]:
    """A server that has no disk to wait for, where there is room: processes are killed here, the server never is."""
    try:
        place = in_memory()
        with running(binaries(), within=place) as url:
            yield PostgresServer(url, in_memory=place is not None and "POSTHOUSE_TEST_POSTGRES_BIN" not in os.environ)
    except Unavailable as error:
        give_up(f"no PostgreSQL for the crash tests: {error}")


@pytest.fixture(params=["sqlite", "postgres"])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Where the stores are."""
    if request.param == "sqlite":
        yield Files()
        return
    with Databases(request.getfixturevalue("postgres_in_memory")) as databases:
        yield databases


@pytest.fixture
def worlds(nursery: Nursery, ground: Ground) -> Iterator[Worlds]:
    """Worlds in memory where the system has room for them there: a process that is killed loses nothing of what it
    wrote either way, and hundreds of runs do not wait for the disk."""
    with tempfile.TemporaryDirectory(prefix="posthouse-", dir=in_memory()) as folder:
        yield Worlds(Path(folder), nursery, ground)


@pytest.fixture
def worlds_on_disk(tmp_path: Path, nursery: Nursery, ground: Ground) -> Worlds:
    return Worlds(tmp_path, nursery, ground)


# The totals are asked for only when every crash test was run.

_complete = pytest.StashKey[bool]()


def pytest_collection_finish(session: pytest.Session) -> None:
    here = Path(__file__).parent
    collected = {item.path for item in session.items}
    chosen = (
        any("::" in argument for argument in session.config.args) or session.config.stash.get(_complete, True) is False
    )
    session.config.stash[_complete] = not chosen and set(here.glob(CRASH_TESTS)) <= collected


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.match(CRASH_TESTS):
            item.config.stash[_complete] = False


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and session.config.stash.get(_complete, False) and tally.missed():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not tally.by_fault:
        return
    terminalreporter.section("crash faults")
    for fault, report in tally.by_fault.items():
        terminalreporter.write_line(f"{fault}: {report}")
    if tally.server_crashes:
        kinds = ", ".join(f"{kind} {count}" for kind, count in tally.server_crashes.items())
        terminalreporter.write_line(
            f"servers taken down: {kinds}; transaction ids given out twice: {tally.given_twice:,}"
        )
    terminalreporter.write_line(f"in sum: {tally.total}")
    if config.stash.get(_complete, False):
        for short in tally.missed():
            terminalreporter.write_line(f"FAILED: only {short}", red=True)
