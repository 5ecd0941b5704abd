"""VersionUsage: who used which version of an event, first and last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.clock import Clock
from posthouse.store import VersionUse
from posthouse.stores.sqlite.database import Database

# Remember a use.
NOTE = """
INSERT INTO posthouse_version_usage (role, party, subject, first_at, last_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (role, party, subject) DO UPDATE
SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
"""

# All that is remembered.
SEEN = "SELECT role, party, subject, first_at, last_at FROM posthouse_version_usage ORDER BY role, party, subject"


class SqliteVersionUsage:
    """The version usage of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def note(self, uses: Sequence[VersionUse], now: float | None = None) -> None:
        ahead = 0.0 if now is None else self._clock.now() - now
        async with self._database.begin() as tx:
            tx.run_many(NOTE, [(s.role, s.party, s.subject, s.first_at + ahead, s.last_at + ahead) for s in uses])

    async def seen(self) -> Sequence[VersionUse]:
        return [_use(columns) for columns in await self._database.select(SEEN)]


def _use(columns: Sequence[Any]) -> VersionUse:
    return VersionUse(*columns)
