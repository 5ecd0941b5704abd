"""Timers: rows that enter the outbox when their time has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock, new_id
from posthouse.store import OutboxRow, Timer, Transaction
from posthouse.store.inbox import drawn_at
from posthouse.store.timers import PUT_BACK, Append
from posthouse.stores.rows import TIMER, timer_columns, timer_of
from posthouse.stores.sqlite.database import Database
from posthouse.stores.sqlite.outbox import SqliteOutbox

# Set a timer, or move and replace the one with its name.
SET = f"""
INSERT INTO posthouse_timer ({TIMER})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, name) DO UPDATE SET due_at = excluded.due_at, topic = excluded.topic, event_id = excluded.event_id,
    key = excluded.key, numbered = excluded.numbered, idempotency_key = excluded.idempotency_key,
    headers = excluded.headers, body = excluded.body
"""

# Cancel a timer.
CANCEL = "DELETE FROM posthouse_timer WHERE tenant = ? AND name = ?"

# The same, while it says this event.
CANCEL_EVENT = f"{CANCEL} AND event_id = ?"

# Let a timer be due.
HASTEN = "UPDATE posthouse_timer SET due_at = min(due_at, ?) WHERE tenant = ? AND name = ?"

# When the next one is due.
NEXT_DUE = "SELECT min(due_at) FROM posthouse_timer"

# Take out what is due.
TAKE = f"""
DELETE FROM posthouse_timer WHERE id IN (
    SELECT id FROM posthouse_timer WHERE due_at <= ? ORDER BY due_at, id LIMIT ?)
RETURNING due_at, id, {TIMER}
"""

# What is not yet due, of one tenant or of all.
PENDING = f"SELECT {TIMER} FROM posthouse_timer WHERE ?1 IS NULL OR tenant = ?1 ORDER BY due_at, id LIMIT ?2"

# One by its name.
GET = f"SELECT {TIMER} FROM posthouse_timer WHERE tenant = ? AND name = ?"


class SqliteTimers:
    """The timers of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock, outbox: SqliteOutbox) -> None:
        self._database = database
        self._clock = clock
        self._outbox = outbox

    async def now(self, tx: Transaction) -> float:
        return self._clock.now()

    async def set(self, tx: Transaction, timer: Timer) -> None:
        due_at = timer.due_at if timer.after is None else self._clock.now() + timer.after
        await tx.execute(SET, (timer.name, due_at, *timer_columns(timer)))

    async def cancel(self, tx: Transaction, tenant: str, name: str, *, event_id: str = "") -> bool:
        if event_id:
            return (await tx.execute(CANCEL_EVENT, (tenant, name, event_id))).rowcount > 0
        return (await tx.execute(CANCEL, (tenant, name))).rowcount > 0

    async def hasten(self, tx: Transaction, tenant: str, name: str) -> bool:
        return (await tx.execute(HASTEN, (self._clock.now(), tenant, name))).rowcount > 0

    async def fire(self, limit: int, append: Append | None = None) -> int:
        seconds = await self.next_due()
        if seconds is None or seconds > 0:
            return 0
        async with self._database.begin() as tx:
            due: Any = sorted(tx.run(TAKE, (self._clock.now(), limit)))
            timers = [timer_of(columns) for _, _, *columns in due]
            rows = [timer.row for timer in timers]
            if append is None:
                await self._outbox.append(tx, [_drawn(row) for row in rows])
                return len(due)
            left = await append(tx, rows)
            for timer in timers:
                if timer.row.event_id in left:
                    await self.set(tx, msgspec.structs.replace(timer, after=PUT_BACK))
        return len(due)

    async def next_due(self) -> float | None:
        due: Any = (await self._database.select(NEXT_DUE)).scalar()
        return None if due is None else float(due) - self._clock.now()

    async def pending(self, tenant: str | None = None, limit: int = 100) -> Sequence[Timer]:
        return [timer_of(columns) for columns in await self._database.select(PENDING, (tenant, limit))]

    async def get(self, tenant: str, name: str) -> Timer | None:
        found = await self._database.select(GET, (tenant, name))
        return timer_of(found[0]) if found else None


def _drawn(row: OutboxRow) -> OutboxRow:
    """A row that gets a number, with an id that is drawn now, so that it is newer than all that got theirs before: that is how
    consumers of a store that was put back tell a number that is given again. The id is a member of the envelope, or a
    header."""
    if row.key is None or not row.numbered or not drawn_at(row.event_id):
        return row
    old, fresh = row.event_id, new_id()
    if row.headers.get("ce-id") == old:
        return msgspec.structs.replace(row, event_id=fresh, headers={**row.headers, "ce-id": fresh})
    for name in ("id", "eventId"):
        before, member, after = row.body.partition(f'"{name}":"{old}"'.encode())
        if member:
            body = b"".join((before, f'"{name}":"{fresh}"'.encode(), after))
            return msgspec.structs.replace(row, event_id=fresh, body=body)
    return row
