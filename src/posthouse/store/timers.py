"""PORT: what is due later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

import msgspec

from posthouse.store.outbox import OutboxRow
from posthouse.store.transaction import Transaction

Append = Callable[[Transaction, Sequence[OutboxRow]], Awaitable[Collection[str]]]
"""Adds the rows of due timers to the outbox, and returns the event ids of those that cannot go out now: their timers are put back. It may
run again when somebody held a key or an intent of theirs."""
PUT_BACK = 30.0
"""Seconds after which a timer is due again that could not go out."""


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """An outbox row that enters the outbox at `due_at`, or so many seconds `after` it is set: then the store's clock
    decides, and `due_at` is what the sender's said. `name` is unique per tenant and cancels it."""

    name: str
    due_at: float
    row: OutboxRow
    after: float | None = None


class TimerTable(Protocol):
    """Rows with a due time by the store's clock."""

    async def now(self, tx: Transaction) -> float:
        """What that clock says, in seconds since 1970."""
        ...

    async def set(self, tx: Transaction, timer: Timer) -> None:
        """Add it, or move and replace the one with the same (tenant, name)."""
        ...

    async def cancel(self, tx: Transaction, tenant: str, name: str, *, event_id: str = "") -> bool:
        """Remove it; False when it has fired or never was, or says another event than this one."""
        ...

    async def hasten(self, tx: Transaction, tenant: str, name: str) -> bool:
        """Let it be due now; False when it has fired or never was."""
        ...

    async def fire(self, limit: int, append: Append | None = None) -> int:
        """Move due timers into the outbox, each exactly once however many schedulers ask. Returns how many it dealt with. Where a row
        gets a number, the UUIDv7 of its event is drawn anew, in the row and in its envelope: an id is never older than the ids
        of lower numbers because it waited. `append` does both instead: it is given the rows as they were set, in the
        transaction that removes their timers, and those that it leaves wait for another `PUT_BACK`."""
        ...

    async def next_due(self) -> float | None:
        """In how many seconds the next one is due, by the store's clock; not above 0 when it is."""
        ...

    async def pending(self, tenant: str | None = None, limit: int = 100) -> Sequence[Timer]:
        """Timers not yet fired, soonest first."""
        ...

    async def get(self, tenant: str, name: str) -> Timer | None:
        """One that has not fired yet, by its name."""
        ...
