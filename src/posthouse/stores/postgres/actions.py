"""Actions: what operators did, and why."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.actions import Action, ActionFilter
from posthouse.stores.postgres.browsing import action_lines
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.steps import NOW
from posthouse.stores.postgres.transaction import own
from posthouse.stores.rows import ACTION, action_columns, action_of, changes_of, done_already

# Add one.
ADD = f"""
INSERT INTO posthouse.action (at, {ACTION})
VALUES ({NOW}, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT DO NOTHING
"""

# One of them.
GET = f"SELECT at, {ACTION} FROM posthouse.action WHERE tenant = $1 AND id = $2"

# How it ended.
END = "UPDATE posthouse.action SET changed = $3, count = $4, outcome = $5 WHERE tenant = $1 AND id = $2"

# Forget the oldest.
PURGE = f"""
DELETE FROM posthouse.action a USING (
    SELECT o.tenant, o.id FROM posthouse.action o WHERE o.at < {NOW} - $2::double precision ORDER BY o.at LIMIT $3) old
WHERE a.tenant = old.tenant AND a.id = old.id
"""


class PostgresActions:
    """The operators' log of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, action: Action) -> None:
        if not (await own(tx).run(ADD, self._now(), *action_columns(action))).rowcount:
            raise done_already(action)

    async def get(self, tenant: str, id: str) -> Action | None:
        found = list(await self._database.run(GET, tenant, id))
        return action_of(found[0]) if found else None

    async def end(self, tx: Transaction, action: Action) -> None:
        await own(tx).run(END, action.tenant, action.id, changes_of(action), action.count, action.outcome)

    async def find(self, wanted: ActionFilter, limit: int = 100) -> Sequence[Action]:
        sql, parameters = action_lines(wanted, after=wanted.before, limit=limit)
        return [action_of(columns) for columns in await self._database.run(sql, *parameters)]

    async def purge(self, age: float, limit: int) -> int:
        return (await self._database.run(PURGE, self._now(), age, limit)).rowcount

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()
