"""Grants: who may replay or edit what, for how long, and how much of that is spent."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.grants import Drawn, Grant
from posthouse.stores.rows import GRANT, drawn_of, grant_columns, grant_of
from posthouse.stores.sqlite.database import Database, own

# As it is read, at a time.
READ = f"{GRANT}, asked_at, approved_by, approved_as, approved_at, revoked_by, revoked_at, used, ends_at - ?1"

# Add one.
ADD = f"""
INSERT INTO posthouse_replay_grant ({GRANT}, asked_at, used, next_at)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?1, 0, 0)
"""

# One of them.
GET = f"SELECT {READ} FROM posthouse_replay_grant WHERE id = ?2"

# Those of some services, newest first.
FIND = f"""
SELECT {READ} FROM posthouse_replay_grant WHERE service IN (SELECT value FROM json_each(?2))
    AND (NOT ?3 OR (ends_at > ?1 AND revoked_at IS NULL)) ORDER BY id DESC LIMIT ?4
"""

# Let it run; never by whoever asked.
APPROVE = """
UPDATE posthouse_replay_grant SET approved_by = ?2, approved_as = ?3, approved_at = ?1, ends_at = ?1 + 60.0 * minutes
WHERE id = ?4 AND approved_at IS NULL AND revoked_at IS NULL AND lower(asked_by) <> lower(?2) AND asked_as <> ?3
"""

# End it.
REVOKE = "UPDATE posthouse_replay_grant SET revoked_by = ?2, revoked_at = ?1 WHERE id = ?3 AND revoked_at IS NULL"

# What is left of one, and its place in its pace.
OPEN = """
SELECT min(?3, most - used), max(next_at, ?1) - ?1, max(next_at, ?1) FROM posthouse_replay_grant
WHERE id = ?2 AND revoked_at IS NULL AND used < most AND ends_at > max(next_at, ?1)
"""

# Spend it.
SPEND = "UPDATE posthouse_replay_grant SET used = used + ?2, next_at = ?3 + ?2 / rate WHERE id = ?1"

# Forget the oldest.
PURGE = """
DELETE FROM posthouse_replay_grant WHERE id IN (
    SELECT id FROM posthouse_replay_grant WHERE asked_at < ?1 AND coalesce(ends_at, 0) < ?2 ORDER BY asked_at LIMIT ?3)
"""


class SqliteGrants:
    """The grants of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, grant: Grant) -> None:
        own(tx).run(ADD, (self._clock.now(), *grant_columns(grant)))

    async def get(self, id: str) -> Grant | None:
        found = await self._database.select(GET, (self._clock.now(), id))
        return grant_of(found[0]) if found else None

    async def find(self, services: Sequence[str], *, running: bool = False, limit: int = 100) -> Sequence[Grant]:
        listed = msgspec.json.encode(list(services)).decode()
        found = await self._database.select(FIND, (self._clock.now(), listed, running, limit))
        return [grant_of(columns) for columns in found]

    async def approve(self, tx: Transaction, id: str, by: str, known_as: str) -> bool:
        return bool(own(tx).run(APPROVE, (self._clock.now(), by, known_as, id)).rowcount)

    async def revoke(self, tx: Transaction, id: str, by: str) -> bool:
        return bool(own(tx).run(REVOKE, (self._clock.now(), by, id)).rowcount)

    async def draw(self, id: str, count: int) -> Drawn | None:
        now = self._clock.now()
        async with self._database.begin(books=True) as tx:
            found = list(tx.run(OPEN, (now, id, count)))
            if not found:
                return None
            part, wait, at = found[0]
            tx.run(SPEND, (id, part, at))
        return drawn_of((part, wait))

    async def purge(self, age: float, limit: int) -> int:
        now = self._clock.now()
        async with self._database.begin(books=True) as tx:
            return tx.run(PURGE, (now - age, now, limit)).rowcount
