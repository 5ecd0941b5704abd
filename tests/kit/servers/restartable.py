"""A PostgreSQL that a test may crash and start again: a data folder, a port, and one process at a time."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

from tests.kit.servers.memory import in_memory
from tests.kit.servers.ports import free_port
from tests.kit.servers.postgres import PATIENCE, SETTINGS, Unavailable, binaries, give_up, unprivileged


class RestartablePostgres:
    """`crash` is what `pg_ctl stop -m immediate` does: no checkpoint, sessions cut off, recovery at the next start."""

    def __init__(
        self, folder: Path, place: Path, settings: Mapping[str, str] = SETTINGS, port: int | None = None
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._place = place
        self._user = unprivileged()
        self._server: subprocess.Popen[bytes] | None = None
        self._port = port or free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def make(self) -> None:
        if self._user is not None:
            os.chown(self._place, self._user, -1)
        command = [str(self._folder / "initdb"), "-D", str(self._place / "data"), "-U", "postgres", "--auth=trust"]
        for left in reversed(range(3)):
            made = subprocess.run([*command, "--no-sync"], user=self._user, cwd="/", capture_output=True, check=False)
            if made.returncode >= 0 or not left:
                made.check_returncode()
                return
            shutil.rmtree(self._place / "data", ignore_errors=True)  # a signal ended it, as on a crowded machine

    def start(self) -> None:
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        self._server = subprocess.Popen(
            [str(self._folder / "postgres"), "-D", str(self._place / "data"), "-p", str(self._port), *settings],
            user=self._user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.02)

    def crash(self) -> None:
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def back_up(self) -> None:
        """Copy the data folder as it is. Stops and starts the server."""
        self.stop()
        shutil.copytree(self._place / "data", self._place / "backup")
        self.start()

    def bring_back(self) -> None:
        """Crash, and go on with the backup, as it was."""
        self.crash()
        self._put_back()
        self.start()

    def fail_over(self) -> None:
        """Crash, and let the backup take over as a standby does that missed all since: on a new timeline."""
        self.crash()
        (self._place / "backup" / "standby.signal").touch()
        self._put_back()
        self.start()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def _put_back(self) -> None:
        shutil.rmtree(self._place / "data")
        (self._place / "backup").rename(self._place / "data")
        for folder, names, files in os.walk(self._place / "data"):
            for path in (folder, *(os.path.join(folder, name) for name in (*names, *files))):
                if self._user is not None:
                    os.chown(path, self._user, -1)

    def _end(self, how: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(how)
            self._server.wait(PATIENCE)
            self._server = None


@contextlib.contextmanager
def restartable(folder: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[RestartablePostgres]:
    place = Path(tempfile.mkdtemp(prefix="posthouse-postgres-", dir=in_memory()))
    server = RestartablePostgres(folder, place, settings)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def restartable_postgres() -> Iterator[RestartablePostgres]:
    """A server that this test has to itself."""
    try:
        folder = binaries()
        if not (folder / "initdb").exists():
            raise Unavailable(f"{folder} has no initdb")
    except Unavailable as error:
        give_up(f"no PostgreSQL that may be crashed: {error}")
    with restartable(folder) as server:
        yield server
