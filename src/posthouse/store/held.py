"""PORT: what could not be applied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from posthouse.store.inbox import InboxEntry
from posthouse.store.transaction import Transaction

HeldState = Literal["retrying", "gap", "blocked", "dead", "quarantined", "skipped"]
"""retrying: runs again at `next_at`. gap: an earlier number is missing. blocked: waits behind an earlier one of its key.
dead: attempts are spent, its key waits for an operator. quarantined: set aside, never run by itself.
skipped: given up, its key went on without it. The first four keep their key waiting."""

BLOCKING: frozenset[HeldState] = frozenset(("retrying", "gap", "blocked", "dead"))


WAITED = "#waited"
"""How the id of an event ends that was delivered before, and waited for its saga since."""


class HeldEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event accepted from the broker but not applied. `attempts` counts runs that were begun, `turn` every change
    of the row: it is the token that fences a worker that was too slow.

    Times are the store's: `next_at` is set to so many seconds `after` the moment of writing, unless that is None;
    `last_at` always, and `first_at` unless there is one.

    `fingerprint` tells alike failures: the type of the error and where the application raised it, or a word for what was
    refused; empty while nothing failed. `correlation` is the story that the event is part of; None where nobody could read it.
    """

    consumer: str
    entry: InboxEntry
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
    after: float | None = None
    fingerprint: str = ""
    correlation: str | None = None


class HeldFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which held events; None means any. `tenants` are those whose events may be seen: of none, nothing."""

    consumer: str | None = None
    state: HeldState | None = None
    tenant: str | None = None
    topic: str | None = None
    key: str | None = None
    event_id: str | None = None
    ids: Sequence[int] | None = None
    tenants: Collection[str] | None = None
    fingerprint: str | None = None
    correlation: str | None = None


class HeldTable(Protocol):
    """One table for retrying, waiting and dead events. Only durations come in, and go out: what is due is decided by the
    store's own clock, because those of the machines that ask may differ."""

    async def hold(self, tx: Transaction, event: HeldEvent) -> bool:
        """Add it. False when this event (ordered: this number with this id; unordered: this id) is held already. When
        another event waits under its number it is added as quarantined, whatever its state says: a fork."""
        ...

    async def claim_due(self, consumer: str, limit: int, visibility: float) -> Sequence[HeldEvent]:
        """Retrying events whose time has come, oldest first, at most one per key, with attempts and turn already
        counted up and `next_at` moved `visibility` seconds ahead: if the caller dies they come again."""
        ...

    async def keep(self, events: Sequence[HeldEvent], visibility: float) -> None:
        """Go on with claimed events: `next_at` moves `visibility` seconds ahead of now, turn and attempts stay. Those whose turn
        has passed are left alone, and so are those that a transaction is about to change: nobody waits for it."""
        ...

    async def next_due(self, consumer: str) -> float | None:
        """In how many seconds the next retrying event whose turn it is wants attention, or the next gap event whose deadline
        has not passed yet; not above 0 when it has become due meanwhile, or somebody is about to change it."""
        ...

    async def remove(self, tx: Transaction, event: HeldEvent) -> bool:
        """Take it out because it was applied. False when its turn has passed to someone else, or its id is that of another
        event by now."""
        ...

    async def change(self, tx: Transaction, event: HeldEvent) -> bool:
        """Store state, attempts, times, headers, body, reason, error, stack, fingerprint as given. False as in `remove`.
        An event out of line may lose its number, to run as one that stands alone. StoreError when it would keep its key
        waiting under a number that another event waits under."""
        ...

    async def promote(self, tx: Transaction, consumer: str, entry: InboxEntry) -> bool:
        """`entry` is out of the way: the held event with the next number of its key becomes retrying, due now, with
        no attempts. True when there was one."""
        ...

    async def recount(self, tx: Transaction, consumer: str, entry: InboxEntry) -> None:
        """Count anew how many keep the key of `entry` waiting: somebody has changed the key or the number of a row by hand, and what is
        counted up and down does not tell any more."""
        ...

    async def find(self, wanted: HeldFilter, *, after: int = 0, limit: int = 100) -> Sequence[HeldEvent]:
        """Held events by id."""
        ...

    async def newest(self) -> int:
        """The highest id of those that are there; 0 when there is none."""
        ...

    async def strays(self, consumer: str, *, limit: int = 100) -> Sequence[HeldEvent]:
        """Retrying events that are due, and whose number is not the next of their key: nobody claims them. There are none, unless
        somebody changed their rows, or that of the key."""
        ...

    async def overdue_gaps(self, consumer: str, *, limit: int = 100) -> Sequence[HeldEvent]:
        """Gap events whose `next_at` (the deadline of the gap) has passed, those first that have waited longest: they are for an
        alarm."""
        ...
