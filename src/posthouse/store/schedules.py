"""PORT: what runs again and again, and when it does next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from posthouse.store.transaction import Transaction


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of a service, as it was adopted last. Moments are seconds since 1970, by the store's clock; None: not yet.

    `next_at` is the moment that comes next, `last_at` the one for which a run was begun last, `done_at` the latest one whose
    run was done, and `ended_at` when that was. `seen_at` is when a process that has it like this last said so.
    """

    service: str
    name: str
    expression: str
    tz: str
    next_at: float
    last_at: float | None = None
    done_at: float | None = None
    ended_at: float | None = None
    paused_at: float | None = None
    """Since when nothing runs; None: it runs."""
    seen_at: float = 0.0
    now: float = 0.0
    """What the store's clock said when the row was read."""

    @property
    def due_in(self) -> float:
        """Seconds until the next moment; not above 0 when it has come."""
        return self.next_at - self.now


class ScheduleTable(Protocol):
    """Rows of schedules, one per (service, name)."""

    async def add(self, tx: Transaction, row: ScheduleRow) -> bool:
        """Add it. False, and no effect, when there is one; waits for a transaction that is adding the same."""
        ...

    async def lock(self, tx: Transaction, service: str, name: str, *, due: bool = False) -> ScheduleRow | None:
        """The row, locked until `tx` ends; None when there is none. With `due`, only one that is due, not paused and in
        nobody's hands: never waits then."""
        ...

    async def save(self, tx: Transaction, row: ScheduleRow) -> None:
        """Store the row as given, but for what `done` notes."""
        ...

    async def done(self, tx: Transaction, service: str, name: str, moment: float) -> None:
        """The run for a moment is done. A row that is gone is no error; an earlier moment than the noted one changes
        nothing."""
        ...

    async def remove(self, tx: Transaction, service: str, name: str) -> bool:
        """Forget it; False when there is none."""
        ...

    async def find(self) -> Sequence[ScheduleRow]:
        """Every row, by service and name."""
        ...
