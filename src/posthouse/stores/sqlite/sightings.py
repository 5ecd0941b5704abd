"""VersionUsage: who used which version of an event, first and last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.clock import Clock
from posthouse.store import Sighting
from posthouse.stores.sqlite.database import Database

# Remember a use.
NOTE = """
INSERT INTO posthouse_sighting (role, party, subject, first_at, last_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (role, party, subject) DO UPDATE
SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
"""

# All that is remembered.
SEEN = "SELECT role, party, subject, first_at, last_at FROM posthouse_sighting ORDER BY role, party, subject"


class SqliteSightings:
    """The sightings of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def note(self, sightings: Sequence[Sighting], now: float | None = None) -> None:
        ahead = 0.0 if now is None else self._clock.now() - now
        async with self._database.begin() as tx:
            tx.run_many(NOTE, [(s.role, s.party, s.subject, s.first_at + ahead, s.last_at + ahead) for s in sightings])

    async def seen(self) -> Sequence[Sighting]:
        return [_sighting(columns) for columns in await self._database.select(SEEN)]


def _sighting(columns: Sequence[Any]) -> Sighting:
    return Sighting(*columns)
