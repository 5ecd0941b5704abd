"""Inbox: who has seen what. One head row per key for ordered consumers, one row per event for the others."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import InboxEntry, KeyPosition, Seen, Transaction
from posthouse.store.inbox import MOST_AHEAD
from posthouse.stores.postgres.claim import claim_many, claim_one
from posthouse.stores.postgres.counting import sum_up
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.postgres.transaction import own
from posthouse.stores.rows import key_position, position_columns, untyped

# What a consumer does with the first number of a key; the first answer stays, and comes back.
REGISTER = """
INSERT INTO posthouse.consumer AS c (consumer, topic, adopt) VALUES ($1, $2, $3)
ON CONFLICT (consumer, topic) DO UPDATE SET adopt = c.adopt RETURNING adopt
"""

# Advance a key whatever is held, never backwards but into a newer lineage.
ADVANCE_ORDERED = """
WITH advanced AS (
    INSERT INTO posthouse.head AS h (consumer, topic, tenant, key, sequence, lineage, event_id, digest, newest)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (consumer, topic, tenant, key) DO UPDATE
    SET sequence = excluded.sequence, lineage = excluded.lineage, event_id = excluded.event_id, digest = excluded.digest,
        newest = greatest(h.newest, excluded.newest), lineages = CASE WHEN h.lineage = excluded.lineage THEN h.lineages
            ELSE posthouse.succeeded(h.lineages, h.lineage, least(h.sequence, excluded.sequence - 1), h.event_id) END
    WHERE excluded.sequence > h.sequence OR excluded.lineage > h.lineage)
INSERT INTO posthouse.applied_count (consumer, topic, applied, skipped)
SELECT $1, $2, $10::integer, $11::integer WHERE $10 + $11 > 0
"""

# One that counts as applied does not.
RECALL = "INSERT INTO posthouse.applied_count (consumer, topic, applied, skipped) VALUES ($1, $2, -1, 0)"

# Remember an unordered event, whatever is held.
ADVANCE_UNORDERED = f"""
WITH advanced AS (
    INSERT INTO posthouse.inbox (consumer, tenant, event_id, topic, digest, time, received_at, result)
    VALUES ($2, $3, $4, $5, $6, $7, greatest({NOW}, least($10, {NOW} + {MOST_AHEAD})), CASE WHEN $9::integer > 0 THEN 'skipped' ELSE 'applied' END)
    ON CONFLICT DO NOTHING RETURNING 1
), counted AS (
    INSERT INTO posthouse.applied_count (consumer, topic, applied, skipped)
    SELECT $2, $5, $8::integer, $9 FROM advanced WHERE $8 + $9 > 0)
SELECT 1 FROM advanced
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

# Forget the oldest, and note how far: whatever is older may have been among them.
PURGE = f"""
WITH clock AS MATERIALIZED (
    SELECT {NOW} - $2::double precision AS before
), gone AS (
    DELETE FROM posthouse.inbox WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM posthouse.inbox i WHERE i.received_at < (SELECT before FROM clock)
        ORDER BY i.received_at LIMIT $3 FOR UPDATE SKIP LOCKED))
    RETURNING consumer
), noted AS (
    INSERT INTO posthouse.forgotten AS f (consumer, until)
    SELECT consumer, (SELECT before FROM clock) FROM gone GROUP BY consumer ORDER BY consumer
    ON CONFLICT (consumer) DO UPDATE SET until = greatest(f.until, excluded.until))
SELECT count(*) FROM gone
"""

# What never came is lost.
ACCEPT_LOSS = """
INSERT INTO posthouse.loss AS l (consumer, topic, lost) SELECT $1::text, $2::text, $4::bigint
WHERE $3::bigint = 0 OR EXISTS (SELECT 1 FROM posthouse.loss k WHERE k.consumer = $1 AND k.topic = $2)
ON CONFLICT (consumer, topic) DO UPDATE SET lost = excluded.lost WHERE l.lost = $3::bigint RETURNING 1
"""


class PostgresInbox:
    """The inbox of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def register(self, consumer: str, topic: str, adopt: bool) -> bool:
        return bool((await self._database.run(REGISTER, consumer, topic, adopt)).scalar())

    async def claim(self, tx: Transaction, consumer: str, entries: Sequence[InboxEntry]) -> Sequence[bool]:
        now = None if self._clock is None else self._clock.now()
        if len(entries) == 1:
            return [await claim_one(own(tx), consumer, entries[0], now)]
        return await claim_many(own(tx), consumer, entries, now)

    async def position_of(self, tx: Transaction, consumer: str, entry: InboxEntry) -> KeyPosition | Seen | None:
        if entry.sequence is None:
            known = await own(tx).run(KNOWN, consumer, entry.tenant, entry.event_id)
            return Seen(digest=untyped(known.scalar())) if known else None
        rows = await own(tx).run(HEAD, consumer, entry.topic, entry.tenant, entry.key)
        return key_position(rows.one()) if rows else None

    async def advance(
        self, tx: Transaction, consumer: str, entry: InboxEntry, *, skipped: bool = False, counted: bool = True
    ) -> bool:
        figures = (int(counted and not skipped), int(counted and skipped))
        if entry.sequence is not None:
            await own(tx).run(ADVANCE_ORDERED, *position_columns(consumer, entry), *figures)
            return True
        columns = self._inbox_columns(consumer, entry)
        return bool(await own(tx).run(ADVANCE_UNORDERED, *columns, *figures, entry.said))

    async def recall(self, tx: Transaction, consumer: str, topic: str) -> None:
        await own(tx).run(RECALL, consumer, topic)

    async def accept_loss(self, tx: Transaction, consumer: str, topic: str, *, seen: int, lost: int) -> bool:
        return bool(await own(tx).run(ACCEPT_LOSS, consumer, topic, seen, lost))

    async def purged_until(self, consumer: str) -> float | None:
        rows = await self._database.run(FORGOTTEN, consumer)
        return untyped(rows.scalar()) if rows else None

    async def purge(self, age: float, limit: int) -> int:
        await sum_up(self._database, limit)
        now = None if self._clock is None else self._clock.now()
        return int(untyped((await self._database.run(PURGE, now, age, limit)).scalar()))

    def _inbox_columns(self, consumer: str, entry: InboxEntry) -> tuple[object, ...]:
        now = None if self._clock is None else self._clock.now()
        return (now, consumer, entry.tenant, entry.event_id, entry.topic, entry.digest, entry.time)
