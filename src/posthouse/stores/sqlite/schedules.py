"""Schedules: what runs again and again, and when it does next."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.schedules import ScheduleRow
from posthouse.stores.rows import SCHEDULE, schedule_row
from posthouse.stores.sqlite.database import Database

# Add a schedule that is not there yet.
ADD = f"""
INSERT INTO posthouse_schedule ({SCHEDULE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (service, name) DO NOTHING
"""

# One schedule; whoever has begun to write has it alone.
LOCK = f"SELECT {SCHEDULE}, ?1 FROM posthouse_schedule WHERE service = ?2 AND name = ?3"

# One schedule, if it is due.
LOCK_DUE = f"{LOCK} AND paused_at IS NULL AND next_at <= ?1"

# Store what was decided about a schedule.
SAVE = """
UPDATE posthouse_schedule SET expression = ?3, tz = ?4, next_at = ?5, last_at = ?6, paused_at = ?7, seen_at = ?8
WHERE service = ?1 AND name = ?2
"""

# A run is done.
DONE = """
UPDATE posthouse_schedule SET done_at = ?4, ended_at = ?1
WHERE service = ?2 AND name = ?3 AND (done_at IS NULL OR done_at < ?4)
"""

# Forget a schedule.
REMOVE = "DELETE FROM posthouse_schedule WHERE service = ? AND name = ?"

# Every schedule.
FIND = f"SELECT {SCHEDULE}, ?1 FROM posthouse_schedule ORDER BY service, name"


class SqliteSchedules:
    """The schedules of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, row: ScheduleRow) -> bool:
        added = await tx.execute(ADD, (
            row.service, row.name, row.expression, row.tz, row.next_at, row.last_at, row.done_at, row.ended_at,
            row.paused_at, row.seen_at,
        ))  # fmt: skip
        return added.rowcount > 0

    async def lock(self, tx: Transaction, service: str, name: str, *, due: bool = False) -> ScheduleRow | None:
        found = await tx.execute(LOCK_DUE if due else LOCK, (self._clock.now(), service, name))
        return schedule_row(found[0]) if found else None

    async def save(self, tx: Transaction, row: ScheduleRow) -> None:
        await tx.execute(SAVE, (
            row.service, row.name, row.expression, row.tz, row.next_at, row.last_at, row.paused_at, row.seen_at,
        ))  # fmt: skip

    async def done(self, tx: Transaction, service: str, name: str, moment: float) -> None:
        await tx.execute(DONE, (self._clock.now(), service, name, moment))

    async def remove(self, tx: Transaction, service: str, name: str) -> bool:
        return (await tx.execute(REMOVE, (service, name))).rowcount > 0

    async def find(self) -> Sequence[ScheduleRow]:
        return [schedule_row(columns) for columns in await self._database.select(FIND, (self._clock.now(),))]
