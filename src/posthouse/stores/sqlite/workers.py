"""Workers: who runs, and what was timed there."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Worker
from posthouse.stores.rows import WORKER, worker_columns, worker_of
from posthouse.stores.sqlite.database import Database

# A sign of life.
BEAT = f"""
INSERT INTO posthouse_worker ({WORKER}, started_at, seen_at, stopped, figures)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, ?13, coalesce(?14, x'5b5d'))
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, stopped = excluded.stopped, aside = excluded.aside,
    figures = coalesce(?14, figures)
"""

# Forget those who are gone.
FORGET = "DELETE FROM posthouse_worker WHERE seen_at < ?"

# Whoever is there.
READ = f"""
SELECT {WORKER}, ?1 - started_at, ?1 - seen_at, stopped, figures FROM posthouse_worker ORDER BY services, name, started_at
"""


class SqliteWorkers:
    """The workers of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def beat(self, worker: Worker, *, keep: float, figures: bytes | None = None, stopped: bool = False) -> None:
        now = self._clock.now()
        async with self._database.begin(books=True) as tx:
            tx.run(BEAT, (*worker_columns(worker), now, stopped, figures))
            tx.run(FORGET, (now - keep,))

    async def read(self) -> Sequence[Worker]:
        return [worker_of(columns) for columns in await self._database.select(READ, (self._clock.now(),))]
