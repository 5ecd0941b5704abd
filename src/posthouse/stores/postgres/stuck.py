"""Stuck: outbox rows that the broker refused, and those of the same key behind them."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Action, OutboxShard, StuckRow
from posthouse.stores.postgres.actions import PostgresActions
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.postgres.transaction import PostgresTransaction
from posthouse.stores.rows import shard_of_row, stuck_row

# A stuck row with what it is to say; found by the index of the pages.
STUCK = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} AS now)
SELECT o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body,
    s.attempts, s.error, s.quarantined, s.next_at - c.now, c.now - s.first_at, s.first_at, s.next_at
FROM clock c CROSS JOIN posthouse.stuck s JOIN posthouse.outbox o ON o.id = s.id
"""

# The first row of each stuck key, when its time has come.
DUE = f"""{STUCK}
WHERE s.next_at <= (SELECT now FROM clock) AND NOT s.quarantined AND s.shard = ANY ($2) AND (s.key IS NULL OR NOT EXISTS (
    SELECT 1 FROM posthouse.stuck e WHERE e.topic = s.topic AND e.tenant = s.tenant AND e.key = s.key AND e.id < s.id))
ORDER BY s.id LIMIT $3
"""

# All of them.
ALL = f"{STUCK} WHERE s.id > $2 ORDER BY s.id LIMIT $3"

# Remove what was sent, reschedule what was not.
SETTLE = "SELECT posthouse.settle_stuck($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"

# Try again now.
RETRY = f"UPDATE posthouse.stuck SET next_at = {NOW}, quarantined = false WHERE id = $2"


class StuckRows:
    """The stuck part of a `PostgresOutbox`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    def now(self) -> float | None:
        """The time, or None for the database's own clock."""
        return None if self._clock is None else self._clock.now()

    async def stuck_due(self, shards: Sequence[OutboxShard], limit: int) -> Sequence[StuckRow]:
        numbers = [shard.number for shard in shards]
        return [stuck_row(columns) for columns in await self._database.run(DUE, self.now(), numbers, limit)]

    async def settle_stuck(
        self, owner: str, shards: Sequence[OutboxShard], sent: Sequence[int], failed: Sequence[StuckRow]
    ) -> bool:
        ids = [row.row.id for row in failed]
        done = await self._database.run(SETTLE, owner, self.now(), *held_as(shards), list(sent), ids, *_tries(failed))
        return bool(done.scalar())

    async def stuck(self, *, after: int = 0, limit: int | None = None) -> Sequence[StuckRow]:
        return [stuck_row(columns) for columns in await self._database.run(ALL, self.now(), after, limit)]

    async def retry_stuck(self, row_id: int, action: Action | None = None) -> bool:
        async with PostgresTransaction(self._database) as tx:
            tx.appended = True
            done = (await tx.run(RETRY, self.now(), row_id)).rowcount > 0
            if done and action is not None:
                await PostgresActions(self._database, self._clock).add(tx, action)
        return done


def numbers_of(shards: Sequence[OutboxShard]) -> tuple[list[int], list[int]]:
    """Shards as two arrays: numbers and epochs."""
    return [shard.number for shard in shards], [shard.epoch for shard in shards]


def run_of(shards: Sequence[OutboxShard]) -> str:
    """The run of the server in which they were leased: one lease gives out all that a relay holds."""
    return shards[0].run if shards else ""


def held_as(shards: Sequence[OutboxShard]) -> tuple[list[int], list[int], str]:
    """Shards, epochs and run, as `posthouse.holds` takes them."""
    return *numbers_of(shards), run_of(shards)


def written(numbers: Sequence[int]) -> str:
    """An array as PostgreSQL reads it from a text: the driver takes longer for an array than the server for this."""
    return f"{{{','.join(map(str, numbers))}}}"


def parking(rows: Sequence[StuckRow], shards: int, now: float | None) -> Sequence[object]:
    """The parameters of `posthouse.park`."""
    return (
        now,
        [stuck.row.id for stuck in rows],
        [shard_of_row(stuck.row, shards) for stuck in rows],
        [stuck.row.topic for stuck in rows],
        [stuck.row.tenant for stuck in rows],
        [stuck.row.key for stuck in rows],
        *_tries(rows),
    )


def _tries(rows: Sequence[StuckRow]) -> Sequence[object]:
    return (
        [stuck.attempts for stuck in rows],
        [stuck.first_at for stuck in rows],
        [stuck.after for stuck in rows],
        [stuck.error for stuck in rows],
        [stuck.quarantined for stuck in rows],
    )
