"""Replays: what is put aside to be applied again, and the keys that are closed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.replays import Line, Said, Staged, Standing
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.postgres.transaction import own
from posthouse.stores.rows import STAGED, line_of, staged_columns, staged_event, standing_of

OF_LINE = "job = $1 AND topic = $2 AND tenant = $3 AND key = $4 AND (sequence > 0) = $5"

# Put some aside.
STAGE = f"""
INSERT INTO posthouse.replay_event ({STAGED})
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::integer[],
    $8::double precision[], $9::text[], $10::bytea[], $11::boolean[], $12::integer[], $13::text[]) ON CONFLICT DO NOTHING
"""

# How far it is.
STANDING = """
SELECT r.staged, r.left_out, (SELECT count(*) FROM posthouse.replay_event e WHERE e.job = r.job),
    (SELECT count(*) FROM posthouse.replay_event e WHERE e.job = r.job AND e.error <> ''),
    (SELECT min(e.error) FROM posthouse.replay_event e WHERE e.job = r.job AND e.error <> '')
FROM posthouse.replay r WHERE r.job = $1
"""

# All were put aside.
COMPLETE = """
INSERT INTO posthouse.replay (job, staged, left_out)
SELECT $1, (SELECT count(*) FROM posthouse.replay_event e WHERE e.job = $1), $2 ON CONFLICT DO NOTHING
"""

FORGET_EVENTS = "DELETE FROM posthouse.replay_event WHERE job = $1"
FORGET = "DELETE FROM posthouse.replay WHERE job = $1"

# Lines in one order, behind one.
LINES = """
SELECT topic, tenant, key, sequence > 0 FROM posthouse.replay_event
WHERE job = $1 AND ($2::text IS NULL OR (topic, tenant, key, sequence > 0) > ($2, $3::text, $4::text, $5::boolean))
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT $6
"""

# What is left of one, behind one of its events.
EVENTS = f"""
SELECT {STAGED} FROM posthouse.replay_event
WHERE {OF_LINE} AND (sequence, lineage, event_id) > ($6, $7, $8) ORDER BY sequence, lineage, event_id LIMIT $9
"""

# Close a key, as long as the job is its owner's: whoever ends the job waits for this, or this finds it ended.
OWNED = "SELECT 1 FROM posthouse.job WHERE id = $1 AND token = $2 AND state = 'running' FOR SHARE"
CLOSE = """
UPDATE posthouse.head SET held = held + (replay = '')::integer, replay = $5::text || ':' || $6::bigint
WHERE consumer = $1 AND topic = $2 AND tenant = $3 AND key = $4 AND (replay = '' OR replay LIKE $5 || ':%')
"""

# Deal with an event, in no order …
TAKE = "DELETE FROM posthouse.replay_event WHERE job = $1 AND topic = $2 AND tenant = $3 AND event_id = $4"

# … or of a key that its owner has closed.
TAKE_CLOSED = f"""
{TAKE} AND EXISTS (SELECT 1 FROM posthouse.head h
    WHERE h.consumer = $5 AND h.topic = $2 AND h.tenant = $3 AND h.key = $6 AND h.replay = $7)
"""

# Open a key.
OPEN = """
UPDATE posthouse.head SET held = held - 1, replay = ''
WHERE consumer = $1 AND topic = $2 AND tenant = $3 AND key = $4 AND replay = $5::text || ':' || $6::bigint
"""

# What was learnt of an event.
NOTE = """
UPDATE posthouse.replay_event SET attempts = $5, error = $6 WHERE job = $1 AND topic = $2 AND tenant = $3 AND event_id = $4
"""

# Facts that were said.
REMEMBER = f"""
INSERT INTO posthouse.idempotency AS i (tenant, topic, idempotency_key, event_id, until)
SELECT DISTINCT ON (g.tenant, g.topic, g.intent) g.tenant, g.topic, g.intent, g.event_id, {NOW} + $2::double precision
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[]) AS g (tenant, topic, intent, event_id)
ORDER BY g.tenant, g.topic, g.intent
ON CONFLICT (tenant, topic, idempotency_key) DO UPDATE SET until = greatest(i.until, excluded.until)
"""


class PostgresReplays:
    """The replays of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def owns(self, tx: Transaction, job: str, token: int) -> bool:
        return bool(await own(tx).run(OWNED, job, token))

    async def stage(self, tx: Transaction, events: Sequence[Staged]) -> None:
        if events:
            columns = zip(*map(staged_columns, events), strict=True)
            await own(tx).run(STAGE, *map(list, columns))

    async def staged(self, tx: Transaction, job: str, left_out: int) -> Standing:
        await own(tx).run(COMPLETE, job, left_out)
        return standing_of((await own(tx).run(STANDING, job)).one())

    async def standing(self, job: str) -> Standing | None:
        found = await self._database.run(STANDING, job)
        return standing_of(found.one()) if found else None

    async def forget(self, tx: Transaction, job: str) -> None:
        await own(tx).run(FORGET_EVENTS, job)
        await own(tx).run(FORGET, job)

    async def lines(self, job: str, after: Line | None, limit: int) -> Sequence[Line]:
        return [line_of(row) for row in await self._database.run(LINES, job, *(after or (None,) * 4), limit)]

    async def of_line(self, job: str, line: Line, after: Staged | None, limit: int) -> Sequence[Staged]:
        place = (-1, 0, "") if after is None else (after.sequence, after.lineage, after.event_id)
        return [staged_event(row) for row in await self._database.run(EVENTS, job, *line, *place, limit)]

    async def close(self, tx: Transaction, consumer: str, line: Line, job: str, token: int) -> bool:
        if not await self.owns(tx, job, token):
            return False
        return bool((await own(tx).run(CLOSE, consumer, line.topic, line.tenant, line.key, job, token)).rowcount)

    async def take(self, tx: Transaction, consumer: str, staged: Staged, token: int | None) -> bool:
        place = (staged.job, staged.topic, staged.tenant, staged.event_id)
        if token is None:
            return bool((await own(tx).run(TAKE, *place)).rowcount)
        return bool((await own(tx).run(TAKE_CLOSED, *place, consumer, staged.key, f"{staged.job}:{token}")).rowcount)

    async def open(self, tx: Transaction, consumer: str, line: Line, job: str, token: int) -> bool:
        return bool((await own(tx).run(OPEN, consumer, line.topic, line.tenant, line.key, job, token)).rowcount)

    async def note(self, staged: Staged) -> None:
        place = (staged.job, staged.topic, staged.tenant, staged.event_id)
        await self._database.run(NOTE, *place, staged.attempts, staged.error)

    async def remember(self, facts: Sequence[Said], seconds: float) -> None:
        if facts:
            now = None if self._clock is None else self._clock.now()
            await self._database.run(REMEMBER, now, seconds, *map(list, zip(*facts, strict=True)))
