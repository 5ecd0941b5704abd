"""Actions: what operators did, and why."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.actions import Action, ActionFilter
from posthouse.stores.rows import ACTION, action_columns, action_of, changes_of, done_already
from posthouse.stores.sqlite.browsing import action_lines
from posthouse.stores.sqlite.database import Database, own

# Add one.
ADD = f"INSERT INTO posthouse_action (at, {ACTION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"

# One of them.
GET = f"SELECT at, {ACTION} FROM posthouse_action WHERE id = ? AND tenant = ?"

# How it ended.
END = "UPDATE posthouse_action SET changed = ?, count = ?, outcome = ? WHERE id = ?"

# Forget the oldest.
PURGE = "DELETE FROM posthouse_action WHERE id IN (SELECT id FROM posthouse_action WHERE at < ? ORDER BY at LIMIT ?)"


class SqliteActions:
    """The operators' log of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, action: Action) -> None:
        if not own(tx).run(ADD, (self._clock.now(), *action_columns(action))).rowcount:
            raise done_already(action)

    async def get(self, tenant: str, id: str) -> Action | None:
        found = await self._database.select(GET, (id, tenant))
        return action_of(found[0]) if found else None

    async def end(self, tx: Transaction, action: Action) -> None:
        own(tx).run(END, (changes_of(action), action.count, action.outcome, action.id))

    async def find(self, wanted: ActionFilter, limit: int = 100) -> Sequence[Action]:
        sql, parameters = action_lines(wanted, after=wanted.before, limit=limit)
        return [action_of(columns) for columns in await self._database.select(sql, parameters)]

    async def purge(self, age: float, limit: int) -> int:
        async with self._database.begin(books=True) as tx:
            return tx.run(PURGE, (self._clock.now() - age, limit)).rowcount
