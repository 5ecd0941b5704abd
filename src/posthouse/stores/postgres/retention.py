"""Retention: what lies in the tables, and how rows leave that nobody needs any more."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import HeldEvent
from posthouse.store.retention import MOST_COUNTED, Lying, SeenRow
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.rows import HELD, SEEN, held_event, lying_of, seen_of, untyped

# What is where: place, state, how many, age of the oldest, how many may go. Each count ends at so many rows.
LYING = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} AS now), most AS (SELECT $4::bigint AS most)
SELECT 'outbox', '', (SELECT count(*) FROM (SELECT FROM posthouse.outbox LIMIT (SELECT most FROM most)) o),
    now - (SELECT extract(epoch FROM o.written_at)::double precision FROM posthouse.outbox o ORDER BY o.id LIMIT 1), 0
FROM clock
UNION ALL
SELECT 'inbox', '', (SELECT count(*) FROM (SELECT FROM posthouse.inbox LIMIT (SELECT most FROM most)) i),
    now - (SELECT min(i.received_at) FROM posthouse.inbox i),
    (SELECT count(*) FROM (SELECT FROM posthouse.inbox i
        WHERE i.received_at < (SELECT now - $2::double precision FROM clock) LIMIT (SELECT most FROM most)) i)
FROM clock
UNION ALL
SELECT 'held', h.state, count(*), min(now) - min(h.last_at), count(*) FILTER (WHERE h.state = 'skipped' AND h.last_at < now - $3::double precision)
FROM clock, (SELECT state, last_at FROM posthouse.held LIMIT (SELECT most FROM most)) h GROUP BY h.state
UNION ALL
SELECT 'stream', s.state, count(*), NULL, 0
FROM (SELECT state FROM posthouse.stream LIMIT (SELECT most FROM most)) s GROUP BY s.state
"""

# The oldest of the inbox.
OLD_SEEN = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} - $2::double precision AS before)
SELECT {", ".join(SEEN)} FROM posthouse.inbox WHERE received_at < (SELECT before FROM clock)
ORDER BY received_at, tenant, consumer, event_id LIMIT $3
"""

# Forget these, and note how far: whatever is older may have been among them.
FORGET_SEEN = """
WITH gone AS (
    DELETE FROM posthouse.inbox i USING unnest($1::text[], $2::text[], $3::text[], $4::double precision[]) g (consumer, tenant, event_id, received_at)
    WHERE i.consumer = g.consumer AND i.tenant = g.tenant AND i.event_id = g.event_id AND i.received_at = g.received_at
    RETURNING i.consumer, greatest(i.received_at, i.time) AS at
), noted AS (
    INSERT INTO posthouse.forgotten AS f (consumer, until) SELECT consumer, max(at) FROM gone GROUP BY consumer ORDER BY consumer
    ON CONFLICT (consumer) DO UPDATE SET until = greatest(f.until, excluded.until))
SELECT count(*) FROM gone
"""

# Given up longest ago.
OLD_HELD = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} - $2::double precision AS before)
SELECT {", ".join(HELD)} FROM posthouse.held WHERE state = 'skipped' AND last_at < (SELECT before FROM clock)
ORDER BY last_at, id LIMIT $3
"""

# Forget these if they are as they were: they still count as skipped, but for those in which no event could be read.
FORGET_HELD = """
WITH gone AS (
    DELETE FROM posthouse.held h USING unnest($1::bigint[], $2::bigint[], $3::text[]) g (id, turn, event_id)
    WHERE h.id = g.id AND h.turn = g.turn AND h.event_id = g.event_id AND h.state = 'skipped'
    RETURNING h.consumer, h.topic, h.type, h.sequence, h.time
), counted AS (
    INSERT INTO posthouse.applied_count (consumer, topic, applied, skipped)
    SELECT consumer, topic, 0, count(*) FROM gone WHERE type <> '' GROUP BY consumer, topic
), noted AS (
    INSERT INTO posthouse.forgotten AS f (consumer, until)
    SELECT consumer, max(time) FROM gone WHERE sequence IS NULL GROUP BY consumer ORDER BY consumer
    ON CONFLICT (consumer) DO UPDATE SET until = greatest(f.until, excluded.until))
SELECT count(*) FROM gone
"""


class PostgresRetention:
    """What leaves a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def lying(self, *, inbox: float, held: float | None) -> Sequence[Lying]:
        found = await self._database.run(LYING, self._now(), inbox, held, MOST_COUNTED)
        return [lying_of(columns) for columns in found]

    async def old_seen(self, age: float, limit: int) -> Sequence[SeenRow]:
        found = await self._database.run(OLD_SEEN, self._now(), age, limit)
        return [seen_of(columns) for columns in found]

    async def forget_seen(self, rows: Sequence[SeenRow]) -> int:
        columns = [[getattr(row, name) for row in rows] for name in ("consumer", "tenant", "event_id", "received_at")]
        return int(untyped((await self._database.run(FORGET_SEEN, *columns)).scalar()))

    async def old_held(self, age: float, limit: int) -> Sequence[HeldEvent]:
        return [held_event(columns) for columns in await self._database.run(OLD_HELD, self._now(), age, limit)]

    async def forget_held(self, events: Sequence[HeldEvent]) -> int:
        columns = [[e.id for e in events], [e.turn for e in events], [e.entry.event_id for e in events]]
        return int(untyped((await self._database.run(FORGET_HELD, *columns)).scalar()))

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()
