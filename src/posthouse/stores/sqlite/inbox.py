"""Inbox: who has seen what. One head row per key for ordered consumers, one row per event for the others."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import InboxEntry, KeyPosition, Seen, Transaction
from posthouse.store.inbox import MOST_AHEAD
from posthouse.stores.rows import key_position, position_columns, untyped
from posthouse.stores.sqlite.database import Database, own

# What a consumer does with the first number of a key; the first answer stays.
REGISTER = "INSERT INTO posthouse_consumer (consumer, topic, adopt) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"

# Which answer that was.
REGISTERED = "SELECT adopt FROM posthouse_consumer WHERE consumer = ? AND topic = ?"

# The lineages before that of a head. One that applied nothing had none. They are few; whoever makes up very many loses the
# oldest, and no row grows without end.
LINEAGES = """CASE WHEN posthouse_head.lineage = excluded.lineage OR posthouse_head.event_id = '' THEN lineages
        ELSE CASE WHEN length(lineages) < 500 THEN lineages ELSE '' END
            || posthouse_head.lineage || ':' || min(posthouse_head.sequence, excluded.sequence - 1) || ' ' END"""

# Advance a key by one, if this is the next number and nothing is held; begin it at 1, or anywhere if it is adopted.
CLAIM_ORDERED = f"""
INSERT INTO posthouse_head (consumer, topic, tenant, key, sequence, lineage, event_id, digest, newest)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
WHERE ?5 = 1
    OR EXISTS (SELECT 1 FROM posthouse_head WHERE consumer = ?1 AND topic = ?2 AND tenant = ?3 AND key = ?4)
    OR EXISTS (SELECT 1 FROM posthouse_consumer WHERE consumer = ?1 AND topic = ?2 AND adopt)
ON CONFLICT (consumer, topic, tenant, key) DO UPDATE
SET sequence = excluded.sequence, lineage = excluded.lineage, event_id = excluded.event_id, digest = excluded.digest,
    newest = max(newest, excluded.newest), lineages = {LINEAGES}
WHERE posthouse_head.sequence + 1 = excluded.sequence
    AND posthouse_head.held = 0 AND posthouse_head.lineage <= excluded.lineage
"""

# Advance a key whatever is held, never backwards but into a newer lineage.
ADVANCE_ORDERED = f"""
INSERT INTO posthouse_head (consumer, topic, tenant, key, sequence, lineage, event_id, digest, newest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (consumer, topic, tenant, key) DO UPDATE
SET sequence = excluded.sequence, lineage = excluded.lineage, event_id = excluded.event_id, digest = excluded.digest,
    newest = max(newest, excluded.newest), lineages = {LINEAGES}
WHERE excluded.sequence > posthouse_head.sequence OR excluded.lineage > posthouse_head.lineage
"""

# Remember an unordered event, if no copy of it is held, and it cannot have been forgotten.
CLAIM_UNORDERED = """
INSERT INTO posthouse_inbox (consumer, tenant, event_id, topic, digest, time, received_at, result)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS (
    SELECT 1 FROM posthouse_held WHERE sequence IS NULL AND consumer = ?1 AND tenant = ?2 AND event_id = ?3)
    AND NOT EXISTS (SELECT 1 FROM posthouse_forgotten WHERE consumer = ?1 AND until >= ?6)
ON CONFLICT DO NOTHING
"""

# The same, whatever is held.
ADVANCE_UNORDERED = """
INSERT INTO posthouse_inbox (consumer, tenant, event_id, topic, digest, time, received_at, result)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""

# Where a key stands, and the lowest number that waits behind it.
HEAD = """
SELECT h.sequence, h.lineage, h.event_id, h.digest, h.newest, h.lineages, w.sequence, w.event_id, h.replay
FROM posthouse_head h LEFT JOIN posthouse_held w ON w.id = (
    SELECT id FROM posthouse_held
    WHERE h.held > 0 AND consumer = h.consumer AND topic = h.topic AND tenant = h.tenant AND key = h.key
        AND sequence IS NOT NULL AND state IN ('retrying', 'gap', 'blocked', 'dead')
    ORDER BY sequence LIMIT 1)
WHERE h.consumer = ? AND h.topic = ? AND h.tenant = ? AND h.key = ?
"""

# What is remembered of an unordered event, or held of it.
KNOWN = """
SELECT digest FROM posthouse_inbox WHERE consumer = ?1 AND tenant = ?2 AND event_id = ?3
UNION ALL
SELECT digest FROM posthouse_held WHERE sequence IS NULL AND consumer = ?1 AND tenant = ?2 AND event_id = ?3
LIMIT 1
"""

# How far a consumer has forgotten.
FORGOTTEN = "SELECT until FROM posthouse_forgotten WHERE consumer = ?"

# Forget the oldest.
PURGE = """
DELETE FROM posthouse_inbox WHERE (consumer, tenant, event_id) IN (
    SELECT consumer, tenant, event_id FROM posthouse_inbox WHERE received_at < ? ORDER BY received_at LIMIT ?)
RETURNING consumer
"""

# Note how far.
FORGET = """
INSERT INTO posthouse_forgotten (consumer, until) VALUES (?, ?)
ON CONFLICT (consumer) DO UPDATE SET until = max(until, excluded.until)
"""


# What never came is lost.
ACCEPT_LOSS = """
INSERT INTO posthouse_loss (consumer, topic, lost) SELECT ?1, ?2, ?4
WHERE ?3 = 0 OR EXISTS (SELECT 1 FROM posthouse_loss k WHERE k.consumer = ?1 AND k.topic = ?2)
ON CONFLICT (consumer, topic) DO UPDATE SET lost = excluded.lost WHERE lost = ?3
"""


# One that counts as applied does not.
RECALL = """
INSERT INTO posthouse_applied (consumer, topic, applied, skipped) VALUES (?, ?, -1, 0)
ON CONFLICT (consumer, topic) DO UPDATE SET applied = applied - 1
"""


class SqliteInbox:
    """The inbox of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def register(self, consumer: str, topic: str, adopt: bool) -> bool:
        async with self._database.begin() as tx:
            tx.run(REGISTER, (consumer, topic, adopt))
            return bool(tx.run(REGISTERED, (consumer, topic)).scalar())

    async def claim(self, tx: Transaction, consumer: str, entries: Sequence[InboxEntry]) -> Sequence[bool]:
        ours, answers = own(tx), []
        for entry in entries:
            if entry.sequence is not None:
                done = ours.run(CLAIM_ORDERED, position_columns(consumer, entry))
            else:
                done = ours.run(CLAIM_UNORDERED, self._inbox_columns(consumer, entry, "applied"))
            claimed = done.rowcount == 1
            if claimed:
                ours.count(consumer, entry.topic)
            answers.append(claimed)
        return answers

    async def position_of(self, tx: Transaction, consumer: str, entry: InboxEntry) -> KeyPosition | Seen | None:
        if entry.sequence is None:
            known = own(tx).run(KNOWN, (consumer, entry.tenant, entry.event_id))
            return Seen(digest=untyped(known.scalar())) if known else None
        rows = own(tx).run(HEAD, (consumer, entry.topic, entry.tenant, entry.key))
        return key_position(rows.one()) if rows else None

    async def advance(
        self, tx: Transaction, consumer: str, entry: InboxEntry, *, skipped: bool = False, counted: bool = True
    ) -> bool:
        ours = own(tx)
        if entry.sequence is not None:
            ours.run(ADVANCE_ORDERED, position_columns(consumer, entry))
        else:
            result = "skipped" if skipped else "applied"
            done = ours.run(ADVANCE_UNORDERED, self._inbox_columns(consumer, entry, result))
            if done.rowcount != 1:
                return False
        if counted:
            ours.count(consumer, entry.topic, skipped=skipped)
        return True

    async def recall(self, tx: Transaction, consumer: str, topic: str) -> None:
        own(tx).run(RECALL, (consumer, topic))

    async def accept_loss(self, tx: Transaction, consumer: str, topic: str, *, seen: int, lost: int) -> bool:
        return own(tx).run(ACCEPT_LOSS, (consumer, topic, seen, lost)).rowcount > 0

    async def purged_until(self, consumer: str) -> float | None:
        rows = await self._database.select(FORGOTTEN, (consumer,))
        return untyped(rows.scalar()) if rows else None

    async def purge(self, age: float, limit: int) -> int:
        before = self._clock.now() - age
        async with self._database.begin(books=True) as tx:
            purged = tx.run(PURGE, (before, limit))
            until: dict[str, float] = {}
            for (consumer,) in untyped(purged):
                until[consumer] = before
            tx.run_many(FORGET, until.items())
        return len(purged)

    def _inbox_columns(self, consumer: str, entry: InboxEntry, result: str) -> tuple[object, ...]:
        now = self._clock.now()
        return (
            consumer,
            entry.tenant,
            entry.event_id,
            entry.topic,
            entry.digest,
            entry.time,
            max(now, min(entry.said, now + MOST_AHEAD)),
            result,
        )
