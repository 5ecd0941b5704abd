"""The nursery: a small process that has imported everything, and forks a child for each job in a few milliseconds.

It opens no database, runs no loop and starts no thread. Signals to children go through it: it knows which of them are
alive, so that a number which the system gave to somebody else is never hit.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tests.faults.kit.jobs import InboundEvent, Produce, Result
from tests.faults.kit.joined import ProduceJoined
from tests.faults.saga_scene import Stay

AnyJob = Produce | ProduceJoined | InboundEvent | Stay

PATIENCE = 150.0
"""Seconds that a process may take to do what it was told."""


class Start(msgspec.Struct, tag=True):
    """Ask for a child."""

    job: AnyJob


class Send(msgspec.Struct, tag=True):
    """Ask for a signal to a child."""

    pid: int
    signal: int


class News(msgspec.Struct):
    """What became of a child: started, stopped, continued, or ended with a code, which is minus the signal's number
    when a signal ended it."""

    pid: int
    what: str
    code: int = 0


class Nursery:
    """The client's side. Use it as a context: at its end every child ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._heard = b""
        self._stopped: set[int] = set()
        self._codes: dict[int, int] = {}
        self._started: list[int] = []
        self._count = 0
        self._temporary = tempfile.TemporaryDirectory(prefix="ph-")  # for what the killed leave behind; a short path
        self._server = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.faults.kit.forking"],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "TMPDIR": self._temporary.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(PATIENCE)
        self._server.stdout.close()
        self._temporary.cleanup()

    def start(self, job: AnyJob) -> Child:
        """Run the job in a child."""
        self._count += 1
        job.result = str(self._folder / f"result-{self._count}.json")
        self._say(Start(job))
        deadline = time.monotonic() + PATIENCE
        while not self._started:
            self._listen(deadline, "a child to start")
        return Child(self, self._started.pop(), job)

    def send(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a child, if it is alive."""
        self._say(Send(pid, number))

    def code(self, pid: int, patience: float) -> int:
        """Wait for the end of a child."""
        deadline = time.monotonic() + patience
        while pid not in self._codes:
            self._listen(deadline, f"the end of process {pid}")
        return self._codes[pid]

    def ended(self, pid: int) -> bool:
        """Whether the end of a child was heard of by now."""
        self._hear(0)
        return pid in self._codes

    def await_stop(self, pid: int) -> None:
        """Wait until a child has stopped itself."""
        deadline = time.monotonic() + PATIENCE
        while pid not in self._stopped:
            assert pid not in self._codes, f"process {pid} ended with {self._codes[pid]} instead of stopping"
            self._listen(deadline, f"process {pid} to stop")

    def _say(self, request: Start | Send) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(msgspec.json.encode(request) + b"\n")

    def _listen(self, deadline: float, expected: str) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise AssertionError(f"waited too long for {expected}")
        self._hear(left)

    def _hear(self, seconds: float) -> None:
        assert self._server.stdout is not None
        if not select.select([self._server.stdout], [], [], seconds)[0]:
            return
        chunk = os.read(self._server.stdout.fileno(), 65536)
        if not chunk:
            raise AssertionError("the nursery has died")
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        for line in lines:
            self._learn(msgspec.json.decode(line, type=News))

    def _learn(self, news: News) -> None:
        match news.what:
            case "started":
                self._started.append(news.pid)
                self._codes.pop(news.pid, None)  # the system may use a number again
            case "stopped":
                self._stopped.add(news.pid)
            case "continued":
                self._stopped.discard(news.pid)
            case "ended":
                self._codes[news.pid] = news.code


class Child:
    """One process."""

    def __init__(self, nursery: Nursery, pid: int, job: AnyJob) -> None:
        self.pid = pid
        self.job = job
        self._nursery = nursery
        self._code: int | None = None

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit code, or minus the signal that ended it. After `patience` seconds, fail with what it logged."""
        if self._code is None:
            try:
                self._code = self._nursery.code(self.pid, patience)
            except AssertionError as error:
                raise AssertionError(f"{error}: {self.job}\n{self.trouble()}") from None
        return self._code

    def result(self, patience: float = PATIENCE) -> Result:
        """Wait for its end, which must be a good one."""
        code = self.wait(patience)
        assert code == 0, f"{self.job} ended with {code}\n{self.trouble()}"
        return msgspec.json.decode(Path(self.job.result).read_bytes(), type=Result)

    def trouble(self) -> str:
        """The end of what was logged in its world."""
        log = Path(self.job.folder) / "log.txt"
        return log.read_text()[-6000:] if log.exists() else ""

    @property
    def alive(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self._code is None and not self._nursery.ended(self.pid)

    def kill(self) -> int:
        """End it at once."""
        self._nursery.send(self.pid, signal.SIGKILL)
        return self.wait()

    def terminate(self) -> int:
        """Ask it to end, and wait until it has."""
        self._nursery.send(self.pid, signal.SIGTERM)
        return self.wait()

    def stop(self) -> None:
        """Let it stand still."""
        self._nursery.send(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        self._nursery.send(self.pid, signal.SIGCONT)

    def await_stop(self) -> None:
        """Wait until it has stopped itself."""
        self._nursery.await_stop(self.pid)
