"""Replays: what is put aside to be applied again, and the keys that are closed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.replays import Line, Said, Staged, Standing
from posthouse.stores.rows import STAGED, line_of, staged_columns, staged_event, standing_of
from posthouse.stores.sqlite.database import Database, SqliteTransaction, own

OF_LINE = "job = ?1 AND topic = ?2 AND tenant = ?3 AND key = ?4 AND (sequence > 0) = ?5"

# Put one aside.
STAGE = f"""
INSERT INTO posthouse_replay_event ({STAGED}) VALUES ({", ".join("?" * len(STAGED.split(", ")))}) ON CONFLICT DO NOTHING
"""

# All were put aside.
COMPLETE = """
INSERT INTO posthouse_replay (job, staged, left_out)
SELECT ?1, (SELECT count(*) FROM posthouse_replay_event WHERE job = ?1), ?2 WHERE true ON CONFLICT DO NOTHING
"""

# How far it is.
STANDING = """
SELECT r.staged, r.left_out, (SELECT count(*) FROM posthouse_replay_event e WHERE e.job = r.job),
    (SELECT count(*) FROM posthouse_replay_event e WHERE e.job = r.job AND e.error <> ''),
    (SELECT min(e.error) FROM posthouse_replay_event e WHERE e.job = r.job AND e.error <> '')
FROM posthouse_replay r WHERE r.job = ?
"""

# Lines in one order, behind one.
LINES = """
SELECT topic, tenant, key, sequence > 0 AS ordered FROM posthouse_replay_event
WHERE job = ?1 AND (?2 IS NULL OR (topic, tenant, key, sequence > 0) > (?2, ?3, ?4, ?5))
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT ?6
"""

# What is left of one, behind one of its events.
EVENTS = f"""
SELECT {STAGED} FROM posthouse_replay_event
WHERE {OF_LINE} AND (sequence, lineage, event_id) > (?6, ?7, ?8) ORDER BY sequence, lineage, event_id LIMIT ?9
"""

# Whether a job is its owner's.
OWNED = "SELECT 1 FROM posthouse_job WHERE id = ? AND token = ? AND state = 'running'"

# Close a key, as long as the job is its owner's.
CLOSE = """
UPDATE posthouse_head SET held = held + (replay = ''), replay = ?5 || ':' || ?6
WHERE consumer = ?1 AND topic = ?2 AND tenant = ?3 AND key = ?4 AND (replay = '' OR replay LIKE ?5 || ':%')
    AND EXISTS (SELECT 1 FROM posthouse_job WHERE id = ?5 AND token = ?6 AND state = 'running')
"""

# Deal with an event.
TAKE = """
DELETE FROM posthouse_replay_event WHERE job = ?1 AND topic = ?2 AND tenant = ?3 AND event_id = ?4
    AND (?5 IS NULL OR EXISTS (SELECT 1 FROM posthouse_head
        WHERE consumer = ?5 AND topic = ?2 AND tenant = ?3 AND key = ?6 AND replay = ?7))
"""

# Open a key.
OPEN = """
UPDATE posthouse_head SET held = held - 1, replay = ''
WHERE consumer = ?1 AND topic = ?2 AND tenant = ?3 AND key = ?4 AND replay = ?5 || ':' || ?6
"""

# What was learnt of an event.
NOTE = """
UPDATE posthouse_replay_event SET attempts = ?, error = ? WHERE job = ? AND topic = ? AND tenant = ? AND event_id = ?
"""

# A fact that was said.
REMEMBER = """
INSERT INTO posthouse_idempotency (tenant, topic, idempotency_key, event_id, until) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (tenant, topic, idempotency_key) DO UPDATE SET until = max(until, excluded.until)
"""

# A job ends: whatever waits next in a key that it has closed is due …
PROMOTE = """
UPDATE posthouse_held SET state = 'retrying', attempts = 0, turn = turn + 1, next_at = ?2 WHERE id IN (
    SELECT e.id FROM posthouse_head h JOIN posthouse_held e ON e.consumer = h.consumer AND e.topic = h.topic
        AND e.tenant = h.tenant AND e.key = h.key AND e.sequence = h.sequence + 1
    WHERE h.replay LIKE ?1 || ':%' AND e.state IN ('gap', 'blocked'))
"""

# … where something is missing before what waits, somebody is to be told …
MISS = """
UPDATE posthouse_held SET state = 'gap', turn = turn + 1, next_at = ?2 WHERE state = 'blocked' AND id IN (
    SELECT (SELECT e.id FROM posthouse_held e WHERE e.consumer = h.consumer AND e.topic = h.topic AND e.tenant = h.tenant
        AND e.key = h.key AND e.sequence IS NOT NULL AND e.state IN ('retrying', 'gap', 'blocked', 'dead')
        ORDER BY e.sequence LIMIT 1)
    FROM posthouse_head h WHERE h.replay LIKE ?1 || ':%')
"""

# … the keys are open, and nothing is left.
OPEN_ALL = "UPDATE posthouse_head SET held = held - 1, replay = '' WHERE replay LIKE ? || ':%'"
FORGET = ("DELETE FROM posthouse_replay_event WHERE job = ?", "DELETE FROM posthouse_replay WHERE job = ?")


class SqliteReplays:
    """The replays of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def owns(self, tx: Transaction, job: str, token: int) -> bool:
        return bool(own(tx).run(OWNED, (job, token)))

    async def stage(self, tx: Transaction, events: Sequence[Staged]) -> None:
        own(tx).run_many(STAGE, map(staged_columns, events))

    async def staged(self, tx: Transaction, job: str, left_out: int) -> Standing:
        own(tx).run(COMPLETE, (job, left_out))
        return standing_of(own(tx).run(STANDING, (job,)).one())

    async def standing(self, job: str) -> Standing | None:
        found = await self._database.select(STANDING, (job,))
        return standing_of(found.one()) if found else None

    async def forget(self, tx: Transaction, job: str) -> None:
        for statement in FORGET:
            own(tx).run(statement, (job,))

    async def lines(self, job: str, after: Line | None, limit: int) -> Sequence[Line]:
        return [line_of(row) for row in await self._database.select(LINES, (job, *(after or (None,) * 4), limit))]

    async def of_line(self, job: str, line: Line, after: Staged | None, limit: int) -> Sequence[Staged]:
        place = (-1, 0, "") if after is None else (after.sequence, after.lineage, after.event_id)
        return [staged_event(row) for row in await self._database.select(EVENTS, (job, *line, *place, limit))]

    async def close(self, tx: Transaction, consumer: str, line: Line, job: str, token: int) -> bool:
        return bool(own(tx).run(CLOSE, (consumer, line.topic, line.tenant, line.key, job, token)).rowcount)

    async def take(self, tx: Transaction, consumer: str, staged: Staged, token: int | None) -> bool:
        whose = None if token is None else consumer
        place = (staged.job, staged.topic, staged.tenant, staged.event_id)
        return bool(own(tx).run(TAKE, (*place, whose, staged.key, f"{staged.job}:{token}")).rowcount)

    async def open(self, tx: Transaction, consumer: str, line: Line, job: str, token: int) -> bool:
        return bool(own(tx).run(OPEN, (consumer, line.topic, line.tenant, line.key, job, token)).rowcount)

    async def note(self, staged: Staged) -> None:
        place = (staged.job, staged.topic, staged.tenant, staged.event_id)
        async with self._database.begin(books=True) as tx:
            tx.run(NOTE, (staged.attempts, staged.error, *place))

    async def remember(self, facts: Sequence[Said], seconds: float) -> None:
        until = self._clock.now() + seconds
        async with self._database.begin(books=True) as tx:
            tx.run_many(REMEMBER, [(*fact, until) for fact in facts])


def release(tx: SqliteTransaction, job: str, now: float) -> None:
    """A job has ended: it holds nothing any more."""
    tx.run(PROMOTE, (job, now))
    tx.run(MISS, (job, now))
    tx.run(OPEN_ALL, (job,))
    for statement in FORGET:
        tx.run(statement, (job,))
