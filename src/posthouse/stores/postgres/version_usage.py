"""VersionUsage: who used which version of an event, first and last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.clock import Clock
from posthouse.store import VersionUse
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW

# Remember uses, always in the same order, so that two processes do not wait for each other.
NOTE = f"""
WITH clock AS MATERIALIZED (SELECT coalesce({NOW} - $2::double precision, 0) AS ahead)
INSERT INTO posthouse.version_usage AS s (role, party, subject, first_at, last_at)
SELECT n.role, n.party, n.subject, min(n.first_at + c.ahead), max(n.last_at + c.ahead)
FROM clock c CROSS JOIN unnest($3::text[], $4::text[], $5::text[], $6::double precision[], $7::double precision[])
    AS n (role, party, subject, first_at, last_at)
GROUP BY n.role, n.party, n.subject ORDER BY n.role, n.party, n.subject
ON CONFLICT (role, party, subject) DO UPDATE
SET first_at = least(s.first_at, excluded.first_at), last_at = greatest(s.last_at, excluded.last_at)
"""

# All that is remembered, in the order of its bytes.
SEEN = """
SELECT role, party, subject, first_at, last_at FROM posthouse.version_usage
ORDER BY role COLLATE "C", party COLLATE "C", subject COLLATE "C"
"""


class PostgresVersionUsage:
    """The version usage of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def note(self, uses: Sequence[VersionUse], now: float | None = None) -> None:
        own = None if self._clock is None else self._clock.now()
        columns = zip(*((s.role, s.party, s.subject, s.first_at, s.last_at) for s in uses), strict=True)
        await self._database.run(NOTE, own, now, *map(list, columns))

    async def seen(self) -> Sequence[VersionUse]:
        return [_use(columns) for columns in await self._database.run(SEEN)]


def _use(columns: Sequence[Any]) -> VersionUse:
    return VersionUse(*columns)
