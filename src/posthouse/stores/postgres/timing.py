"""Timing: what running processes have timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.clock import Clock
from posthouse.store import ProcessTiming
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW

# Replace what a process wrote before, and forget processes that are gone.
WRITE = f"""
WITH forgotten AS (
    DELETE FROM posthouse.timing WHERE written_at < {NOW} - $2::double precision AND (service, process) <> ($3, $4)
)
INSERT INTO posthouse.timing (service, process, written_at, figures) VALUES ($3, $4, {NOW}, $5)
ON CONFLICT (service, process) DO UPDATE SET written_at = excluded.written_at, figures = excluded.figures
"""

# All that is there.
READ = f"""
SELECT service, process, {NOW} - written_at, figures FROM posthouse.timing
ORDER BY service COLLATE "C", process COLLATE "C"
"""


class PostgresTiming:
    """The timing of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def write(self, service: str, process: str, figures: bytes, *, keep: float) -> None:
        await self._database.run(WRITE, self._now(), keep, service, process, figures)

    async def read(self) -> Sequence[ProcessTiming]:
        return [_timed(columns) for columns in await self._database.run(READ, self._now())]

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()


def _timed(columns: Sequence[Any]) -> ProcessTiming:
    return ProcessTiming(*columns)
