"""SNS and SQS for the tests: moto's server on the loopback, in a process of its own, ended by its process id.

POSTHOUSE_TEST_SQS_URL names something else, such as `sqs://eu-central-1` with credentials in the environment.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.kit.servers.ports import free_port
from tests.kit.servers.table import give_up, report

PATIENCE = 60.0
ROOT = Path(__file__).parents[3]


class SqsServer:
    """A port, and one process at a time. It keeps everything in its memory: a new process knows nothing."""

    def __init__(self, log: Path, *, remembered: float = 300.0) -> None:
        self._log = log
        self._remembered = remembered
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return url_at(self.port)

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.servers.sqs_rules", str(self.port), str(self._remembered)],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"moto did not start:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.02)

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{self.port}/moto-api/", timeout=5) as answer:
            return bool(answer.status == 200)
        return False


def url_at(port: int) -> str:
    return f"sqs://test:test@eu-central-1?endpoint=http://127.0.0.1:{port}"


@contextlib.contextmanager
def running(*, remembered: float = 300.0) -> Iterator[SqsServer]:
    """A new server with nothing in it; `remembered`: seconds for which a queue drops a repeated id."""
    if importlib.util.find_spec("moto") is None:
        give_up("sqs", "no moto: pip install 'moto[server,sns,sqs]'")
    with tempfile.TemporaryDirectory(prefix="posthouse-sqs-", ignore_cleanup_errors=True) as folder:
        server = SqsServer(Path(folder) / "log", remembered=remembered)
        try:
            server.start()
            yield server
        finally:
            server.end(signal.SIGTERM)


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
