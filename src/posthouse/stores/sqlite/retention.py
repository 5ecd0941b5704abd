"""Retention: what lies in the tables, and how rows leave that nobody needs any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from posthouse.clock import Clock
from posthouse.store import HeldEvent
from posthouse.store.retention import MOST_COUNTED, Lying, SeenRow
from posthouse.stores.rows import HELD, SEEN, held_event, lying_of, seen_of
from posthouse.stores.sqlite.database import Database
from posthouse.stores.sqlite.inbox import FORGET

# What is where: place, state, how many, age of the oldest, how many may go. Each count ends at so many rows.
LYING = """
SELECT 'outbox', '', (SELECT count(*) FROM (SELECT 1 FROM posthouse_outbox LIMIT ?4)),
    ?1 - (SELECT written_at FROM posthouse_outbox ORDER BY id LIMIT 1), 0
UNION ALL
SELECT 'inbox', '', (SELECT count(*) FROM (SELECT 1 FROM posthouse_inbox LIMIT ?4)),
    ?1 - (SELECT min(received_at) FROM posthouse_inbox),
    (SELECT count(*) FROM (SELECT 1 FROM posthouse_inbox WHERE received_at < ?1 - ?2 LIMIT ?4))
UNION ALL
SELECT 'held', state, count(*), ?1 - min(last_at), count(*) FILTER (WHERE state = 'skipped' AND last_at < ?1 - ?3)
FROM (SELECT state, last_at FROM posthouse_held LIMIT ?4) GROUP BY state
UNION ALL
SELECT 'stream', state, count(*), NULL, 0 FROM (SELECT state FROM posthouse_stream LIMIT ?4) GROUP BY state
"""

# The oldest of the inbox.
OLD_SEEN = f"""
SELECT {", ".join(SEEN)} FROM posthouse_inbox WHERE received_at < ?
ORDER BY received_at, tenant, consumer, event_id LIMIT ?
"""

# Forget one of these.
FORGET_SEEN = "DELETE FROM posthouse_inbox WHERE consumer = ? AND tenant = ? AND event_id = ? AND received_at = ?"

# Given up longest ago.
OLD_HELD = f"""
SELECT {", ".join(HELD)} FROM posthouse_held WHERE state = 'skipped' AND last_at < ? ORDER BY last_at, id LIMIT ?
"""

# Forget one if it is as it was.
FORGET_HELD = "DELETE FROM posthouse_held WHERE id = ? AND turn = ? AND event_id = ? AND state = 'skipped'"

# It still counts as skipped.
SKIPPED = """
INSERT INTO posthouse_applied (consumer, topic, applied, skipped) VALUES (?, ?, 0, ?)
ON CONFLICT (consumer, topic) DO UPDATE SET skipped = skipped + excluded.skipped
"""


class SqliteRetention:
    """What leaves a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def lying(self, *, inbox: float, held: float | None) -> Sequence[Lying]:
        asked = (self._clock.now(), inbox, held, MOST_COUNTED)
        return [lying_of(columns) for columns in await self._database.select(LYING, asked)]

    async def old_seen(self, age: float, limit: int) -> Sequence[SeenRow]:
        found = await self._database.select(OLD_SEEN, (self._clock.now() - age, limit))
        return [seen_of(columns) for columns in found]

    async def forget_seen(self, rows: Sequence[SeenRow]) -> int:
        gone = 0
        async with self._database.begin(books=True) as tx:
            for row in rows:
                gone += tx.run(FORGET_SEEN, (row.consumer, row.tenant, row.event_id, row.received_at)).rowcount
            tx.run_many(FORGET, _latest((row.consumer, max(row.received_at, row.time)) for row in rows))
        return gone

    async def old_held(self, age: float, limit: int) -> Sequence[HeldEvent]:
        found = await self._database.select(OLD_HELD, (self._clock.now() - age, limit))
        return [held_event(columns) for columns in found]

    async def forget_held(self, events: Sequence[HeldEvent]) -> int:
        gone: list[HeldEvent] = []
        async with self._database.begin(books=True) as tx:
            for event in events:
                if tx.run(FORGET_HELD, (event.id, event.turn, event.entry.event_id)).rowcount == 1:
                    gone.append(event)
            counted = Counter((event.consumer, event.entry.topic) for event in gone if event.type)
            tx.run_many(SKIPPED, [(*of, number) for of, number in counted.items()])
            tx.run_many(FORGET, _latest((e.consumer, e.entry.time) for e in gone if e.entry.sequence is None))
        return len(gone)


def _latest(times: Iterable[tuple[str, float]]) -> list[tuple[object, ...]]:
    latest: dict[str, float] = {}
    for consumer, at in times:
        latest[consumer] = max(at, latest.get(consumer, at))
    return list(latest.items())
