"""Sagas: where each stands, and the history of its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.store import Rows, Transaction
from posthouse.store.sagas import SagaFilter, SagaRow, SagaStatus, SagaTurn, progress_of
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.joins import ours
from posthouse.stores.postgres.steps import NOW, Steps
from posthouse.stores.rows import SAGA, saga_row

MOMENT = NOW.replace("$1", "CAST($1 AS double precision)")

# Add a saga that is not there yet.
ADD = f"""
INSERT INTO posthouse.saga (saga, tenant, id, status, turn, reason, started_at, changed_at, progress, state)
VALUES (CAST($2 AS text), CAST($3 AS text), CAST($4 AS text), CAST($5 AS text), CAST($6 AS integer), CAST($7 AS text),
    {MOMENT}, {MOMENT}, CAST($8 AS text), CAST($9 AS text))
ON CONFLICT (tenant, saga, id) DO NOTHING RETURNING 1
"""

# One saga, locked.
LOAD = f"""
SELECT {SAGA} FROM posthouse.saga
WHERE saga = CAST($1 AS text) AND tenant = CAST($2 AS text) AND id = CAST($3 AS text) FOR UPDATE
"""

# Store the next turn of a saga, add it to the history, and cancel timers, all or nothing.
SAVE = f"""
WITH saved AS (
    UPDATE posthouse.saga SET status = CAST($2 AS text), turn = CAST($3 AS integer), reason = CAST($4 AS text),
        changed_at = {MOMENT}, ended_at = CASE WHEN CAST($5 AS boolean) THEN coalesce(ended_at, {MOMENT}) END,
        progress = CAST($6 AS text),
        state = CAST($7 AS text)
    WHERE saga = CAST($8 AS text) AND tenant = CAST($9 AS text) AND id = CAST($10 AS text)
        AND turn = CAST($11 AS integer)
    RETURNING tenant, number, turn
), cancelled AS (
    DELETE FROM posthouse.timer t USING saved s WHERE t.tenant = s.tenant AND t.name = ANY (CAST($12 AS text[]))
)
INSERT INTO posthouse.saga_turn (tenant, number, turn, record)
SELECT s.tenant, s.number, s.turn, CAST($13 AS text) FROM saved s RETURNING 1
"""

# Sagas in the order of starting.
FIND = f"""
SELECT {SAGA} FROM posthouse.saga WHERE number > $1 AND ($2::text IS NULL OR saga = $2)
    AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR tenant = $4) AND ($5::text IS NULL OR id = $5)
ORDER BY number LIMIT $6
"""

# One saga, unlocked.
LOOK = f"SELECT {SAGA} FROM posthouse.saga WHERE number > $1 AND saga = $2 AND tenant = $3 AND id = $4"

# The turns of one saga.
HISTORY = """
SELECT t.record FROM posthouse.saga s JOIN posthouse.saga_turn t ON t.tenant = s.tenant AND t.number = s.number
WHERE s.saga = $1 AND s.tenant = $2 AND s.id = $3 ORDER BY t.turn
"""

# How many per saga and status.
COUNTS = "SELECT saga, status, count(*) FROM posthouse.saga GROUP BY saga, status"

# Forget those that ended long ago, with their histories.
PURGE = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} - $2 AS before), gone AS (
    DELETE FROM posthouse.saga WHERE ctid = ANY (ARRAY(
        SELECT o.ctid FROM posthouse.saga o WHERE o.ended_at < (SELECT before FROM clock)
        ORDER BY o.ended_at LIMIT $3 FOR UPDATE SKIP LOCKED))
    RETURNING tenant, number
), turns AS (
    DELETE FROM posthouse.saga_turn t USING gone g WHERE t.tenant = g.tenant AND t.number = g.number
)
SELECT count(*) FROM gone
"""

_turns = msgspec.json.Decoder(SagaTurn)


class PostgresSagas:
    """The sagas of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, row: SagaRow) -> bool:
        return bool(await self._run(
            tx, ADD, self._now(), row.saga, row.tenant, row.id, row.status, row.turn, row.reason, progress_of(row), row.state.decode(),
        ))  # fmt: skip

    async def load(self, tx: Transaction, saga: str, tenant: str, id: str) -> SagaRow | None:
        found = await self._run(tx, LOAD, saga, tenant, id)
        return saga_row(found[0]) if found else None

    async def save(self, tx: Transaction, row: SagaRow, turn: SagaTurn, *, cancel: Sequence[str] = ()) -> bool:
        return bool(await self._run(
            tx, SAVE, self._now(), row.status, row.turn, row.reason, row.ended, progress_of(row), row.state.decode(),
            row.saga, row.tenant, row.id, row.turn - 1, list(cancel), msgspec.json.encode(turn).decode(),
        ))  # fmt: skip

    async def _run(self, tx: Transaction, sql: str, *parameters: object) -> Rows:
        return await (await ours(self._database, tx)).carry_out(_step(sql, parameters))

    async def find(self, wanted: SagaFilter, *, after: int = 0, limit: int = 100) -> Sequence[SagaRow]:
        one = (wanted.saga, wanted.tenant, wanted.id)
        if wanted.status is None and None not in one:
            found = await self._database.run(LOOK, after, *one)
        else:
            parameters = (after, wanted.saga, wanted.status, wanted.tenant, wanted.id, limit)
            found = await self._database.run(FIND, *parameters)
        return [saga_row(columns) for columns in found]

    async def history(self, saga: str, tenant: str, id: str) -> Sequence[SagaTurn]:
        found: Sequence[Sequence[Any]] = await self._database.run(HISTORY, saga, tenant, id)
        return [_turns.decode(record) for (record,) in found]

    async def counts(self) -> Mapping[tuple[str, SagaStatus], int]:
        found: Sequence[Sequence[Any]] = await self._database.run(COUNTS)
        return {(saga, status): number for saga, status, number in found}

    async def purge(self, age: float, limit: int) -> int:
        gone: Any = (await self._database.run(PURGE, self._now(), age, limit)).scalar()
        return int(gone)

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()


def _step(sql: str, parameters: Sequence[object]) -> Steps[Rows]:
    return (yield sql, parameters)
