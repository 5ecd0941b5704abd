"""A standby of a PostgreSQL that may be crashed: a copy made by pg_basebackup, which follows until it is promoted."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
from psycopg import sql

from tests.kit.servers.memory import in_memory
from tests.kit.servers.postgres import PATIENCE, SETTINGS, binaries, give_up
from tests.kit.servers.restartable import RestartablePostgres


class Standby(RestartablePostgres):
    """Follows `primary`, asynchronously."""

    def __init__(
        self,
        folder: Path,
        place: Path,
        primary: RestartablePostgres,
        settings: Mapping[str, str] = SETTINGS,
        port: int | None = None,
    ) -> None:
        super().__init__(folder, place, settings, port)
        self._primary = primary

    def make(self) -> None:
        if self._user is not None:
            os.chown(self._place, self._user, -1)
        tool = [str(self._folder / "pg_basebackup"), "-D", str(self._place / "data"), "-d", self._primary.url]
        subprocess.run(
            [*tool, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"],
            user=self._user, cwd="/", capture_output=True, check=True,
        )  # fmt: skip

    def catch_up(self) -> None:
        """Wait until it has everything that the primary has by now."""
        with psycopg.connect(self._primary.url, autocommit=True) as primary:
            target = primary.execute("SELECT pg_current_wal_lsn()").fetchone()
        self._wait("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", target or ())

    def stop_following(self) -> None:
        """The network between the two is gone, as far as this one is concerned."""
        self._listen_to("")
        self._wait("SELECT count(*) = 0 FROM pg_stat_wal_receiver", ())

    def follow_again(self) -> None:
        """It is back."""
        self._listen_to(self._primary.url)

    def _listen_to(self, primary: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("ALTER SYSTEM SET primary_conninfo = {}").format(primary))
            connection.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """From now on it is a primary, on a timeline of its own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")
        self._wait("SELECT NOT pg_is_in_recovery()", ())

    def _wait(self, question: str, parameters: tuple[object, ...]) -> None:
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(self.url, autocommit=True) as connection:
            while connection.execute(question, parameters).fetchone() != (True,):
                assert time.monotonic() < deadline, f"in vain: {question}"
                time.sleep(0.02)


@contextlib.contextmanager
def following(primary: RestartablePostgres) -> Iterator[Standby]:
    """A standby that is up."""
    if not (binaries() / "pg_basebackup").exists():
        give_up("these binaries of PostgreSQL have no pg_basebackup")
    place = Path(tempfile.mkdtemp(prefix="posthouse-standby-", dir=in_memory()))
    standby = Standby(binaries(), place, primary)
    try:
        standby.make()
        standby.start()
        yield standby
    finally:
        standby.stop()
        shutil.rmtree(place, ignore_errors=True)
