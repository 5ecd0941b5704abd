"""Archives: what their members agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.errors import StoreError
from posthouse.store import Rows
from posthouse.store.archives import ArchivePlan, ArchiveState, Planned
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.postgres.transaction import PostgresTransaction
from posthouse.stores.rows import archive_plan_of

# Begin one, unless it was.
BEGIN = "INSERT INTO posthouse.archive (name, place, generation) VALUES ($1, $2, 0) ON CONFLICT (name) DO NOTHING"

# Begin it anew, somewhere else.
MOVE = """
INSERT INTO posthouse.archive (name, place, generation) VALUES ($1, $2, 0)
ON CONFLICT (name) DO UPDATE SET place = excluded.place, generation = 0 RETURNING number
"""

# How one stands.
STATE = "SELECT place, generation FROM posthouse.archive WHERE name = $1"

# What it is called in the other tables.
NUMBER = "SELECT number FROM posthouse.archive WHERE name = $1"

# A plan.
PLAN = f"""
INSERT INTO posthouse.archive_plan (id, archive, state, owner, objects, events, leased_until, created_at)
SELECT $2::text, $3::integer, 'planned', $4::text, $5::bytea, 0, clock.now + $6::double precision, clock.now
FROM (SELECT {NOW} AS now) clock RETURNING number
"""

# Its events, as far as they are nobody's; in their order, so that two members wait for each other in one direction only.
CLAIM = """
INSERT INTO posthouse.archive_event (archive, digest, plan)
SELECT $1::integer, d, $3::bigint FROM unnest($2::bytea[]) d ORDER BY d ON CONFLICT (archive, digest) DO NOTHING RETURNING digest
"""

# Whose those are that are planned by others.
WHOSE = """
SELECT e.digest, p.id FROM unnest($2::bytea[]) d JOIN posthouse.archive_event e ON e.archive = $1 AND e.digest = d
    JOIN posthouse.archive_plan p ON p.number = e.plan WHERE p.state = 'planned'
"""

# How many are its own.
COUNTED = "UPDATE posthouse.archive_plan SET events = $1 WHERE number = $2"

# A plan that is none.
DROP = "DELETE FROM posthouse.archive_plan WHERE number = $1"

# Lease it for longer.
RENEW = f"""
UPDATE posthouse.archive_plan SET leased_until = {NOW} + $2::double precision WHERE id = $3 AND state = 'planned'
    AND archive = (SELECT a.number FROM posthouse.archive a WHERE a.name = $4)
"""

# Those that are not done.
PLANS = f"""
SELECT p.id, p.owner, p.objects, p.events, p.leased_until - clock.now, clock.now - p.created_at
FROM posthouse.archive_plan p JOIN posthouse.archive a ON a.number = p.archive, (SELECT {NOW} AS now) clock
WHERE a.name = $2 AND p.state = 'planned' ORDER BY p.number
"""

# Which of some are there.
KNOWN = """
SELECT p.id FROM posthouse.archive_plan p JOIN posthouse.archive a ON a.number = p.archive
WHERE a.name = $1 AND p.id = ANY($2::text[])
"""

# Take over the next entry of the log; whoever does it holds others up until it is committed.
FOLLOW = "UPDATE posthouse.archive SET generation = $1::bigint WHERE name = $2 AND generation = $1::bigint - 1 RETURNING number"

# A plan is done.
DONE = f"""
UPDATE posthouse.archive_plan SET state = 'done', done_at = {NOW} WHERE id = $2 AND archive = $3 RETURNING number
"""

# One that was done, and is not known here.
LEARN = f"""
INSERT INTO posthouse.archive_plan (id, archive, state, owner, objects, events, leased_until, created_at, done_at)
SELECT $2::text, $3::integer, 'done', '', convert_to('[]', 'UTF8'), $4::bigint, 0, clock.now, clock.now
FROM (SELECT {NOW} AS now) clock RETURNING number
"""

# Its events, whoever claimed them.
LEARN_EVENTS = """
INSERT INTO posthouse.archive_event (archive, digest, plan)
SELECT $1::integer, d, $3::bigint FROM (SELECT DISTINCT u FROM unnest($2::bytea[]) u ORDER BY u) f (d)
ON CONFLICT (archive, digest) DO UPDATE SET plan = excluded.plan
"""

# The claims of a plan that is not done, and the plan itself; without an id those of all.
UNCLAIM = """
DELETE FROM posthouse.archive_event WHERE plan IN (
    SELECT p.number FROM posthouse.archive_plan p
    WHERE p.archive = $1 AND p.state = 'planned' AND ($2::text IS NULL OR p.id = $2))
"""
UNPLAN = """
DELETE FROM posthouse.archive_plan WHERE archive = $1 AND state = 'planned' AND ($2::text IS NULL OR id = $2)
"""

# The oldest plan that was done so long ago.
OLDEST = f"""
SELECT p.number FROM posthouse.archive_plan p JOIN posthouse.archive a ON a.number = p.archive
WHERE a.name = $2 AND p.done_at < {NOW} - $3::double precision ORDER BY p.done_at LIMIT 1
"""

# Since when all that was done is known.
REMEMBERS = """
SELECT p.done_at FROM posthouse.archive_plan p JOIN posthouse.archive a ON a.number = p.archive
WHERE a.name = $1 AND p.done_at IS NOT NULL AND p.events > 0 ORDER BY p.done_at LIMIT 1
"""

# Forget some of its events.
FORGET = """
DELETE FROM posthouse.archive_event WHERE (archive, digest) IN (
    SELECT e.archive, e.digest FROM posthouse.archive_event e WHERE e.plan = $1 LIMIT $2)
"""


class PostgresArchives:
    """The archives of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, archive: str, place: str) -> ArchiveState:
        await self._database.run(BEGIN, archive, place)
        found: tuple[Any, ...] = (await self._database.run(STATE, archive)).one()
        return ArchiveState(*found)

    async def known(self, archive: str) -> ArchiveState | None:
        found: Sequence[Any] = await self._database.run(STATE, archive)
        return ArchiveState(*found[0]) if found else None

    async def move(self, archive: str, place: str) -> None:
        async with self._begin() as tx:
            number = (await tx.run(MOVE, archive, place)).scalar()
            await tx.run(UNCLAIM, number, None)
            await tx.run(UNPLAN, number, None)

    async def plan(
        self, archive: str, id: str, owner: str, objects: Sequence[str], digests: Sequence[bytes], seconds: float
    ) -> Planned:
        async with self._begin() as tx:
            of = (await tx.run(NUMBER, archive)).scalar()
            named = msgspec.json.encode(list(objects))
            number = (await tx.run(PLAN, self._now(), id, of, owner, named, seconds)).scalar()
            own = {row[0] for row in await tx.run(CLAIM, of, list(digests), number)}
            others = [digest for digest in digests if digest not in own]
            whose: dict[object, str] = {}
            if others:
                whose = {digest: str(found) for digest, found in await tx.run(WHOSE, of, others)}
            if digests and not own:
                await tx.run(DROP, number)
            else:
                await tx.run(COUNTED, len(own), number)
        return Planned(
            [place for place, digest in enumerate(digests) if digest in own],
            {place: whose[digest] for place, digest in enumerate(digests) if digest in whose},
        )

    async def renew(self, archive: str, id: str, seconds: float) -> bool:
        return bool((await self._database.run(RENEW, self._now(), seconds, id, archive)).rowcount)

    async def plans(self, archive: str) -> Sequence[ArchivePlan]:
        return [archive_plan_of(columns) for columns in await self._database.run(PLANS, self._now(), archive)]

    async def unknown(self, archive: str, plans: Sequence[str]) -> Sequence[str]:
        known = {row[0] for row in await self._database.run(KNOWN, archive, list(plans))}
        return [plan for plan in plans if plan not in known]

    async def follow(
        self,
        archive: str,
        generation: int,
        *,
        done: Sequence[str] = (),
        aborted: Sequence[str] = (),
        learned: Mapping[str, Sequence[bytes]] | None = None,
    ) -> bool:
        async with self._begin() as tx:
            of = _first(await tx.run(FOLLOW, generation, archive))
            if of is None:
                return False
            unknown = [id for id in done if not await tx.run(DONE, self._now(), id, of)]
            for id in [*aborted, *([None] if unknown else [])]:
                await tx.run(UNCLAIM, of, id)
                await tx.run(UNPLAN, of, id)
            for id in unknown:
                await self._learn(tx, of, id, learned)
        return True

    async def forget(self, archive: str, age: float, limit: int) -> int:
        async with self._begin() as tx:
            number = _first(await tx.run(OLDEST, self._now(), archive, age))
            if number is None:
                return 0
            gone = (await tx.run(FORGET, number, limit)).rowcount
            if gone < limit:
                await tx.run(DROP, number)
            return max(gone, 1)

    async def remembers(self, archive: str) -> float | None:
        found: Sequence[Any] = await self._database.run(REMEMBERS, archive)
        return float(found[0][0]) if found else None

    async def _learn(
        self, tx: PostgresTransaction, of: object, id: str, learned: Mapping[str, Sequence[bytes]] | None
    ) -> None:
        digests = (learned or {}).get(id)
        if digests is None:
            raise StoreError(f"the plan {id} of an archive is unknown here, and so are its events: read the log again")
        number = (await tx.run(LEARN, self._now(), id, of, len(digests))).scalar()
        await tx.run(LEARN_EVENTS, of, list(digests), number)

    def _begin(self) -> PostgresTransaction:
        return PostgresTransaction(self._database)

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()


def _first(rows: Rows) -> object:
    """Of the one row that there is, if there is one."""
    return rows[0][0] if rows else None
