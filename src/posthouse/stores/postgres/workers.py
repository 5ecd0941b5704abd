"""Workers: who runs, and what was timed there."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Worker
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.rows import WORKER, worker_columns, worker_of

# A sign of life; and those who are gone are forgotten.
BEAT = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} AS now), forgotten AS (
    DELETE FROM posthouse.worker w USING clock c WHERE w.seen_at < c.now - $2::double precision AND w.id <> $5
)
INSERT INTO posthouse.worker AS w ({WORKER}, started_at, seen_at, stopped, figures)
SELECT $5::text, $6::text, $7::text, $8::text, $9::integer, $10::text, $11::text, $12::text, $13::text, $14::text, $15::text,
    c.now, c.now, $3,
    coalesce($4::bytea, '[]')
FROM clock c
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, stopped = excluded.stopped, aside = excluded.aside,
    figures = coalesce($4::bytea, w.figures)
"""

# Whoever is there.
READ = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} AS now)
SELECT {WORKER}, c.now - started_at, c.now - seen_at, stopped, figures FROM posthouse.worker CROSS JOIN clock c
ORDER BY services COLLATE "C", name COLLATE "C", started_at
"""


class PostgresWorkers:
    """The workers of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def beat(self, worker: Worker, *, keep: float, figures: bytes | None = None, stopped: bool = False) -> None:
        await self._database.run(BEAT, self._now(), keep, stopped, figures, *worker_columns(worker))

    async def read(self) -> Sequence[Worker]:
        return [worker_of(columns) for columns in await self._database.run(READ, self._now())]

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()
