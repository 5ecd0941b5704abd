"""SqliteStore: the store inside a SQLite file, beside the user's own tables."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from posthouse.checks import Check
from posthouse.clock import Clock, SystemClock, longest_backoff
from posthouse.errors import ConfigurationError, StoreOutdated, StoreUnavailable
from posthouse.local.file_checks import file_checks
from posthouse.local.sqlite import Synchronous, absent, check_place, connect, look_into, mapped, patiently
from posthouse.store import (
    Action,
    ActionTable,
    Counts,
    Gauges,
    GrantTable,
    HeldTable,
    InboxTable,
    JobTable,
    Migration,
    OutboxRow,
    OutboxTable,
    Parameters,
    Restoration,
    Sums,
    TimerTable,
    Transaction,
    VersionUsageTable,
    WalReader,
    WorkerTable,
)
from posthouse.store.archives import ArchiveTable
from posthouse.store.browsing import Browsing
from posthouse.store.projections import ProjectionTable
from posthouse.store.replays import ReplayTable
from posthouse.store.retention import RetentionTable
from posthouse.store.sagas import SagaTable
from posthouse.store.schedules import ScheduleTable
from posthouse.store.streams import StreamTable
from posthouse.stores.sessions import comes_from, module_of, refusal, shape_of
from posthouse.stores.sessions.sqlite3 import SessionConnection
from posthouse.stores.sqlite.actions import SqliteActions
from posthouse.stores.sqlite.archives import SqliteArchives
from posthouse.stores.sqlite.browsing import SqliteBrowsing
from posthouse.stores.sqlite.counting import counts, gauges, looked, sums
from posthouse.stores.sqlite.database import Database, SqliteTransaction, rows_of
from posthouse.stores.sqlite.grants import SqliteGrants
from posthouse.stores.sqlite.held import SqliteHeld
from posthouse.stores.sqlite.inbox import SqliteInbox
from posthouse.stores.sqlite.jobs import SqliteJobs
from posthouse.stores.sqlite.joins import SqliteJoined, owner_of
from posthouse.stores.sqlite.outbox import SqliteOutbox
from posthouse.stores.sqlite.projections import SqliteProjections
from posthouse.stores.sqlite.replays import SqliteReplays
from posthouse.stores.sqlite.retention import SqliteRetention
from posthouse.stores.sqlite.sagas import SqliteSagas
from posthouse.stores.sqlite.schedules import SqliteSchedules
from posthouse.stores.sqlite.schema import MOST_SHARDS, applied, migrations, missing, script, upgrading
from posthouse.stores.sqlite.steps import carry_out
from posthouse.stores.sqlite.streams import SqliteStreams
from posthouse.stores.sqlite.timers import SqliteTimers
from posthouse.stores.sqlite.version_usage import SqliteVersionUsage
from posthouse.stores.sqlite.workers import SqliteWorkers
from posthouse.stores.waiting import waiting_checks

T = TypeVar("T")

WEEK = 7 * 86_400.0
MADE = "It is made when the service first runs or begins a transaction of its own, or by `posthouse db upgrade TARGET`"
"""Or brought up to date."""
FIRST_PAUSE, LAST_PAUSE = 0.002, 0.05
"""Seconds between two looks for rows that a joined connection added: it cannot ring when it commits."""

# The last id ever given to an outbox row.
LATEST = "SELECT seq FROM sqlite_sequence WHERE name = 'posthouse_outbox'"

# Shards, those that a relay holds, stuck rows and their keys, and dead events.
WAITING = """
SELECT (SELECT count(*) FROM posthouse_shard), (SELECT count(*) FROM posthouse_shard WHERE owner IS NOT NULL AND until > ?),
    (SELECT count(*) FROM posthouse_stuck),
    (SELECT count(*) FROM (SELECT DISTINCT topic, tenant, key FROM posthouse_stuck)),
    (SELECT count(*) FROM posthouse_held WHERE state = 'dead')
"""

# A new line of numbers, in which nobody holds a shard.
LINEAGE = "SELECT value FROM posthouse_meta WHERE name = 'lineage'"
NEW_LINEAGE = "UPDATE posthouse_meta SET value = value + 1 WHERE name = 'lineage' RETURNING value"
NO_OWNERS = "UPDATE posthouse_shard SET owner = NULL, until = 0"


class SqliteStore:
    """A store in a SQLite file, or in memory for tests.

    `synchronous` FULL: a commit survives a power cut; NORMAL: only a crash of the process, at ten times the rate.
    `shards` is fixed when the tables are made (16 unless given). `idempotency_window` is how long, in seconds, an
    idempotency key is remembered; `patience` how long to wait for a writer of another process.
    """

    embedded = True
    isolated = False
    writers = 1

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Clock | None = None,
        synchronous: Synchronous = "FULL",
        shards: int | None = None,
        idempotency_window: float = WEEK,
        patience: float = 30.0,
    ) -> None:
        if shards is not None and not 1 <= shards <= MOST_SHARDS:
            raise ConfigurationError(f"shards={shards}: choose 1 to {MOST_SHARDS}")
        if "://" in str(path):
            raise ConfigurationError(f"{path} is a URL: SqliteStore takes a path, or ':memory:'; a Service takes URLs")
        place = None if str(path) == ":memory:" else Path(path).absolute()
        self.notes: Sequence[str] = check_place(place) if place is not None else []
        """Sentences on what weakens the promise here."""
        self._clock = clock or SystemClock()
        self._synchronous: Synchronous = synchronous
        self._database = Database(place, synchronous, shards, patience)
        self._outbox = SqliteOutbox(self._database, self._clock, idempotency_window)
        self.outbox: OutboxTable = self._outbox
        self.inbox: InboxTable = SqliteInbox(self._database, self._clock)
        self.held: HeldTable = SqliteHeld(self._database, self._clock)
        self.timers: TimerTable = SqliteTimers(self._database, self._clock, self._outbox)
        self.version_usage: VersionUsageTable = SqliteVersionUsage(self._database, self._clock)
        self.workers: WorkerTable = SqliteWorkers(self._database, self._clock)
        self.actions: ActionTable = SqliteActions(self._database, self._clock)
        self.jobs: JobTable = SqliteJobs(self._database, self._clock)
        self.grants: GrantTable = SqliteGrants(self._database, self._clock)
        self.retention: RetentionTable = SqliteRetention(self._database, self._clock)
        self.schedules: ScheduleTable = SqliteSchedules(self._database, self._clock)
        self.sagas: SagaTable = SqliteSagas(self._database, self._clock)
        self.streams: StreamTable = SqliteStreams(self._database)
        self.browsing: Browsing = SqliteBrowsing(self._look)
        self.projections: ProjectionTable = SqliteProjections(self._database, self._clock)
        self.archives: ArchiveTable = SqliteArchives(self._database, self._clock)
        self.replays: ReplayTable = SqliteReplays(self._database, self._clock)

    def begin(self, shape: type | None = None, *, tenant: str | None = None, lazily: bool = False) -> SqliteTransaction:
        return self._database.begin()

    def join(self, theirs: object) -> Transaction:
        return owner_of(theirs) or SqliteJoined(self._database, theirs)

    async def append_after(self, sql: str, parameters: Parameters, row: OutboxRow) -> bool | None:
        return None  # a file is not far away: there is nothing to save

    def view(self, tx: Transaction, wanted: type) -> AbstractContextManager[object]:
        if not isinstance(tx, SqliteTransaction):
            raise ConfigurationError(
                "only a transaction that the store began can be viewed: a joined one is yours already"
            )
        if shape_of(wanted, "SQLite") is None:
            raise ConfigurationError(str(refusal(wanted, "SQLite", plain=True)))
        if comes_from(wanted, "sqlalchemy"):
            view: AbstractContextManager[object] = module_of("sqlalchemy").session_on(
                tx.lend(SessionConnection), wanted
            )
            return view
        return nullcontext(tx.connection)

    def refusal(self, shape: type, *, plain: bool) -> str | None:
        return refusal(shape, "SQLite", plain=plain)

    def migrations(self) -> Sequence[Migration]:
        return [Migration(name=name, sql=script(name)) for name in migrations()]

    async def upgrade(self, *, post: bool = False) -> Sequence[str]:
        """There are no steps of the second kind: the file belongs to one service, whose processes change together."""
        done = []
        for name in migrations():
            async with SqliteTransaction(self._database, "FULL", check=False) as tx:
                if name not in missing(carry_out(applied(), tx.run)):
                    continue
                if carry_out(upgrading(name, self._clock.now(), self._database.wanted_shards), tx.run):
                    done.append(name)
        self._database.forget()
        await self._database.shards()
        return done

    async def pending_migrations(self, *, post: bool = False) -> Sequence[str]:
        path = self._database.path
        if path is None:
            return await self._database.read(_missing, check=False)
        return await patiently(partial(_missing_in, path), patience=self._database.patience)

    async def present(self) -> None:
        path = self._database.path
        if path is None:  # nobody else could have made it
            await self.upgrade()
            return
        if not path.exists():
            raise StoreOutdated(f"{absent(path)} {MADE}; if it should be there, correct the URL of the store")
        if lacking := await self.pending_migrations():
            what = "has no tables of Posthouse" if lacking == migrations() else f"lacks {', '.join(lacking)}"
            raise StoreOutdated(f"{path} {what}. {MADE}")

    async def restored(self, *, dry_run: bool = False, action: Action | None = None) -> Restoration:
        again = sum((await self.counts()).unsent.values())
        async with self._database.begin() as tx:
            if dry_run:
                return Restoration(lineage=int(str(tx.run(LINEAGE).scalar())) + 1, again=again)
            tx.run(NO_OWNERS)
            if action is not None:
                await self.actions.add(tx, action)
            return Restoration(lineage=int(str(tx.run(NEW_LINEAGE).scalar())), again=again)

    async def counts(self) -> Counts:
        return await self._look(partial(counts, now=self._clock.now()))

    async def sums(self) -> Sums:
        return await self._look(sums)

    async def gauges(self, *, timeout: float = 5.0) -> Gauges:
        return await self._look(partial(gauges, now=self._clock.now()), timeout)

    async def _look(self, work: Callable[[sqlite3.Connection], T], timeout: float | None = None) -> T:
        """What `work` reads, in one transaction, beside whatever else this process does: it may take a while."""
        path = self._database.path
        if path is None:
            return await self._database.read(work)
        await self._database.shards()
        if not path.exists():  # taken away since: who looks makes none
            raise StoreUnavailable(absent(path))
        connection = await patiently(partial(connect, path), patience=self._database.patience)
        return await looked(connection, work, timeout)

    async def checks(self, *, today: bool = True, shapes: Collection[type] = ()) -> Sequence[Check]:
        path = self._database.path
        if path is None:
            return [Check(name="memory", found="a database that ends with this process, for tests")]
        checks = await patiently(lambda: file_checks(path, self._synchronous, today=today))
        if not path.exists():
            return checks
        lacking = await self.pending_migrations()
        found = f"{', '.join(lacking)} will be applied at the next start" if lacking else "all are applied"
        checks.append(Check(name="migrations", found=found))
        if today:
            checks += [] if lacking else await self._database.read(self._waiting)
            checks.append(Check(name="wake-up", found=await self.wake()))
        return checks

    async def wake(self) -> str:
        return f"socket + polling every {LAST_PAUSE:g} s"

    def _waiting(self, connection: sqlite3.Connection) -> list[Check]:
        shards, held, stuck, keys, dead = connection.execute(WAITING, (self._clock.now(),)).fetchone()
        return waiting_checks(shards=shards, held=held, stuck=stuck, stuck_keys=keys, dead=dead)

    async def changed(self, seen: int, seconds: float) -> int:
        loop = asyncio.get_running_loop()
        by_loop, by_clock = loop.time() + seconds, self._clock.now() + seconds
        notifier, looks = self._database.notifier, 0
        count = await notifier.wait(-1, 0)
        while True:
            latest = await self._database.read(_latest)
            left = min(by_loop - loop.time(), by_clock - self._clock.now())
            if latest != seen or left <= 0:
                return latest
            looks += 1
            count = await notifier.wait(count, min(longest_backoff(looks, FIRST_PAUSE, LAST_PAUSE, 1.2), left))

    async def wal_reader(self) -> WalReader:
        raise ConfigurationError(
            "SQLite has no log that a relay could follow: leave --relay wal out, its relay is woken at once"
        )

    async def aclose(self) -> None:
        self._database.close()


def _missing_in(path: Path) -> Sequence[str]:
    """Of a file as it is; nothing is made by asking."""
    if not path.exists():
        return migrations()
    with mapped("looking at the tables"), closing(look_into(path)) as connection:
        return _missing(connection)


def _missing(connection: sqlite3.Connection) -> Sequence[str]:
    return missing(carry_out(applied(), lambda sql, parameters: rows_of(connection, sql, parameters)))


def _latest(connection: sqlite3.Connection) -> int:
    row = connection.execute(LATEST).fetchone()
    return int(row[0]) if row else 0
