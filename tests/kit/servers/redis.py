"""A Redis server for the tests: the system's, or Debian's package unpacked into a temporary folder without installing
it; on the loopback, ended by its own process id. POSTHOUSE_TEST_REDIS_BIN names another binary."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.kit.servers.debian import environment, unpacked
from tests.kit.servers.ports import free_port
from tests.kit.servers.table import report

PATIENCE = 30.0
GUEST = "guest on >guest +@all %R~* %RW~guest* %RW~posthouse:*"
DURABLE = {"appendonly": "yes", "appendfsync": "always"}


class RedisServer:
    """A data folder, a port, and one process at a time."""

    def __init__(self, program: Path, folder: Path, settings: Mapping[str, str]) -> None:
        self._program = program
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def url_of_guest(self) -> str:
        """A user who may read whatever there is, and write nothing but keys that begin with `guest`."""
        return f"redis://guest:guest@127.0.0.1:{self.port}"

    def start(self) -> None:
        file = self._folder / "redis.conf"
        file.write_text(
            f'port {self.port}\nbind 127.0.0.1\ndir "{self._folder}"\nsave ""\nuser {GUEST}\n'
            + "".join(f"{name} {value}\n" for name, value in self._settings.items())
        )
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._program), str(file)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(self._program),
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"redis-server did not start:\n{(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
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

    def _answers(self) -> bool:
        """It says PONG once it has read its file."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False


@functools.cache
def program() -> Path:
    """The binary, or the tests that need it are skipped."""
    found = os.environ.get("POSTHOUSE_TEST_REDIS_BIN") or shutil.which("redis-server")
    return Path(found) if found else unpacked("redis", "redis-server") / "usr" / "bin" / "redis-server"


def _environment(program: Path) -> dict[str, str]:
    return environment(program.parents[2])


def version() -> str:
    """As the binary says it: `7.0.15`."""
    said = subprocess.run(
        [program(), "--version"], capture_output=True, text=True, check=True, env=_environment(program())
    ).stdout
    return next(word.removeprefix("v=") for word in said.split() if word.startswith("v="))


@contextlib.contextmanager
def running(**settings: str) -> Iterator[RedisServer]:
    """A new server with nothing in it, durable unless the settings say otherwise."""
    binary = program()
    with tempfile.TemporaryDirectory(prefix="posthouse-redis-", ignore_cleanup_errors=True) as folder:
        server = RedisServer(binary, Path(folder), {**DURABLE, **settings})
        try:
            server.start()
            yield server
        finally:
            server.end(signal.SIGKILL)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One durable server for the whole run; tests may restart it."""
    with running() as server:
        report("redis", "real", f"{version()}, {program()}")
        yield server
