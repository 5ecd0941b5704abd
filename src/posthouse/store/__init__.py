"""PORT: a store is a database that takes part in the user's transaction.

It holds small tables, each a role of its own: what goes out (`outbox`), what was applied (`inbox`), what could not be
(`held`), what is due later (`timers`), which versions are in use (`version_usage`), who runs (`workers`), what operators did (`actions`),
what is done to many things for them (`jobs`), who may do it for a while (`grants`); `retention` tells what lies there, and lets go
of what nobody needs. That is the core, `CoreStore`. For processes there is more, `ProcessTables`: where they stand (`sagas`), when they run again (`schedules`), what happened to each thing (`streams`), which
generations read models have (`projections`), what the members of an archive agree on (`archives`).
Methods that take a transaction as their first argument write inside it and never commit; the others are transactions of
their own. `posthouse.testing.StoreContract` proves an adapter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol, TypeGuard

import msgspec

from posthouse.checks import Check
from posthouse.store.actions import Action, ActionFilter, ActionTable
from posthouse.store.archives import ArchivePlan, ArchiveState, ArchiveTable, Planned
from posthouse.store.browsing import Browsing
from posthouse.store.gauges import Connections, Counts, Gauges, Sums
from posthouse.store.grants import Drawn, Grant, GrantTable, GrantVerb, Scope
from posthouse.store.held import BLOCKING, WAITED, HeldEvent, HeldFilter, HeldState, HeldTable
from posthouse.store.inbox import InboxEntry, InboxTable, KeyPosition, Seen
from posthouse.store.jobs import Job, JobState, JobTable
from posthouse.store.outbox import (
    OutboxReader,
    OutboxRow,
    OutboxShard,
    OutboxTable,
    Poll,
    RelaySource,
    SentFilter,
    StuckRow,
    Tail,
    WalReader,
    parked,
    shard_of,
)
from posthouse.store.projections import ProjectionTable
from posthouse.store.replays import ReplayTable
from posthouse.store.retention import RetentionTable
from posthouse.store.sagas import SagaTable
from posthouse.store.schedules import ScheduleTable
from posthouse.store.streams import StreamTable
from posthouse.store.timers import Timer, TimerTable
from posthouse.store.transaction import Parameters, Rows, Submit, Transaction
from posthouse.store.version_usage import UsageRole, VersionUsageTable, VersionUse
from posthouse.store.workers import Worker, WorkerTable

__all__ = [
    "BLOCKING",
    "WAITED",
    "Action",
    "ActionFilter",
    "ActionTable",
    "ArchivePlan",
    "ArchiveState",
    "ArchiveTable",
    "Browsing",
    "Connections",
    "CoreStore",
    "Counts",
    "Drawn",
    "Gauges",
    "Grant",
    "GrantTable",
    "GrantVerb",
    "HeldEvent",
    "HeldFilter",
    "HeldState",
    "HeldTable",
    "InboxEntry",
    "InboxTable",
    "Job",
    "JobState",
    "JobTable",
    "KeyPosition",
    "Migration",
    "OutboxReader",
    "OutboxRow",
    "OutboxShard",
    "OutboxSignals",
    "OutboxTable",
    "Parameters",
    "Planned",
    "Poll",
    "ProcessTables",
    "RelaySource",
    "ReplayTable",
    "Restoration",
    "RetentionTable",
    "Rows",
    "Scope",
    "Seen",
    "SentFilter",
    "Store",
    "StuckRow",
    "Submit",
    "Sums",
    "Tail",
    "Timer",
    "TimerTable",
    "Transaction",
    "Transactions",
    "Upkeep",
    "UsageRole",
    "VersionUsageTable",
    "VersionUse",
    "WalReader",
    "Worker",
    "WorkerTable",
    "has_process_tables",
    "parked",
    "shard_of",
]


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """A step from one release's tables to the next's. The first kind leaves tables that the release before can live
    with, so it is applied while that still runs; the second (`post`) once every process is of this release. `sql` is the
    whole step, for those who apply it with tools of their own: it also notes that it was applied."""

    name: str
    sql: str
    post: bool = False


class Restoration(msgspec.Struct, frozen=True, kw_only=True):
    """What it means for a store that it was brought back from a backup: new facts get this lineage, and so many that it still
    has are sent again."""

    lineage: int
    again: int


class Transactions(Protocol):
    """How a store takes part in the user's transaction."""

    writers: int
    """How many transactions can usefully be open at once."""
    isolated: bool
    """Keeps a transaction that was begun for a tenant from the rows of others: it takes the events of one tenant only."""

    def begin(
        self, shape: type | None = None, *, tenant: str | None = None, lazily: bool = False
    ) -> AbstractAsyncContextManager[Transaction]:
        """A transaction: committed when the block ends, rolled back when it raises. After DeadlineExceeded or a
        cancellation the connection is never used again, so that a handler that lives on cannot write. `shape` is what
        `view` will be asked for: the transaction is begun on the library that has it. An isolated store shows it the rows
        of `tenant` only; without one it is the runtime's own, and sees all. `lazily`: it may begin with its first
        statement, which saves a round trip; until then there is no connection to see. Leaving the block raises CommitUnknown
        when the answer to the commit was lost, TransactionClosed when somebody ended the transaction inside of it."""
        ...

    def join(self, theirs: object) -> Transaction:
        """The user's own open transaction (connection or session of a supported library). Never committed here.
        ConfigurationError for what cannot be joined."""
        ...

    async def append_after(self, sql: str, parameters: Parameters, row: OutboxRow) -> bool | None:
        """Run a statement of theirs and, if it changed a row, add this one, in one statement that commits by itself; whether it
        did. None where that cannot be: nothing was done then. CommitUnknown when the answer was lost."""
        ...

    def view(self, tx: Transaction, wanted: type) -> AbstractContextManager[object]:
        """`tx` in the shape that it was begun with: the driver's connection, an ORM session. Entered where the handler
        runs; it may be used until the handler returns."""
        ...

    def refusal(self, shape: type, *, plain: bool) -> str | None:
        """Why a handler, a `plain` function or an asynchronous one, cannot have its transaction in this shape; None when
        it can."""
        ...


class Upkeep(Protocol):
    """How the tables come to be, and how they are."""

    embedded: bool
    """Belongs to this service alone, so that it may be upgraded without asking."""

    def migrations(self) -> Sequence[Migration]:
        """Every step that this release knows, in order."""
        ...

    async def upgrade(self, *, post: bool = False) -> Sequence[str]:
        """Apply the steps that are missing, in order; returns their names. Steps of the second kind wait for `post`,
        unless there are no tables yet. Idempotent, safe from many processes. StoreError when the tables are of a newer
        release."""
        ...

    async def pending_migrations(self, *, post: bool = False) -> Sequence[str]:
        """Names of the steps that `upgrade` would apply. A service needs those of the first kind to run: without them
        everything else raises StoreOutdated."""
        ...

    async def present(self) -> None:
        """Raise StoreOutdated, which names the place and says what to do, where there are no tables of ours, or older ones. Makes
        and changes nothing: whoever only looks asks this before anything else."""
        ...

    async def restored(self, *, dry_run: bool = False, action: Action | None = None) -> Restoration:
        """Say that this database was brought back from a backup: numbers given since will be given again, so they get a new
        lineage, by which consumers tell them from duplicates; what was perhaps not sent is sent again; every lease of
        before is void. One transaction, in which `action` is noted. With `dry_run` nothing is changed."""
        ...

    async def counts(self) -> Counts:
        """The figures, read in one snapshot; each exact."""
        ...

    async def sums(self) -> Sums:
        """What `counts` says was sent and accounted for, for whoever asks many times a second: from tallies alone, so that it costs
        next to nothing whatever is there."""
        ...

    async def gauges(self, *, timeout: float = 5.0) -> Gauges:
        """How the store stands, read in one snapshot and by its own clock, for whoever looks every few seconds: the cost does not
        grow with what is there, so of a long backlog the end is estimated, and of the gaps past their deadline the first hundred of a consumer are counted. Changes nothing, and needs no worker.
        StoreUnavailable when it takes longer than `timeout` seconds."""
        ...

    async def checks(self, *, today: bool = True, shapes: Collection[type] = ()) -> Sequence[Check]:
        """Whether the database is set up to keep the promise; with `today` also what may be different in a minute: open
        transactions, room for the connections of a process whose handlers ask for `shapes`, waiting work. Changes nothing, needs no tables, and says what it was not allowed to see."""
        ...


class OutboxSignals(Protocol):
    """How a relay learns that something was committed."""

    async def wake(self) -> str:
        """How a relay here learns of it, in words, found out by trying."""
        ...

    async def changed(self, seen: int, seconds: float) -> int:
        """A number that grows when somebody, in any process, may have added to the outbox. Returns as soon as it differs
        from `seen`, at the latest after `seconds`. A hint, never a promise: it may be lost."""
        ...

    async def wal_reader(self) -> WalReader:
        """The outbox through the database's own log. Raises ConfigurationError when this store has none, or may not
        follow it: it says what to set."""
        ...


class CoreStore(Transactions, Upkeep, OutboxSignals, Protocol):
    """The core: a database that keeps what goes out, what was applied, what could not be, and what is due later. Every method
    may raise StoreUnavailable or StoreFull; foreign errors never escape."""

    outbox: OutboxTable
    inbox: InboxTable
    held: HeldTable
    timers: TimerTable
    version_usage: VersionUsageTable
    workers: WorkerTable
    actions: ActionTable
    jobs: JobTable
    grants: GrantTable
    retention: RetentionTable

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        ...


class ProcessTables(Protocol):
    """What a store keeps besides for processes: where sagas stand, what runs again and again, what happened to aggregates, which generations read models
    have. A store may do without: an App refuses services that declare any of these on it."""

    sagas: SagaTable
    schedules: ScheduleTable
    streams: StreamTable
    projections: ProjectionTable
    archives: ArchiveTable


class Store(CoreStore, ProcessTables, Protocol):
    """Both: what every store of Posthouse is, with lists for people (`browsing`), and what is applied again (`replays`). One of your
    own may have the core alone."""

    browsing: Browsing
    replays: ReplayTable


def has_process_tables(store: CoreStore) -> TypeGuard[Store]:
    """Whether a store keeps sagas, schedules, streams and projections too."""
    return all(hasattr(store, table) for table in ("sagas", "schedules", "streams", "projections", "archives"))
