"""PORT: what goes out: rows that a transaction adds and a relay reads."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from posthouse.store.actions import Action
from posthouse.store.transaction import Transaction

DAMAGED = "damaged: "
"""How the content type begins that a store gives to a row whose headers or body are neither, since a hand has changed them."""


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


class Number(NamedTuple):
    """What `OutboxTable.number` gave a row. `stands` is the id of the event that stands for it; where it is not `fresh`, that is an
    earlier one with the same idempotency key, and the row is not to be added."""

    stands: str
    fresh: bool
    sequence: int | None
    lineage: int


class OutboxShard(msgspec.Struct, frozen=True):
    """A share of the outbox that one relay holds; `epoch` grows with every change of owner. `run` tells in which run of the
    database's server it was leased: whoever reads or settles it in another one is refused, and leases anew. Empty where a
    store has no server."""

    number: int
    epoch: int
    run: str = ""


class ShardLease(msgspec.Struct, frozen=True):
    """Who holds a shard, for people. `owner` is the relay, empty when nobody holds it; the lease ends in `left` seconds unless it
    is renewed, 0 when nobody holds it."""

    number: int
    epoch: int
    owner: str
    left: float


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """Rows read for a set of shards, in the order to publish them. `stuck` holds the ids of rows whose key is waiting
    behind a failed one: they are not to be published. `none_stuck` is True when the store knows that no row of any key
    is waiting. `more` is True when the limit was reached. `cursor` is the store's own; None when there is nothing to
    settle."""

    shards: Sequence[OutboxShard]
    rows: Sequence[OutboxRow]
    stuck: frozenset[int] = frozenset()
    none_stuck: bool = False
    more: bool = False
    cursor: object = None


class StuckRow(msgspec.Struct, frozen=True, kw_only=True):
    """An outbox row that the broker refused, or one that waits behind it (attempts 0).

    Times are the store's: `next_at` is set to so many seconds `after` the moment of writing, and `first_at` to that moment
    unless there is one. When it is read, `after` is in how many seconds it is due, and `age` how long ago `first_at` is.
    """

    row: OutboxRow
    attempts: int
    error: str
    quarantined: bool = False
    after: float = 0.0
    age: float = 0.0
    first_at: float = 0.0
    next_at: float = 0.0

    @property
    def state(self) -> Literal["quarantined", "refused", "waiting"]:
        """How it stands, in a word: set aside, to be tried again, or behind one of its key."""
        return "quarantined" if self.quarantined else "refused" if self.attempts else "waiting"


class SentFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows that were sent; None means any."""

    topic: str | None = None
    tenant: str | None = None
    key: str | None = None


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """Rows behind a position, in the order in which they became visible; per key in commit order. `positions` are those behind
    each row, `position` the one behind all: text of the store's own, good in any process. `more`: there is more already. `gone`: nobody
    can say what lies behind the position that was given, and there are no rows; `position` is then the end."""

    rows: Sequence[OutboxRow] = ()
    positions: Sequence[str] = ()
    position: str
    more: bool = False
    gone: bool = False


class OutboxReader(Protocol):
    """Committed rows, as a relay that leases shards reads them. Only durations come in, and go out: what is due is decided by
    the store's own clock, because those of the relays may differ."""

    async def lease(self, owner: str, seconds: float) -> Sequence[OutboxShard]:
        """Renew what `owner` holds and take or give up shards so that live owners hold equal shares.
        Call it only while nothing of the shards held is in flight."""
        ...

    async def release(self, owner: str) -> None:
        """Give up every shard at once."""
        ...

    async def poll(self, shards: Sequence[OutboxShard], limit: int) -> Poll:
        """Committed rows of these shards after their cursors; per key in commit order. Reads only. StoreUnavailable when
        the shards were leased in another run of the server: lease them again."""
        ...

    async def settle(self, owner: str, poll: Poll, stuck: Sequence[StuckRow]) -> bool:
        """Move the cursors past `poll` and park `stuck`, in one transaction; rows that the poll flagged and `stuck` does
        not name are parked too. False, and no effect, when any shard of the poll is no longer held under its epoch, or
        the server has begun another run since: then publish nothing more from it."""
        ...

    async def stuck_due(self, shards: Sequence[OutboxShard], limit: int) -> Sequence[StuckRow]:
        """The first row of each stuck key whose time has come."""
        ...

    async def settle_stuck(
        self, owner: str, shards: Sequence[OutboxShard], sent: Sequence[int], failed: Sequence[StuckRow]
    ) -> bool:
        """Remove the rows that were sent (their followers are due at once) and reschedule the others. Fenced as settle."""
        ...


class OutboxTable(OutboxReader, Protocol):
    """Append-only rows."""

    async def append(
        self, tx: Transaction, rows: Sequence[OutboxRow], *, with_commit: bool = False, numbered: bool = False
    ) -> Sequence[str]:
        """Add rows inside `tx`; returns the event id that stands for each: its own, or the earlier one with the same
        idempotency key. Numbers follow commit order per key; a rollback leaves no gap. `with_commit`: nothing but the commit is
        is to follow, so that a store may send both at once; then it is the commit that raises. `numbered`: the rows have the
        number and the lineage that `number` gave them in the same transaction, and their idempotency keys are noted."""
        ...

    async def number(self, tx: Transaction, rows: Sequence[OutboxRow]) -> Sequence[Number]:
        """The first half of `append`, for rows whose bytes depend on their number: notes their idempotency keys and takes their
        numbers, once and for all. The same transaction appends those that are fresh, all of them, with `numbered`."""
        ...

    async def leases(self) -> Sequence[ShardLease]:
        """Every shard by its number, and who holds it, for people."""
        ...

    async def stuck(self, *, after: int = 0, limit: int | None = None) -> Sequence[StuckRow]:
        """Every stuck row by id, those behind `after`, up to `limit`; for people."""
        ...

    async def retry_stuck(self, row_id: int, action: Action | None = None) -> bool:
        """An operator asks for another try now; ends a quarantine. `action` is noted in the same transaction."""
        ...

    async def kept(self, after: int, limit: int) -> Sequence[OutboxRow]:
        """Committed rows that were not purged yet, sent or not, by id, those behind `after`; for people."""
        ...

    async def sent(self, wanted: SentFilter, after: int, limit: int) -> Sequence[OutboxRow]:
        """Rows that the broker has accepted and that were not purged yet, by id, those behind `after`: with the number and the
        lineage that they were sent with, to be sent again. What is stuck was not sent."""
        ...

    async def written(self, ids: Collection[int]) -> Mapping[int, float]:
        """When rows were written, by the store's clock, in seconds since 1970: what is in them says nothing of that. Those that are
        not there are left out."""
        ...

    async def newest(self) -> int:
        """The highest id of the committed rows that are there; 0 when there is none."""
        ...

    async def tail(
        self,
        after: str = "",
        *,
        upto: str = "",
        topics: Collection[str] = (),
        tenant: str | None = None,
        limit: int = 500,
        reach: int = 100_000,
    ) -> Tail:
        """Committed rows behind a position, sent or not: each exactly once, however late its transaction commits. An empty position
        is the end, with no rows. `upto` is where to stop: a `position` that was given later, behind all. Of some topics and one
        tenant, or all. It is `gone` what was purged meanwhile, what lies behind more than about `reach` rows of anybody's, and what
        is no position of this store, of this lineage, or of this run of its server. Holds nobody up, and nobody holds it up."""
        ...

    async def last_number(self, topic: str, tenant: str, key: str) -> tuple[int, int]:
        """The last number that was committed for a key, and the lineage in force; 0 when there is none."""
        ...

    async def purge(self, limit: int, *, keep: float = 0.0, room: int = 0) -> int:
        """Delete up to `limit` rows that every shard has passed and nothing waits for; and forgotten idempotency keys. A
        store may besides empty whole parts of its table at one stroke: those rows are not counted. Rows stay for `keep` seconds
        after they were passed, by the store's clock, or somewhat longer, to be sent again if need be; the oldest go earlier
        when all that is kept for that takes more than about `room` bytes."""
        ...


RelaySource = Literal["poll", "wal"]
"""Where a relay's rows come from: polls of the outbox, or the database's own log."""


class WalReader(OutboxReader, Protocol):
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


def parked(row: OutboxRow) -> StuckRow:
    """A row that waits behind a refused one of its key, and has had no try of its own."""
    return StuckRow(row=row, attempts=0, error="behind a refused event of its key")


def shard_of(tenant: str, key: str, shards: int) -> int:
    """The shard of a key: the same on every machine and in every release."""
    return zlib.crc32(f"{tenant}\x00{key}".encode()) % shards
