"""Archives: what their members agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.errors import StoreError
from posthouse.store import Rows
from posthouse.store.archives import ArchivePlan, ArchiveState, Planned
from posthouse.stores.rows import archive_plan_of
from posthouse.stores.sqlite.database import Database, SqliteTransaction

# Begin one, unless it was.
BEGIN = "INSERT INTO posthouse_archive (name, place, generation) VALUES (?, ?, 0) ON CONFLICT DO NOTHING"

# Begin it anew, somewhere else.
MOVE = """
INSERT INTO posthouse_archive (name, place, generation) VALUES (?, ?, 0)
ON CONFLICT (name) DO UPDATE SET place = excluded.place, generation = 0
"""

# How one stands.
STATE = "SELECT place, generation FROM posthouse_archive WHERE name = ?"

# What it is called in the other tables.
NUMBER = "SELECT number FROM posthouse_archive WHERE name = ?"

# A plan.
PLAN = """
INSERT INTO posthouse_archive_plan (id, archive, state, owner, objects, events, leased_until, created_at)
VALUES (?1, ?2, 'planned', ?3, ?4, 0, ?5 + ?6, ?5) RETURNING number
"""

# Its events, as far as they are nobody's.
CLAIM = "INSERT INTO posthouse_archive_event (archive, digest, plan) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"

# Which are its own.
OWN = "SELECT digest FROM posthouse_archive_event WHERE plan = ?"

# Whose an event is that is planned by somebody.
WHOSE = """
SELECT p.id FROM posthouse_archive_event e JOIN posthouse_archive_plan p ON p.number = e.plan
WHERE e.archive = ? AND e.digest = ? AND p.state = 'planned'
"""

# How many are its own.
COUNTED = "UPDATE posthouse_archive_plan SET events = ? WHERE number = ?"

# A plan that is none.
DROP = "DELETE FROM posthouse_archive_plan WHERE number = ?"

# Lease it for longer.
RENEW = """
UPDATE posthouse_archive_plan SET leased_until = ? WHERE id = ? AND state = 'planned'
    AND archive = (SELECT number FROM posthouse_archive WHERE name = ?)
"""

# Those that are not done. A lease that lasts longer than one ever does was given by a clock that was set back since.
PLANS = """
SELECT p.id, p.owner, p.objects, p.events, p.leased_until - ?2, ?2 - p.created_at
FROM posthouse_archive_plan p JOIN posthouse_archive a ON a.number = p.archive
WHERE a.name = ?1 AND p.state = 'planned' ORDER BY p.number
"""

# Which of some are there.
KNOWN = """
SELECT p.id FROM posthouse_archive_plan p JOIN posthouse_archive a ON a.number = p.archive
WHERE a.name = ? AND p.id IN (SELECT value FROM json_each(?))
"""

# Take over the next entry of the log.
FOLLOW = "UPDATE posthouse_archive SET generation = ?1 WHERE name = ?2 AND generation = ?1 - 1 RETURNING number"

# A plan is done.
DONE = "UPDATE posthouse_archive_plan SET state = 'done', done_at = ? WHERE id = ? AND archive = ? RETURNING number"

# One that was done, and is not known here.
LEARN = """
INSERT INTO posthouse_archive_plan (id, archive, state, owner, objects, events, leased_until, created_at, done_at)
VALUES (?1, ?2, 'done', '', '[]', ?3, 0, ?4, ?4) RETURNING number
"""

# Its events, whoever claimed them.
LEARN_EVENT = """
INSERT INTO posthouse_archive_event (archive, digest, plan) VALUES (?, ?, ?)
ON CONFLICT (archive, digest) DO UPDATE SET plan = excluded.plan
"""

# The claims of a plan that is not done, and the plan itself; without an id those of all.
UNCLAIM = """
DELETE FROM posthouse_archive_event WHERE plan IN (
    SELECT number FROM posthouse_archive_plan WHERE archive = ?1 AND state = 'planned' AND (?2 IS NULL OR id = ?2))
"""
UNPLAN = "DELETE FROM posthouse_archive_plan WHERE archive = ?1 AND state = 'planned' AND (?2 IS NULL OR id = ?2)"

# The oldest plan that was done so long ago.
OLDEST = """
SELECT number FROM posthouse_archive_plan WHERE done_at < ?2
    AND archive = (SELECT number FROM posthouse_archive WHERE name = ?1) ORDER BY done_at LIMIT 1
"""

# Since when all that was done is known.
REMEMBERS = """
SELECT done_at FROM posthouse_archive_plan WHERE done_at IS NOT NULL AND events > 0
    AND archive = (SELECT number FROM posthouse_archive WHERE name = ?) ORDER BY done_at LIMIT 1
"""

# Forget some of its events.
FORGET = """
DELETE FROM posthouse_archive_event WHERE (archive, digest) IN (
    SELECT archive, digest FROM posthouse_archive_event WHERE plan = ? LIMIT ?)
"""


class SqliteArchives:
    """The archives of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, archive: str, place: str) -> ArchiveState:
        async with self._database.begin() as tx:
            tx.run(BEGIN, (archive, place))
            found: tuple[Any, ...] = tx.run(STATE, (archive,)).one()
        return ArchiveState(*found)

    async def known(self, archive: str) -> ArchiveState | None:
        found: Sequence[Any] = await self._database.select(STATE, (archive,))
        return ArchiveState(*found[0]) if found else None

    async def move(self, archive: str, place: str) -> None:
        async with self._database.begin() as tx:
            tx.run(MOVE, (archive, place))
            number = tx.run(NUMBER, (archive,)).scalar()
            tx.run(UNCLAIM, (number, None))
            tx.run(UNPLAN, (number, None))

    async def plan(
        self, archive: str, id: str, owner: str, objects: Sequence[str], digests: Sequence[bytes], seconds: float
    ) -> Planned:
        async with self._database.begin() as tx:
            of = tx.run(NUMBER, (archive,)).scalar()
            named = msgspec.json.encode(list(objects))
            number = tx.run(PLAN, (id, of, owner, named, self._clock.now(), seconds)).scalar()
            tx.run_many(CLAIM, [(of, digest, number) for digest in digests])
            own = {row[0] for row in tx.run(OWN, (number,))}
            elsewhere = {
                place: str(found)
                for place, digest in enumerate(digests)
                if digest not in own and (found := _first(tx.run(WHOSE, (of, digest)))) is not None
            }
            tx.run(DROP if digests and not own else COUNTED, (number,) if digests and not own else (len(own), number))
        return Planned([place for place, digest in enumerate(digests) if digest in own], elsewhere)

    async def renew(self, archive: str, id: str, seconds: float) -> bool:
        async with self._database.begin(books=True) as tx:
            return bool(tx.run(RENEW, (self._clock.now() + seconds, id, archive)).rowcount)

    async def plans(self, archive: str) -> Sequence[ArchivePlan]:
        found = await self._database.select(PLANS, (archive, self._clock.now()))
        return [archive_plan_of(columns) for columns in found]

    async def unknown(self, archive: str, plans: Sequence[str]) -> Sequence[str]:
        listed = msgspec.json.encode(list(plans)).decode()
        known = {row[0] for row in await self._database.select(KNOWN, (archive, listed))}
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
        now = self._clock.now()
        async with self._database.begin() as tx:
            of = _first(tx.run(FOLLOW, (generation, archive)))
            if of is None:
                return False
            unknown = [id for id in done if not tx.run(DONE, (now, id, of))]
            for id in [*aborted, *([None] if unknown else [])]:
                tx.run(UNCLAIM, (of, id))
                tx.run(UNPLAN, (of, id))
            for id in unknown:
                _learn(tx, of, id, learned, now)
        return True

    async def forget(self, archive: str, age: float, limit: int) -> int:
        async with self._database.begin(books=True) as tx:
            number = _first(tx.run(OLDEST, (archive, self._clock.now() - age)))
            if number is None:
                return 0
            gone = tx.run(FORGET, (number, limit)).rowcount
            if gone < limit:
                tx.run(DROP, (number,))
            return max(gone, 1)

    async def remembers(self, archive: str) -> float | None:
        found: Sequence[Any] = await self._database.select(REMEMBERS, (archive,))
        return float(found[0][0]) if found else None


def _learn(
    tx: SqliteTransaction, of: object, id: str, learned: Mapping[str, Sequence[bytes]] | None, now: float
) -> None:
    digests = (learned or {}).get(id)
    if digests is None:
        raise StoreError(f"the plan {id} of an archive is unknown here, and so are its events: read the log again")
    number = tx.run(LEARN, (id, of, len(digests), now)).scalar()
    tx.run_many(LEARN_EVENT, [(of, digest, number) for digest in digests])


def _first(rows: Rows) -> object:
    """Of the one row that there is, if there is one."""
    return rows[0][0] if rows else None
