"""Sagas: where each stands, and the history of its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.store import Transaction
from posthouse.store.sagas import SagaFilter, SagaRow, SagaStatus, SagaTurn, progress_of
from posthouse.stores.rows import SAGA, saga_row
from posthouse.stores.sqlite.database import Database
from posthouse.stores.sqlite.timers import CANCEL

# Add a saga that is not there yet.
ADD = """
INSERT INTO posthouse_saga (saga, tenant, id, status, turn, reason, started_at, changed_at, progress, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""

# One saga; whoever writes has the only lock already.
LOAD = f"SELECT {SAGA} FROM posthouse_saga WHERE saga = ? AND tenant = ? AND id = ?"

# Store the next turn of a saga.
SAVE = """
UPDATE posthouse_saga SET status = ?2, turn = ?3, reason = ?4, changed_at = ?1,
    ended_at = CASE WHEN ?5 THEN coalesce(ended_at, ?1) END, progress = ?6, state = ?7
WHERE saga = ?8 AND tenant = ?9 AND id = ?10 AND turn = ?11 RETURNING number
"""

# Add it to the history.
RECORD = "INSERT INTO posthouse_saga_turn (number, turn, record) VALUES (?, ?, ?)"

# Sagas in the order of starting.
FIND = f"""
SELECT {SAGA} FROM posthouse_saga WHERE number > ?1 AND (?2 IS NULL OR saga = ?2) AND (?3 IS NULL OR status = ?3)
    AND (?4 IS NULL OR tenant = ?4) AND (?5 IS NULL OR id = ?5) ORDER BY number LIMIT ?6
"""

# The turns of one saga.
HISTORY = """
SELECT t.record FROM posthouse_saga s JOIN posthouse_saga_turn t ON t.number = s.number
WHERE s.saga = ? AND s.tenant = ? AND s.id = ? ORDER BY t.turn
"""

# How many per saga and status.
COUNTS = "SELECT saga, status, count(*) FROM posthouse_saga GROUP BY saga, status"

# Those that ended before a time.
OLD = "SELECT number FROM posthouse_saga WHERE ended_at < ? ORDER BY ended_at LIMIT ?"

# Forget one, and its history.
FORGET = "DELETE FROM posthouse_saga WHERE number = ?"
FORGET_TURNS = "DELETE FROM posthouse_saga_turn WHERE number = ?"

_turns = msgspec.json.Decoder(SagaTurn)


class SqliteSagas:
    """The sagas of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, row: SagaRow) -> bool:
        now = self._clock.now()
        added = await tx.execute(ADD, (
            row.saga, row.tenant, row.id, row.status, row.turn, row.reason, now, now, progress_of(row), row.state,
        ))  # fmt: skip
        return added.rowcount > 0

    async def load(self, tx: Transaction, saga: str, tenant: str, id: str) -> SagaRow | None:
        found = await tx.execute(LOAD, (saga, tenant, id))
        return saga_row(found[0]) if found else None

    async def save(self, tx: Transaction, row: SagaRow, turn: SagaTurn, *, cancel: Sequence[str] = ()) -> bool:
        saved = await tx.execute(SAVE, (
            self._clock.now(), row.status, row.turn, row.reason, row.ended, progress_of(row), row.state,
            row.saga, row.tenant, row.id, row.turn - 1,
        ))  # fmt: skip
        if not saved:
            return False
        await tx.execute(RECORD, (saved.scalar(), row.turn, msgspec.json.encode(turn)))
        for name in cancel:
            await tx.execute(CANCEL, (row.tenant, name))
        return True

    async def find(self, wanted: SagaFilter, *, after: int = 0, limit: int = 100) -> Sequence[SagaRow]:
        parameters = (after, wanted.saga, wanted.status, wanted.tenant, wanted.id, limit)
        return [saga_row(columns) for columns in await self._database.select(FIND, parameters)]

    async def history(self, saga: str, tenant: str, id: str) -> Sequence[SagaTurn]:
        found: Sequence[Sequence[Any]] = await self._database.select(HISTORY, (saga, tenant, id))
        return [_turns.decode(record) for (record,) in found]

    async def counts(self) -> Mapping[tuple[str, SagaStatus], int]:
        found: Sequence[Sequence[Any]] = await self._database.select(COUNTS)
        return {(saga, status): number for saga, status, number in found}

    async def purge(self, age: float, limit: int) -> int:
        old = await self._database.select(OLD, (self._clock.now() - age, limit))
        if old:
            async with self._database.begin() as tx:
                tx.run_many(FORGET, old)
                tx.run_many(FORGET_TURNS, old)
        return len(old)
