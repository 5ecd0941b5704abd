"""A Redis server for the tests: the system's, or Debian's package unpacked into a temporary folder without installing
it; on the loopback, ended by its own process id. POSTHOUSE_TEST_REDIS_BIN names another binary."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.kit.servers.debian import environment, unpacked
from tests.kit.servers.process import Server, folder_of, started
from tests.kit.servers.table import report

GUEST = "guest on >guest +@all %R~* %RW~guest* %RW~posthouse:*"
DURABLE = {"appendonly": "yes", "appendfsync": "always"}


class RedisServer(Server):
    """With settings of the test's."""

    def __init__(self, program: Path, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._program = program
        self._settings = settings

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def url_of_guest(self) -> str:
        """A user who may read whatever there is, and write nothing but keys that begin with `guest`."""
        return f"redis://guest:guest@127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        file = self._folder / "redis.conf"
        file.write_text(
            f'port {self.port}\nbind 127.0.0.1\ndir "{self._folder}"\nsave ""\nuser {GUEST}\n'
            + "".join(f"{name} {value}\n" for name, value in self._settings.items())
        )
        return [str(self._program), str(file)]

    def _environment(self) -> Mapping[str, str]:
        return _environment(self._program)

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
    with folder_of("redis") as folder, started(RedisServer(binary, folder, {**DURABLE, **settings})) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One durable server for the whole run; tests may restart it."""
    with running() as server:
        report("redis", "real", f"{version()}, {program()}")
        yield server
