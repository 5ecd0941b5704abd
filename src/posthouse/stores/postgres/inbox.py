"""Inbox: who has seen what. One head row per key for ordered consumers, one row per event for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.clock import Clock
from posthouse.store import Arrival, Head, Known, Transaction
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW, literal
from posthouse.stores.postgres.transaction import Begun, PostgresTransaction, own

# What a consumer does with the first number of a key; the first answer stays, and comes back.
REGISTER = """
INSERT INTO posthouse.consumer AS c (consumer, topic, adopt) VALUES ($1, $2, $3)
ON CONFLICT (consumer, topic) DO UPDATE SET adopt = c.adopt RETURNING adopt
"""

# Record one event, or one run of a key, as applied.
CLAIM = "SELECT posthouse.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"

# The same as the first words of a transaction, without parameters: one row if it was done.
CLAIM_FIRST = "SELECT 1 WHERE posthouse.claim"

# The same for several, one after the other.
CLAIM_MANY = """
SELECT posthouse.claim($1, g.topic, g.tenant, g.key, g.first, g.last, g.lineage, g.event, g.digest, g.time, $11)
FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::integer[], $8::text[], $9::bytea[],
    $10::double precision[]) AS g (topic, tenant, key, first, last, lineage, event, digest, time)
"""

# Advance a key whatever is held, never backwards but into a newer lineage.
ADVANCE_ORDERED = """
WITH advanced AS (
    INSERT INTO posthouse.head AS h (consumer, topic, tenant, key, sequence, lineage, event_id, digest)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (consumer, topic, tenant, key) DO UPDATE
    SET sequence = excluded.sequence, lineage = excluded.lineage, event_id = excluded.event_id, digest = excluded.digest
    WHERE excluded.sequence > h.sequence OR excluded.lineage > h.lineage)
INSERT INTO posthouse.tally (consumer, topic, applied, skipped)
SELECT $1, $2, $9::integer, $10::integer WHERE $9 + $10 > 0
"""

# Remember an unordered event, whatever is held.
ADVANCE_UNORDERED = f"""
WITH advanced AS (
    INSERT INTO posthouse.inbox (consumer, tenant, event_id, topic, digest, time, received_at, result)
    VALUES ($2, $3, $4, $5, $6, $7, {NOW}, CASE WHEN $9::integer > 0 THEN 'skipped' ELSE 'applied' END)
    ON CONFLICT DO NOTHING RETURNING 1)
INSERT INTO posthouse.tally (consumer, topic, applied, skipped)
SELECT $2, $5, $8::integer, $9 FROM advanced WHERE $8 + $9 > 0
"""

# Where a key stands, and the lowest number that waits behind it.
HEAD = "SELECT * FROM posthouse.standing($1, $2, $3, $4)"

# What is remembered of an unordered event, or held of it.
KNOWN = """
SELECT digest FROM posthouse.inbox WHERE consumer = $1 AND tenant = $2 AND event_id = $3
UNION ALL
SELECT digest FROM posthouse.held WHERE sequence IS NULL AND consumer = $1 AND tenant = $2 AND event_id = $3
LIMIT 1
"""

# How far a consumer has forgotten.
FORGOTTEN = "SELECT until FROM posthouse.forgotten WHERE consumer = $1"

# Forget the oldest, and note how far.
PURGE = """
WITH gone AS (
    DELETE FROM posthouse.inbox WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM posthouse.inbox i WHERE i.received_at < $1
        ORDER BY i.received_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING consumer, time
), noted AS (
    INSERT INTO posthouse.forgotten AS f (consumer, until)
    SELECT consumer, max(time) FROM gone GROUP BY consumer ORDER BY consumer
    ON CONFLICT (consumer) DO UPDATE SET until = greatest(f.until, excluded.until))
SELECT count(*) FROM gone
"""

# Clear away the lines of the tally and keep their sum.
SUM_UP = """
WITH gone AS (
    DELETE FROM posthouse.tally WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM posthouse.tally t LIMIT $1 FOR UPDATE SKIP LOCKED))
    RETURNING consumer, topic, applied, skipped)
INSERT INTO posthouse.applied AS a (consumer, topic, applied, skipped)
SELECT consumer, topic, sum(applied), sum(skipped) FROM gone GROUP BY consumer, topic ORDER BY consumer, topic
ON CONFLICT (consumer, topic) DO UPDATE
SET applied = a.applied + excluded.applied, skipped = a.skipped + excluded.skipped
"""


class PostgresInbox:
    """The inbox of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def register(self, consumer: str, topic: str, adopt: bool) -> bool:
        return bool((await self._database.run(REGISTER, consumer, topic, adopt)).scalar())

    async def claim(self, tx: Transaction, consumer: str, arrivals: Sequence[Arrival]) -> Sequence[bool]:
        now = None if self._clock is None else self._clock.now()
        if len(arrivals) == 1:
            return [await self._claim_one(own(tx), (consumer, *_claimed(arrivals), now))]
        runs = _runs(arrivals)
        columns = zip(*(_claimed([arrivals[place] for place in run]) for run in runs), strict=True)
        rows = await own(tx).run(CLAIM_MANY, consumer, *columns, now)
        answers = [False] * len(arrivals)
        for run, (claimed,) in zip(runs, rows, strict=True):
            for place in run:
                answers[place] = bool(claimed)
        return answers

    async def _claim_one(self, tx: Begun, parameters: Sequence[object]) -> bool:
        if isinstance(tx, PostgresTransaction) and tx.unbegun and "\x00" not in str(parameters):
            called = f"{self._database.text(CLAIM_FIRST)}({', '.join(map(literal, parameters))})"
            return await tx.begin_with(called) == "SELECT 1"
        return bool((await tx.run(CLAIM, *parameters)).scalar())

    async def standing(self, tx: Transaction, consumer: str, arrival: Arrival) -> Head | Known | None:
        if arrival.sequence is None:
            known = await own(tx).run(KNOWN, consumer, arrival.tenant, arrival.event_id)
            return Known(digest=_any(known.scalar())) if known else None
        rows = await own(tx).run(HEAD, consumer, arrival.topic, arrival.tenant, arrival.key)
        if not rows:
            return None
        sequence, lineage, event_id, digest, waiting, waiting_id = _any(rows.one())
        return Head(
            sequence=sequence,
            lineage=lineage,
            event_id=event_id,
            digest=digest,
            waiting=waiting,
            waiting_id=waiting_id,
        )

    async def advance(
        self, tx: Transaction, consumer: str, arrival: Arrival, *, skipped: bool = False, counted: bool = True
    ) -> None:
        figures = (int(counted and not skipped), int(counted and skipped))
        if arrival.sequence is not None:
            await own(tx).run(ADVANCE_ORDERED, *_head_columns(consumer, arrival), *figures)
        else:
            await own(tx).run(ADVANCE_UNORDERED, *self._inbox_columns(consumer, arrival), *figures)

    async def purged_until(self, consumer: str) -> float | None:
        rows = await self._database.run(FORGOTTEN, consumer)
        return _any(rows.scalar()) if rows else None

    async def purge(self, before: float, limit: int) -> int:
        await self._database.run(SUM_UP, limit)
        return int(_any((await self._database.run(PURGE, before, limit)).scalar()))

    def _inbox_columns(self, consumer: str, arrival: Arrival) -> tuple[object, ...]:
        now = None if self._clock is None else self._clock.now()
        return (now, consumer, arrival.tenant, arrival.event_id, arrival.topic, arrival.digest, arrival.time)


def _runs(arrivals: Sequence[Arrival]) -> list[list[int]]:
    """Their places: those of one key whose numbers follow each other together, the others alone. Sorted, so that two
    transactions that claim the same events wait for each other in one order."""
    runs: list[list[int]] = []
    for place in sorted(range(len(arrivals)), key=lambda place: _line(arrivals[place])):
        if runs and _follows(arrivals[place], arrivals[runs[-1][-1]]):
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _line(one: Arrival) -> tuple[str, str, str, str]:
    return (one.topic, one.tenant, one.key or "", one.event_id if one.sequence is None else "")


def _follows(one: Arrival, before: Arrival) -> bool:
    return (
        one.sequence is not None
        and before.sequence is not None
        and one.sequence == before.sequence + 1
        and (one.key, one.tenant, one.topic, one.lineage) == (before.key, before.tenant, before.topic, before.lineage)
    )


def _claimed(run: Sequence[Arrival]) -> tuple[object, ...]:
    """What a claim of a run says."""
    first, last = run[0], run[-1]
    return (
        last.topic,
        last.tenant,
        last.key,
        first.sequence,
        last.sequence,
        last.lineage,
        last.event_id,
        last.digest,
        last.time,
    )


def _head_columns(consumer: str, arrival: Arrival) -> tuple[object, ...]:
    """A head row that says: this event was the last."""
    return (
        consumer,
        arrival.topic,
        arrival.tenant,
        arrival.key,
        arrival.sequence,
        arrival.lineage,
        arrival.event_id,
        arrival.digest,
    )


def _any(value: Any) -> Any:
    """What the schema guarantees, the type checker cannot know."""
    return value
