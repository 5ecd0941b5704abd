"""PORT: a store is a database that takes part in the user's transaction.

It holds small tables, each a role of its own: what goes out (`outbox`), what was applied (`inbox`), what could not be
(`held`), what is due later (`timers`), which versions are in use (`sightings`), where processes stand (`sagas`),
what happened to each thing (`streams`), which generations read models have (`projections`).
Methods that take a transaction as their first argument write inside it and never commit; the others are transactions of
their own. `posthouse.testing.StoreContract` proves an adapter.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Literal, Protocol

import msgspec

from posthouse.checks import Check
from posthouse.projection_table import ProjectionTable
from posthouse.saga_table import SagaTable
from posthouse.stream_table import StreamTable
from posthouse.transaction import Parameters as Parameters
from posthouse.transaction import Rows as Rows
from posthouse.transaction import Submit as Submit
from posthouse.transaction import Transaction as Transaction

# What goes out.


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A frame on its way from a transaction to the broker.

    `key` orders; when `numbered` the store gives the row the next number of its (topic, tenant, key). A row whose
    `idempotency_key` is already known for (tenant, topic) within the window is not added again.
    `id`, `sequence` and `lineage` are filled by the store.
    """

    topic: str
    tenant: str
    event_id: str
    body: bytes
    headers: Mapping[str, str] = {}
    key: str | None = None
    numbered: bool = True
    idempotency_key: str | None = None
    id: int = 0
    sequence: int | None = None
    lineage: int = 1


class Lane(msgspec.Struct, frozen=True):
    """A share of the outbox that one relay holds; `epoch` grows with every change of owner."""

    number: int
    epoch: int


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """Rows read for a set of lanes, in the order to publish them. `stuck` holds the ids of rows whose key is waiting
    behind a failed one: they are not to be published. `more` is True when the limit was reached. `cursor` is the
    store's own; None when there is nothing to settle."""

    lanes: Sequence[Lane]
    rows: Sequence[OutboxRow]
    stuck: frozenset[int] = frozenset()
    more: bool = False
    cursor: object = None


class StuckRow(msgspec.Struct, frozen=True, kw_only=True):
    """An outbox row that the broker refused, or one that waits behind it (attempts 0)."""

    row: OutboxRow
    attempts: int
    first_at: float
    next_at: float
    error: str
    quarantined: bool = False


class OutboxReader(Protocol):
    """Committed rows, as a relay that leases lanes reads them."""

    async def lease(self, owner: str, seconds: float) -> Sequence[Lane]:
        """Renew what `owner` holds and take or give up lanes so that live owners hold equal shares.
        Call it only while nothing of the lanes held is in flight."""
        ...

    async def release(self, owner: str) -> None:
        """Give up every lane at once."""
        ...

    async def poll(self, lanes: Sequence[Lane], limit: int) -> Poll:
        """Committed rows of these lanes after their cursors; per key in commit order. Reads only."""
        ...

    async def settle(self, owner: str, poll: Poll, stuck: Sequence[StuckRow]) -> bool:
        """Move the cursors past `poll` and park `stuck`, in one transaction; rows that the poll flagged and `stuck` does
        not name are parked too. False, and no effect, when any lane of the poll is no longer held under its epoch:
        then publish nothing more from it."""
        ...

    async def stuck_due(self, lanes: Sequence[Lane], now: float, limit: int) -> Sequence[StuckRow]:
        """The first row of each stuck key whose time has come."""
        ...

    async def settle_stuck(
        self, owner: str, lanes: Sequence[Lane], sent: Sequence[int], failed: Sequence[StuckRow]
    ) -> bool:
        """Remove the rows that were sent (their followers are due at once) and reschedule the others. Fenced as settle."""
        ...


class OutboxTable(OutboxReader, Protocol):
    """Append-only rows."""

    async def append(self, tx: Transaction, rows: Sequence[OutboxRow], *, last: bool = False) -> Sequence[str]:
        """Add rows inside `tx`; returns the event id that stands for each: its own, or the earlier one with the same
        idempotency key. Numbers follow commit order per key; a rollback leaves no gap. `last`: nothing but the commit is
        to follow, so that a store may send both at once; then it is the commit that raises."""
        ...

    async def stuck(self) -> Sequence[StuckRow]:
        """Every stuck row, for people."""
        ...

    async def retry_stuck(self, row_id: int) -> bool:
        """An operator asks for another try now; ends a quarantine."""
        ...

    async def kept(self, after: int, limit: int) -> Sequence[OutboxRow]:
        """Committed rows that were not purged yet, sent or not, by id, those behind `after`; for people."""
        ...

    async def purge(self, limit: int) -> int:
        """Delete up to `limit` rows that every lane has passed and nothing waits for; and forgotten idempotency keys. A
        store may besides empty whole parts of its table at one stroke: those rows are not counted."""
        ...


RelaySource = Literal["poll", "wal"]
"""Where a relay's rows come from: polls of the outbox, or the database's own log."""


class OutboxTail(OutboxReader, Protocol):
    """The outbox read from the database's own log, by one relay. Same rows, same order per key, same cursors. While the
    log cannot be followed it polls, so that nothing is lost; it returns to the log by itself."""

    @property
    def mode(self) -> RelaySource:
        """Where rows come from at this moment."""
        ...

    @property
    def why(self) -> str:
        """Why it polls; empty when it does not."""
        ...

    async def changed(self, seen: int, seconds: float) -> int:
        """As `Store.changed`, and also when a settle is due."""
        ...

    async def aclose(self) -> None:
        """Let go of the log; the next lease takes it up again. Idempotent."""
        ...


# What was applied.


class Arrival(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as a consumer's inbox sees it. With a `sequence` it is ordered by (topic, tenant, key), without one it
    stands alone. `digest` tells whether two events with one id are the same; `time` is when it became true."""

    topic: str
    tenant: str
    event_id: str
    digest: bytes
    time: float
    key: str | None = None
    sequence: int | None = None
    lineage: int = 1


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last event applied of one key, and the lowest number that is held behind it (None when nothing is).

    `event_id` is empty when none was applied yet and the key's first is held: `sequence` is then the number before the
    first one expected, and belongs to no event.
    """

    sequence: int
    lineage: int
    event_id: str
    digest: bytes
    waiting: int | None = None
    waiting_id: str | None = None


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """An unordered event that was applied before, or is held."""

    digest: bytes


class InboxTable(Protocol):
    """Who has seen what. The claim commits with the handler's writes or not at all."""

    async def register(self, consumer: str, topic: str, adopt: bool) -> bool:
        """Remember at a consumer's first start whether it adopts the first number it sees of a key (it joined late) or
        expects 1. Returns what is in force: the first answer stays."""
        ...

    async def claim(self, tx: Transaction, consumer: str, arrivals: Sequence[Arrival]) -> Sequence[bool]:
        """Record each event as applied if it is the next of its key and nothing is held for that key, or, unordered, if
        it is new and no copy of it is held; events of one key stand in the order of their numbers. One answer each.
        False changes nothing: ask `standing` why. It may be that the event is the next after all, behind one that was
        not claimed."""
        ...

    async def standing(self, tx: Transaction, consumer: str, arrival: Arrival) -> Head | Known | None:
        """What is known about the event's key (ordered) or about the event (unordered)."""
        ...

    async def advance(
        self, tx: Transaction, consumer: str, arrival: Arrival, *, skipped: bool = False, counted: bool = True
    ) -> None:
        """Record the event as the last of its key, or as known, whatever is held: for held events in their turn. It
        counts as applied; with `skipped` as given up; and not at all unless `counted`, because it stays among the held."""
        ...

    async def purged_until(self, consumer: str) -> float | None:
        """The latest event time among unordered events already forgotten; None when none were."""
        ...

    async def purge(self, before: float, limit: int) -> int:
        """Forget unordered events received before a time."""
        ...


# What could not be applied.

HeldState = Literal["retrying", "gap", "blocked", "dead", "quarantined", "skipped"]
"""retrying: runs again at `next_at`. gap: an earlier number is missing. blocked: waits behind an earlier one of its key.
dead: attempts are spent, its key waits for an operator. quarantined: set aside, never run by itself.
skipped: given up, its key went on without it. The first four keep their key waiting."""

BLOCKING: frozenset[HeldState] = frozenset(("retrying", "gap", "blocked", "dead"))


class HeldEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event accepted from the broker but not applied. `attempts` counts runs that were begun, `turn` every change
    of the row: it is the token that fences a worker that was too slow."""

    consumer: str
    arrival: Arrival
    state: HeldState
    body: bytes
    headers: Mapping[str, str] = {}
    type: str = ""
    attempts: int = 0
    next_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
    reason: str = ""
    error: str = ""
    stack: str = ""
    id: int = 0
    turn: int = 0


class HeldFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which held events; None means any."""

    consumer: str | None = None
    state: HeldState | None = None
    tenant: str | None = None
    topic: str | None = None
    key: str | None = None
    ids: Sequence[int] | None = None


class HeldTable(Protocol):
    """One table for retrying, waiting and dead events."""

    async def hold(self, tx: Transaction, event: HeldEvent) -> bool:
        """Add it. False when this event (ordered: this number with this id; unordered: this id) is held already. When
        another event waits under its number it is added as quarantined, whatever its state says: a fork."""
        ...

    async def claim_due(self, consumer: str, now: float, limit: int, visibility: float) -> Sequence[HeldEvent]:
        """Retrying events whose time has come, oldest first, at most one per key, with attempts and turn already
        counted up and `next_at` moved `visibility` seconds ahead: if the caller dies they come again."""
        ...

    async def next_due(self, consumer: str) -> float | None:
        """When the next retrying event whose turn it is, or gap event, of the consumer wants attention."""
        ...

    async def remove(self, tx: Transaction, event: HeldEvent) -> bool:
        """Take it out because it was applied. False when its turn has passed to someone else."""
        ...

    async def change(self, tx: Transaction, event: HeldEvent) -> bool:
        """Store state, attempts, times, headers, body, reason, error, stack as given. False when its turn has passed.
        An event out of line may lose its number, to run as one that stands alone. StoreError when it would keep its key
        waiting under a number that another event waits under."""
        ...

    async def promote(self, tx: Transaction, consumer: str, arrival: Arrival, now: float) -> bool:
        """`arrival` is out of the way: the held event with the next number of its key becomes retrying, due now, with
        no attempts. True when there was one."""
        ...

    async def find(self, wanted: HeldFilter, *, after: int = 0, limit: int = 100) -> Sequence[HeldEvent]:
        """Held events by id."""
        ...

    async def overdue_gaps(self, consumer: str, now: float) -> Sequence[HeldEvent]:
        """Gap events whose `next_at` (the deadline of the gap) has passed: they are for an alarm."""
        ...


# What is due later.


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """An outbox row that enters the outbox at `due_at`, or so many seconds `after` it is set: then the store's clock
    decides, and `due_at` is what the sender's said. `name` is unique per tenant and cancels it."""

    name: str
    due_at: float
    row: OutboxRow
    after: float | None = None


class TimerTable(Protocol):
    """Rows with a due time by the store's clock."""

    async def set(self, tx: Transaction, timer: Timer) -> None:
        """Add it, or move and replace the one with the same (tenant, name)."""
        ...

    async def cancel(self, tx: Transaction, tenant: str, name: str) -> bool:
        """Remove it; False when it has fired or never was."""
        ...

    async def fire(self, limit: int) -> int:
        """Move due timers into the outbox, each exactly once however many schedulers ask. Returns how many."""
        ...

    async def next_due(self) -> float | None:
        """When the next one is due."""
        ...

    async def pending(self, tenant: str | None = None, limit: int = 100) -> Sequence[Timer]:
        """Timers not yet fired, soonest first."""
        ...


# Which versions are in use.

SightingRole = Literal["published", "applied", "running"]
"""published: a relay sent it. applied: a consumer's handler ran on it. running: the service was there to see."""


class Sighting(msgspec.Struct, frozen=True):
    """That `party` (a service, or a consumer) used a subject, first and last at these times. A service that is `running`
    has an empty subject."""

    role: SightingRole
    party: str
    subject: str
    first_at: float
    last_at: float


class SightingTable(Protocol):
    """Who used which version when. Written seldom, and never in the transaction of an event."""

    async def note(self, sightings: Sequence[Sighting]) -> None:
        """Remember them: of one (role, party, subject) the earliest first time and the latest last time stay."""
        ...

    async def seen(self) -> Sequence[Sighting]:
        """Everything that is remembered, sorted by role, party and subject."""
        ...


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one store: for the conservation line."""

    committed: Mapping[str, int]
    """Rows ever added to the outbox, per topic."""
    unsent: Mapping[str, int]
    """Of these, not yet accepted by the broker, per topic (stuck ones included)."""
    stuck: int
    applied: Mapping[tuple[str, str], int]
    """Events applied, per (consumer, topic)."""
    skipped: Mapping[tuple[str, str], int]
    """Events given up, per (consumer, topic): held as skipped, or never seen."""
    held: Mapping[tuple[str, str, HeldState], int]
    """Events held, per (consumer, topic, state); skipped ones are not counted here."""
    timers: int


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """A step from one release's tables to the next's. The first kind leaves tables that the release before can live
    with, so it is applied while that still runs; the second (`post`) once every process is of this release. `sql` is the
    whole step, for those who apply it with tools of their own: it also notes that it was applied."""

    name: str
    sql: str
    post: bool = False


class Store(Protocol):
    """A database. Every method may raise StoreUnavailable or StoreFull; foreign errors never escape."""

    outbox: OutboxTable
    inbox: InboxTable
    held: HeldTable
    timers: TimerTable
    sightings: SightingTable
    sagas: SagaTable
    streams: StreamTable
    projections: ProjectionTable
    embedded: bool
    """Belongs to this service alone, so that it may be upgraded without asking."""
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
        statement, which saves a round trip; until then there is no connection to see."""
        ...

    def join(self, theirs: object) -> Transaction:
        """The user's own open transaction (connection or session of a supported library). Never committed here."""
        ...

    def append_now(self, theirs: object, rows: Sequence[OutboxRow]) -> Sequence[str]:
        """`outbox.append` to a synchronous connection or session of theirs, for code without an event loop."""
        ...

    def view(self, tx: Transaction, wanted: type) -> AbstractContextManager[object]:
        """`tx` in the shape that it was begun with: the driver's connection, an ORM session. Entered where the handler
        runs; it may be used until the handler returns."""
        ...

    def refusal(self, shape: type, *, plain: bool) -> str | None:
        """Why a handler, a `plain` function or an asynchronous one, cannot have its transaction in this shape; None when
        it can."""
        ...

    def migrations(self) -> Sequence[Migration]:
        """Every step that this release knows, in order."""
        ...

    async def upgrade(self, *, post: bool = False) -> Sequence[str]:
        """Apply the steps that are missing, in order; returns their names. Steps of the second kind wait for `post`,
        unless there are no tables yet. Idempotent, safe from many processes."""
        ...

    async def pending_migrations(self, *, post: bool = False) -> Sequence[str]:
        """Names of the steps that `upgrade` would apply. A service needs those of the first kind to run."""
        ...

    async def counts(self) -> Counts:
        """The figures, read in one snapshot."""
        ...

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        """Whether the database is set up to keep the promise; with `today` also what may be different in a minute: open
        transactions, room, waiting work. Changes nothing, needs no tables, and says what it was not allowed to see."""
        ...

    async def wake(self) -> str:
        """How a relay here learns that something was committed, in words, found out by trying."""
        ...

    async def changed(self, seen: int, seconds: float) -> int:
        """A number that grows when somebody, in any process, may have added to the outbox. Returns as soon as it differs
        from `seen`, at the latest after `seconds`. A hint, never a promise: it may be lost."""
        ...

    async def tail(self) -> OutboxTail:
        """The outbox through the database's own log. Raises ConfigurationError when this store has none, or may not
        follow it: it says what to set."""
        ...

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        ...


def lane_of(tenant: str, key: str, lanes: int) -> int:
    """The lane of a key: the same on every machine and in every release."""
    return zlib.crc32(f"{tenant}\x00{key}".encode()) % lanes
