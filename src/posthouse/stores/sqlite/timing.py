"""Timing: what running processes have timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.clock import Clock
from posthouse.store import ProcessTiming
from posthouse.stores.sqlite.database import Database

# Replace what a process wrote before.
WRITE = """
INSERT INTO posthouse_timing (service, process, written_at, figures) VALUES (?, ?, ?, ?)
ON CONFLICT (service, process) DO UPDATE SET written_at = excluded.written_at, figures = excluded.figures
"""

# Forget processes that are gone.
FORGET = "DELETE FROM posthouse_timing WHERE written_at < ?"

# All that is there.
READ = "SELECT service, process, ? - written_at, figures FROM posthouse_timing ORDER BY service, process"


class SqliteTiming:
    """The timing of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def write(self, service: str, process: str, figures: bytes, *, keep: float) -> None:
        now = self._clock.now()
        async with self._database.begin() as tx:
            tx.run(WRITE, (service, process, now, figures))
            tx.run(FORGET, (now - keep,))

    async def read(self) -> Sequence[ProcessTiming]:
        return [_timed(columns) for columns in await self._database.select(READ, (self._clock.now(),))]


def _timed(columns: Sequence[Any]) -> ProcessTiming:
    return ProcessTiming(*columns)
