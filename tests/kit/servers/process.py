"""A server of the tests: a folder, a port, and one process at a time, which may be ended in any way and started again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from tests.kit.servers.ports import free_port
from tests.kit.waiting import until

ROOT = Path(__file__).parents[3]


class Server(ABC):
    """Ended by its own process id; what it prints is in `log`, in its folder."""

    patience = 60.0
    """Seconds for a start, or an end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def _environment(self) -> Mapping[str, str] | None:
        """None: that of the tests."""
        return None

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            process = self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=self._environment(),
                start_new_session=True,
            )
        until(
            lambda: self._answers() or process.poll() is not None,
            f"a start of {self!r}",
            within=self.patience,
            pause=0.02,
        )
        if process.poll() is not None:
            raise RuntimeError(f"{self!r} did not start:\n{(self._folder / 'log').read_text()[-2000:]}")

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(self.patience)
            self._process = None

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def restart(self) -> None:
        await asyncio.to_thread(self._again, signal.SIGTERM)

    async def kill(self) -> None:
        await asyncio.to_thread(self._again, signal.SIGKILL)

    def _again(self, how: signal.Signals) -> None:
        self.end(how)
        self.start()


S = TypeVar("S", bound=Server)


@contextlib.contextmanager
def started(server: S) -> Iterator[S]:
    """From its start to its end. Its folder is thrown away afterwards: there is nothing to wait for."""
    try:
        server.start()
        yield server
    finally:
        server.end(signal.SIGKILL)


@contextlib.contextmanager
def folder_of(name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"posthouse-{name}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def serves(url: str) -> bool:
    with contextlib.suppress(OSError), urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False
