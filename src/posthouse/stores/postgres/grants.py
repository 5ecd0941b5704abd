"""Grants: who may replay or edit what, for how long, and how much of that is spent."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.grants import Drawn, Grant
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.postgres.transaction import own
from posthouse.stores.rows import GRANT, drawn_of, grant_columns, grant_of

# The time, once.
CLOCK = f"WITH clock AS MATERIALIZED (SELECT {NOW} AS now)"

# As it is read.
READ = f"{GRANT}, asked_at, approved_by, approved_as, approved_at, revoked_by, revoked_at, used, ends_at - clock.now"

# Add one.
ADD = f"""
{CLOCK} INSERT INTO posthouse.replay_grant ({GRANT}, asked_at, used, next_at)
SELECT $2::text, $3::text, $4::text, $5::bytea, $6::text, $7::text, $8::text, $9::integer, $10::bigint, $11::double precision,
    clock.now, 0, 0 FROM clock
"""

# One of them.
GET = f"{CLOCK} SELECT {READ} FROM posthouse.replay_grant CROSS JOIN clock WHERE id = $2"

# Those of some services, newest first.
FIND = f"""
{CLOCK} SELECT {READ} FROM posthouse.replay_grant CROSS JOIN clock WHERE service = ANY($2::text[])
    AND (NOT $3::boolean OR (ends_at > clock.now AND revoked_at IS NULL)) ORDER BY id DESC LIMIT $4
"""

# Let it run; never by whoever asked.
APPROVE = f"""
{CLOCK} UPDATE posthouse.replay_grant SET approved_by = $2, approved_as = $3, approved_at = clock.now,
    ends_at = clock.now + 60.0 * minutes
FROM clock WHERE id = $4 AND approved_at IS NULL AND revoked_at IS NULL AND lower(asked_by) <> lower($2) AND asked_as <> $3
"""

# End it.
REVOKE = f"""
{CLOCK} UPDATE posthouse.replay_grant SET revoked_by = $2, revoked_at = clock.now
FROM clock WHERE id = $3 AND revoked_at IS NULL
"""

# Spend some of it, and take a place in its pace.
DRAW = f"""
{CLOCK}, open AS MATERIALIZED (
    SELECT g.id AS open_id, least($3::bigint, g.most - g.used) AS part, greatest(g.next_at, c.now) AS at, c.now
    FROM posthouse.replay_grant g, clock c
    WHERE g.id = $2 AND g.revoked_at IS NULL AND g.used < g.most AND g.ends_at > greatest(g.next_at, c.now)
    FOR UPDATE OF g)
UPDATE posthouse.replay_grant SET used = used + part, next_at = at + part / rate
FROM open WHERE id = open_id RETURNING part, at - now
"""

# Forget the oldest.
PURGE = f"""
DELETE FROM posthouse.replay_grant WHERE id IN (
    SELECT o.id FROM posthouse.replay_grant o WHERE o.asked_at < {NOW} - $2::double precision
        AND coalesce(o.ends_at, 0) < {NOW} ORDER BY o.asked_at LIMIT $3)
"""


class PostgresGrants:
    """The grants of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, grant: Grant) -> None:
        await own(tx).run(ADD, self._now(), *grant_columns(grant))

    async def get(self, id: str) -> Grant | None:
        found = list(await self._database.run(GET, self._now(), id))
        return grant_of(found[0]) if found else None

    async def find(self, services: Sequence[str], *, running: bool = False, limit: int = 100) -> Sequence[Grant]:
        found = await self._database.run(FIND, self._now(), list(services), running, limit)
        return [grant_of(columns) for columns in found]

    async def approve(self, tx: Transaction, id: str, by: str, known_as: str) -> bool:
        return bool((await own(tx).run(APPROVE, self._now(), by, known_as, id)).rowcount)

    async def revoke(self, tx: Transaction, id: str, by: str) -> bool:
        return bool((await own(tx).run(REVOKE, self._now(), by, id)).rowcount)

    async def draw(self, id: str, count: int) -> Drawn | None:
        found = list(await self._database.run(DRAW, self._now(), id, count))
        return drawn_of(found[0]) if found else None

    async def purge(self, age: float, limit: int) -> int:
        return (await self._database.run(PURGE, self._now(), age, limit)).rowcount

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()
