"""Servers that go down between two statements, each in a way of its own, and come back as another run of themselves.

Somebody else rolls transactions back all the time: their ids are in every snapshot and need not be in the server's log, so
that the next run gives them out again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol

import psycopg

from tests.kit.servers.memory import in_memory
from tests.kit.servers.pgbouncer import pooling
from tests.kit.servers.ports import free_port
from tests.kit.servers.postgres import PATIENCE, SETTINGS, binaries
from tests.kit.servers.restartable import RestartablePostgres
from tests.kit.servers.standby import Standby

Kind = Literal["immediate", "backend", "promotion", "pooler"]
KINDS: tuple[Kind, ...] = ("immediate", "backend", "promotion", "pooler")

# What was rolled back reaches the disk with the next commit, not by itself.
LAZY = {**SETTINGS, "wal_writer_delay": "10s"}

EACH_TIME = 20
ROLLED_BACK = "BEGIN; SELECT pg_current_xact_id(); ROLLBACK;" * EACH_TIME
NEXT_ID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Ground(Protocol):
    """A server that can be taken down."""

    url: str
    """For the services."""
    pooled: bool

    @property
    def direct(self) -> str:
        """For one connection to the server itself, as it is now."""

    def part(self) -> None:
        """From now on commits may be lost with the server, where its kind of crash loses any."""

    def take_down(self) -> None:
        """End it as nobody should, at once."""

    def bring_back(self) -> None:
        """Wait until it, or whoever takes its place, is up and may be taken down again."""


class Immediate:
    """`pg_ctl stop -m immediate`, and start."""

    pooled = False

    def __init__(self, server: RestartablePostgres, url: str | None = None) -> None:
        self._server = server
        self.url = url or server.url
        self.pooled = url is not None

    @property
    def direct(self) -> str:
        return self._server.url

    def part(self) -> None:
        return

    def take_down(self) -> None:
        self._server.crash()

    def bring_back(self) -> None:
        self._server.start()


class Backend(Immediate):
    """SIGKILL of one backend: the server ends all others and recovers, and its first process stays the same."""

    def take_down(self) -> None:
        with psycopg.connect(self.direct, autocommit=True) as victim, psycopg.connect(self.direct) as witness:
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            deadline = time.monotonic() + PATIENCE
            with contextlib.suppress(psycopg.OperationalError):
                while time.monotonic() < deadline:
                    witness.execute("SELECT 1")
                raise AssertionError("the server does not mind the loss of a backend")

    def bring_back(self) -> None:
        _answered(self.direct)


class Promotion:
    """An asynchronous standby that lacks the last commits takes over, and the server that was lost is made its standby."""

    pooled = False

    def __init__(self, primary: RestartablePostgres, place: Path) -> None:
        self._place = place
        self._primary = primary
        self._ports = (_port(primary.url), free_port())
        self.url = f"postgresql://postgres@127.0.0.1:{self._ports[0]},127.0.0.1:{self._ports[1]}/postgres"
        self._count = 0
        self._standby = self._following(self._ports[1])

    @property
    def direct(self) -> str:
        return self._primary.url

    def part(self) -> None:
        self._standby.follow_again()  # it may be left from a crash that never came
        self._standby.catch_up()
        self._standby.stop_following()

    def take_down(self) -> None:
        self._primary.crash()

    def bring_back(self) -> None:
        self._standby.promote()
        lost, self._primary = self._primary, self._standby
        self._standby = self._following(_port(lost.url))
        shutil.rmtree(self._place / str(self._count - 2), ignore_errors=True)

    def end(self) -> None:
        self._standby.crash()
        self._primary.crash()

    def _following(self, port: int) -> Standby:
        self._count += 1
        place = self._place / str(self._count)
        place.mkdir(mode=0o755)
        standby = Standby(binaries(), place, self._primary, LAZY, port)
        standby.make()
        standby.start()
        return standby


class Rolling:
    """Another client, which takes ids and gives them up, and keeps one transaction open for as long as the server lives;
    and how many ids the server has given out twice."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._open: psycopg.Connection[tuple[object, ...]] | None = None
        self.rolled_back = 0
        self.crashes = 0
        self.given_twice = 0
        self._next = 0

    def roll(self) -> None:
        """Roll transactions back, if the server is there."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._ground.direct, autocommit=True, connect_timeout=5)
                self._open = psycopg.connect(self._ground.direct, connect_timeout=5)
                self._open.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                self._open.execute("SELECT pg_current_xact_id()")
            self._connection.execute(ROLLED_BACK)
            self.rolled_back += EACH_TIME
        except psycopg.Error:  # it is not there, or not yet in its new place
            self.close()

    def take_down(self) -> None:
        """Take the server down while ids are out that it has not written down."""
        with psycopg.connect(self._ground.direct, autocommit=True) as connection:
            connection.execute(ROLLED_BACK)
            self._next = _next_id(connection)
            self._ground.take_down()

    def bring_back(self) -> None:
        """Wait until it is up again, and look at which ids come again."""
        self._ground.bring_back()
        with psycopg.connect(self._ground.direct, autocommit=True) as connection:
            self.given_twice += max(0, self._next - _next_id(connection))
        self.crashes += 1

    def end_sessions(self) -> None:
        """Cut everybody off, so that what is done once for each connection is done again."""
        with (
            contextlib.suppress(psycopg.OperationalError),  # it is going down already
            psycopg.connect(self._ground.direct, autocommit=True) as connection,
        ):
            connection.execute(END_SESSIONS)

    def close(self) -> None:
        for connection in (self._connection, self._open):
            if connection is not None:
                connection.close()
        self._connection = self._open = None


def _next_id(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    found = connection.execute(NEXT_ID).fetchone()
    assert found is not None
    return int(str(found[0]))


def _answered(url: str) -> None:
    """Wait until somebody may connect."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, "the server did not recover"
        time.sleep(0.02)


def _port(url: str) -> int:
    return int(str(psycopg.conninfo.conninfo_to_dict(url)["port"]))


@contextlib.contextmanager
def grounded(kind: Kind) -> Iterator[Ground]:
    """A server of its own, to be taken down in this way."""
    place = Path(tempfile.mkdtemp(prefix="posthouse-crashing-", dir=in_memory()))
    place.chmod(0o755)
    first = place / "0"
    first.mkdir(mode=0o755)
    server = RestartablePostgres(binaries(), first, LAZY)
    try:
        server.make()
        server.start()
        match kind:
            case "immediate":
                yield Immediate(server)
            case "backend":
                yield Backend(server)
            case "pooler":
                with pooling(f"* = host=127.0.0.1 port={_port(server.url)} user=postgres") as port:
                    yield Immediate(server, f"postgresql://postgres@127.0.0.1:{port}/postgres")
            case "promotion":
                pair = Promotion(server, place)
                try:
                    yield pair
                finally:
                    pair.end()
    finally:
        server.crash()
        shutil.rmtree(place, ignore_errors=True)
