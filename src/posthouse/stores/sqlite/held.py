"""Held: what was accepted from the broker and could not be applied, and how many of each key wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.errors import StoreError
from posthouse.store import BLOCKING, HeldEvent, HeldFilter, InboxEntry, Transaction
from posthouse.stores.rows import HELD, held_columns, held_event, packed
from posthouse.stores.sqlite.database import Database

COLUMNS = ", ".join(HELD)

FILTERS = ("consumer", "state", "tenant", "topic", "key", "event_id", "fingerprint", "correlation")
LISTED = "(SELECT value FROM json_each(?))"
"""One of the values of a parameter."""

# Whether this very event is held, in any state.
FIND_ORDERED = """
SELECT 1 FROM posthouse_held WHERE sequence IS NOT NULL
    AND consumer = ? AND topic = ? AND tenant = ? AND key = ? AND sequence = ? AND event_id = ?
"""

# The same for an event that stands alone.
FIND_UNORDERED = "SELECT 1 FROM posthouse_held WHERE sequence IS NULL AND consumer = ? AND tenant = ? AND event_id = ?"

# The event that waits under a number.
WAITING = """
SELECT id, event_id FROM posthouse_held
WHERE consumer = ? AND topic = ? AND tenant = ? AND key = ? AND sequence = ?
    AND sequence IS NOT NULL AND state IN ('retrying', 'gap', 'blocked', 'dead')
"""

# Hold an event.
ADD = f"INSERT INTO posthouse_held ({', '.join(HELD[1:])}) VALUES ({', '.join('?' * len(HELD[1:]))})"

# Count one more, or one less, that keeps a key waiting. A key with no head yet gets one that stands before the first
# number it expects: before this event when the consumer adopts, else at 0.
COUNT_WAITING = """
INSERT INTO posthouse_head (consumer, topic, tenant, key, sequence, lineage, event_id, digest, held)
SELECT ?1, ?2, ?3, ?4,
    CASE WHEN EXISTS (SELECT 1 FROM posthouse_consumer WHERE consumer = ?1 AND topic = ?2 AND adopt) THEN ?5 - 1 ELSE 0 END,
    ?6, '', x'', ?7
WHERE true
ON CONFLICT (consumer, topic, tenant, key) DO UPDATE SET held = held + excluded.held
"""

# Retrying events whose turn it is: the next of their key, or alone.
IN_TURN = """
FROM posthouse_held e LEFT JOIN posthouse_head h
    ON h.consumer = e.consumer AND h.topic = e.topic AND h.tenant = e.tenant AND h.key = e.key
WHERE e.consumer = ? AND e.state = 'retrying' AND (e.sequence IS NULL OR (e.sequence = h.sequence + 1 AND h.replay = ''))
"""

# Which of them are due.
DUE = f"SELECT e.id {IN_TURN} AND e.next_at <= ? ORDER BY e.next_at, e.id LIMIT ?"

# Count the run before it begins, and hide the event for a while.
CLAIM = f"""
UPDATE posthouse_held SET attempts = attempts + 1, turn = turn + 1, next_at = ?, last_at = ? WHERE id = ?
RETURNING {COLUMNS}
"""

# Hide a claimed event a while longer, in its turn.
KEEP = "UPDATE posthouse_held SET next_at = ?, last_at = ? WHERE id = ? AND turn = ? AND state = 'retrying'"

# When something wants attention.
NEXT_DUE = f"""
SELECT min(at) FROM (
    SELECT min(e.next_at) AS at {IN_TURN}
    UNION ALL SELECT min(next_at) FROM posthouse_held WHERE consumer = ? AND state = 'gap' AND next_at > ?)
"""

# Take an event out, in its turn.
REMOVE = "DELETE FROM posthouse_held WHERE id = ? AND turn = ? AND consumer = ? AND event_id = ? RETURNING state"

# The state and the number of an event, in its turn.
STATE = "SELECT state, sequence FROM posthouse_held WHERE id = ? AND turn = ? AND consumer = ? AND event_id = ?"

# Change an event.
CHANGE = """
UPDATE posthouse_held SET state = ?, sequence = ?, attempts = ?, next_at = ?, last_at = ?, headers = ?, body = ?,
    reason = ?, error = ?, stack = ?, fingerprint = ?, turn = turn + 1
WHERE id = ?
"""

# The way is free for the next number.
PROMOTE = """
UPDATE posthouse_held SET state = 'retrying', attempts = 0, next_at = ?, turn = turn + 1
WHERE consumer = ? AND topic = ? AND tenant = ? AND key = ? AND sequence = ?
    AND sequence IS NOT NULL AND state IN ('gap', 'blocked')
"""

# How many keep a key waiting, counted anew.
RECOUNT = """
UPDATE posthouse_head SET held = (SELECT count(*) FROM posthouse_held e
    WHERE e.consumer = posthouse_head.consumer AND e.topic = posthouse_head.topic AND e.tenant = posthouse_head.tenant
        AND e.key = posthouse_head.key AND e.sequence IS NOT NULL AND e.state IN ('retrying', 'gap', 'blocked', 'dead'))
WHERE consumer = ? AND topic = ? AND tenant = ? AND key = ?
"""

# What is due and never in turn.
STRAYS = f"""
SELECT {", ".join(f"e.{column}" for column in HELD)} FROM posthouse_held e LEFT JOIN posthouse_head h
    ON h.consumer = e.consumer AND h.topic = e.topic AND h.tenant = e.tenant AND h.key = e.key
WHERE e.consumer = ? AND e.state = 'retrying' AND e.next_at <= ? AND e.sequence IS NOT NULL
    AND e.sequence IS NOT h.sequence + 1
ORDER BY e.next_at, e.id LIMIT ?
"""

# Gaps that lasted too long.
OVERDUE = f"SELECT {COLUMNS} FROM posthouse_held WHERE consumer = ? AND state = 'gap' AND next_at <= ? ORDER BY next_at, id LIMIT ?"


class SqliteHeld:
    """The held events of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def hold(self, tx: Transaction, event: HeldEvent) -> bool:
        entry = event.entry
        if entry.sequence is None:
            if await tx.execute(FIND_UNORDERED, (event.consumer, entry.tenant, entry.event_id)):
                return False
            await tx.execute(ADD, held_columns(self._begun(event))[1:])
            return True
        if await tx.execute(FIND_ORDERED, (*_number(event), entry.event_id)):
            return False
        if event.state in BLOCKING:
            event = await self._forked(tx, event)
        await tx.execute(ADD, held_columns(self._begun(event))[1:])
        await self._count(tx, event, int(event.state in BLOCKING))
        return True

    def _begun(self, event: HeldEvent) -> HeldEvent:
        """With its times."""
        timed = self._timed(event)
        return timed if timed.first_at else msgspec.structs.replace(timed, first_at=timed.last_at)

    def _timed(self, event: HeldEvent) -> HeldEvent:
        now = self._clock.now()
        next_at = event.next_at if event.after is None else now + event.after
        return msgspec.structs.replace(event, last_at=now, next_at=next_at)

    async def _forked(self, tx: Transaction, event: HeldEvent) -> HeldEvent:
        """The event, or, where another one waits under its number, the same set aside: neither may be lost."""
        other = await tx.execute(WAITING, _number(event))
        if not other:
            return event
        reason = f"fork: event {other.one()[1]} is held under number {event.entry.sequence} already"
        return msgspec.structs.replace(event, state="quarantined", reason=reason, fingerprint="fork")

    async def claim_due(self, consumer: str, limit: int, visibility: float) -> Sequence[HeldEvent]:
        now = self._clock.now()
        if not await self._database.select(DUE, (consumer, now, 1)):
            return []
        async with self._database.begin(books=True) as tx:
            due = tx.run(DUE, (consumer, now, limit))
            return [held_event(tx.run(CLAIM, (now + visibility, now, row[0])).one()) for row in due]

    async def keep(self, events: Sequence[HeldEvent], visibility: float) -> None:
        now = self._clock.now()
        async with self._database.begin(books=True) as tx:
            for event in events:
                tx.run(KEEP, (now + visibility, now, event.id, event.turn))

    async def next_due(self, consumer: str) -> float | None:
        now = self._clock.now()
        due: Any = (await self._database.select(NEXT_DUE, (consumer, consumer, now))).scalar()
        return None if due is None else float(due) - now

    async def remove(self, tx: Transaction, event: HeldEvent) -> bool:
        removed = await tx.execute(REMOVE, _name(event))
        if not removed:
            return False
        await self._count(tx, event, -int(removed.scalar() in BLOCKING))
        return True

    async def change(self, tx: Transaction, event: HeldEvent) -> bool:
        before = await tx.execute(STATE, _name(event))
        if not before:
            return False
        if event.entry.sequence is not None and event.state in BLOCKING:
            await self._refuse_fork(tx, event)
        event = self._timed(event)
        await tx.execute(CHANGE, (
            event.state, event.entry.sequence, event.attempts, event.next_at, event.last_at, packed(event.headers),
            event.body, event.reason, event.error, event.stack, event.fingerprint, event.id,
        ))  # fmt: skip
        state, number = before.one()
        waited = int(state in BLOCKING and number is not None)
        waits = int(event.state in BLOCKING and event.entry.sequence is not None)
        await self._count(tx, _numbered(event, number), waits - waited)
        return True

    async def _refuse_fork(self, tx: Transaction, event: HeldEvent) -> None:
        other = await tx.execute(WAITING, _number(event))
        if other and other.one()[0] != event.id:
            raise StoreError(
                f"event {other.one()[1]} is held under number {event.entry.sequence} of this key: "
                "skip, quarantine or apply that one first"
            )

    async def promote(self, tx: Transaction, consumer: str, entry: InboxEntry) -> bool:
        if entry.sequence is None:
            return False
        following = (consumer, entry.topic, entry.tenant, entry.key, entry.sequence + 1)
        return (await tx.execute(PROMOTE, (self._clock.now(), *following))).rowcount > 0

    async def recount(self, tx: Transaction, consumer: str, entry: InboxEntry) -> None:
        await tx.execute(RECOUNT, (consumer, entry.topic, entry.tenant, entry.key))

    async def find(self, wanted: HeldFilter, *, after: int = 0, limit: int = 100) -> Sequence[HeldEvent]:
        asked, parameters = held_asked(wanted)
        sql = f"SELECT {COLUMNS} FROM posthouse_held WHERE id > ? AND {asked} ORDER BY id LIMIT ?"
        return [held_event(columns) for columns in await self._database.select(sql, (after, *parameters, limit))]

    async def newest(self) -> int:
        (found,) = await self._database.select("SELECT coalesce(max(id), 0) FROM posthouse_held", ())
        return int(str(found[0]))

    async def strays(self, consumer: str, *, limit: int = 100) -> Sequence[HeldEvent]:
        found = await self._database.select(STRAYS, (consumer, self._clock.now(), limit))
        return [held_event(columns) for columns in found]

    async def overdue_gaps(self, consumer: str, *, limit: int = 100) -> Sequence[HeldEvent]:
        overdue = await self._database.select(OVERDUE, (consumer, self._clock.now(), limit))
        return [held_event(columns) for columns in overdue]

    async def _count(self, tx: Transaction, event: HeldEvent, difference: int) -> None:
        """Keep the head's count of waiting events in step."""
        if event.entry.sequence is not None and difference:
            await tx.execute(COUNT_WAITING, (*_number(event), event.entry.lineage, difference))


def held_asked(wanted: HeldFilter) -> tuple[str, Sequence[object]]:
    """What is asked of held events, as a condition with its parameters."""
    given = [(column, value) for column in FILTERS if (value := getattr(wanted, column)) is not None]
    lists = [(column, value) for column, value in (("id", wanted.ids), ("tenant", wanted.tenants)) if value is not None]
    conditions = [f"{column} = ?" for column, _ in given] + [f"{column} IN {LISTED}" for column, _ in lists]
    parameters = [value for _, value in given] + [msgspec.json.encode(list(value)).decode() for _, value in lists]
    return " AND ".join(conditions) or "true", parameters


def _name(event: HeldEvent) -> tuple[object, ...]:
    """In its turn. A file that was copied back may have given its id to another."""
    return event.id, event.turn, event.consumer, event.entry.event_id


def _numbered(event: HeldEvent, number: Any) -> HeldEvent:
    """The event under the number it had, when it has lost it."""
    if event.entry.sequence is not None:
        return event
    return msgspec.structs.replace(event, entry=msgspec.structs.replace(event.entry, sequence=number))


def _number(event: HeldEvent) -> tuple[object, ...]:
    entry = event.entry
    return (event.consumer, entry.topic, entry.tenant, entry.key, entry.sequence)
