"""Sagas: where each stands, and the history of its turns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.store import HeldEvent, Transaction
from posthouse.store.sagas import NOT_OVER, SHAPED, SagaFilter, SagaRow, SagaStatus, SagaTurn, progress_of, shape_of
from posthouse.stores.rows import SAGA, find_sagas, parent_columns, saga_row
from posthouse.stores.sqlite.database import Database
from posthouse.stores.sqlite.timers import CANCEL

# Add a saga that is not there yet.
ADD = """
INSERT INTO posthouse_saga (saga, tenant, id, attempt, status, turn, reason, correlation, parent_saga, parent_id,
    parent_attempt, started_at, changed_at, progress, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""

# One saga; whoever writes has the only lock already.
LOAD = f"""
SELECT {SAGA} FROM posthouse_saga WHERE saga = ?1 AND tenant = ?2 AND id = ?3 AND (?4 IS NULL OR attempt = ?4)
ORDER BY (correlation = ?5) IS TRUE DESC, attempt DESC LIMIT 1
"""

# Store the next turn of a saga.
SAVE = """
UPDATE posthouse_saga SET status = ?2, turn = ?3, reason = ?4, changed_at = ?1,
    ended_at = CASE WHEN ?5 THEN coalesce(ended_at, ?1) END, progress = ?6, state = ?7,
    shape = ?13
WHERE saga = ?8 AND tenant = ?9 AND id = ?10 AND attempt = ?11 AND turn = ?12 RETURNING number
"""

# The fields that it is found by, from now on.
UNINDEX = "DELETE FROM posthouse_saga_index WHERE number = ? AND field NOT IN (SELECT key FROM json_each(?))"
INDEX = """
INSERT INTO posthouse_saga_index (tenant, number, field, value) SELECT ?, ?, key, value FROM json_each(?) WHERE true
ON CONFLICT (number, field) DO UPDATE SET value = excluded.value WHERE value <> excluded.value
"""

# Add it to the history.
RECORD = "INSERT INTO posthouse_saga_turn (number, turn, record) VALUES (?, ?, ?)"

# One that was awaited is started, or is not awaited any more.
BEGIN = """
UPDATE posthouse_saga SET correlation = ?, parent_saga = ?, parent_id = ?, parent_attempt = ?, started_at = ?
WHERE number = ? AND status = 'awaited'
"""
DROP = "DELETE FROM posthouse_saga WHERE number = ? AND status = 'awaited'"

# Keep an event that came too early, and take it out.
PARK = """
INSERT INTO posthouse_saga_waiting (number, event_id, event) VALUES (?, ?, ?)
ON CONFLICT (number, event_id) DO UPDATE SET event = excluded.event
"""
UNPARK = "DELETE FROM posthouse_saga_waiting WHERE number = ? AND event_id = ? RETURNING event"

# Sagas that are not over, some of each shape, spread over the time in which they were started. The first of a shape stands
# for all that are not shown.
SHAPES = f"""
WITH edge AS MATERIALIZED (
    SELECT n.value AS saga, u.value AS status,
        coalesce((SELECT s.number FROM posthouse_saga s WHERE s.saga = n.value AND s.status = u.value AND s.purged_at IS NULL
            ORDER BY s.number LIMIT 1 OFFSET ?4 - 1), 9223372036854775807) AS old,
        coalesce((SELECT s.number FROM posthouse_saga s WHERE s.saga = n.value AND s.status = u.value AND s.purged_at IS NULL
            ORDER BY s.number DESC LIMIT 1 OFFSET ?4 - 1), 0) AS new
    FROM json_each(?1) n, json_each(?2) u
), looked AS (
    SELECT s.number, s.saga, s.status, s.shape FROM edge e CROSS JOIN posthouse_saga s
    WHERE s.saga = e.saga AND s.status = e.status AND s.purged_at IS NULL AND s.number <= e.old
    UNION
    SELECT s.number, s.saga, s.status, s.shape FROM edge e CROSS JOIN posthouse_saga s
    WHERE s.saga = e.saga AND s.status = e.status AND s.purged_at IS NULL AND s.number >= e.new
), placed AS (
    SELECT number, count(*) OVER same AS times, row_number() OVER (same ORDER BY number) AS place
    FROM looked WINDOW same AS (PARTITION BY saga, status, shape)
)
SELECT CASE place WHEN 1 THEN times - (times + step - 1) / step + 1 ELSE 1 END, {", ".join(f"s.{name}" for name in SAGA.split(", "))}
FROM (SELECT *, (times + ?3 - 1) / ?3 AS step FROM placed) AS counted JOIN posthouse_saga s USING (number)
WHERE (place - 1) % step = 0 ORDER BY number
"""

# The turns of one saga.
HISTORY = """
SELECT t.record FROM posthouse_saga s JOIN posthouse_saga_turn t ON t.number = s.number
WHERE s.saga = ?1 AND s.tenant = ?2 AND s.id = ?3 AND s.attempt = coalesce(?4, (
    SELECT max(n.attempt) FROM posthouse_saga n WHERE n.saga = ?1 AND n.tenant = ?2 AND n.id = ?3)) ORDER BY t.turn
"""

# The same, by the number of a saga.
TURNS = "SELECT record FROM posthouse_saga_turn WHERE number = ? ORDER BY turn"

# How many per saga and status.
COUNTS = "SELECT name, state, number FROM posthouse_tally WHERE kind = 'saga' AND number <> 0"

# Those that ended before a time, and of which more than a tombstone is left. What comes late may have set a deadline.
OLD = """
SELECT number FROM posthouse_saga s WHERE ended_at < ? AND purged_at IS NULL
    AND json_extract(progress, '$.deadlines') IS NULL
    AND NOT EXISTS (SELECT 1 FROM posthouse_saga_waiting w WHERE w.number = s.number) ORDER BY ended_at LIMIT ?
"""

# Leave a tombstone, and nothing else.
BLANK = "UPDATE posthouse_saga SET purged_at = ?, progress = '{}', state = x'7b7d' WHERE number = ?"
FORGET_TURNS = "DELETE FROM posthouse_saga_turn WHERE number = ?"
FORGET_INDEX = "DELETE FROM posthouse_saga_index WHERE number = ?"

# Tombstones of those that ended before a time.
BURIED = "SELECT number FROM posthouse_saga WHERE ended_at < ? AND purged_at IS NOT NULL ORDER BY ended_at LIMIT ?"

# Delete one.
FORGET = "DELETE FROM posthouse_saga WHERE number = ?"

_turns = msgspec.json.Decoder(SagaTurn)
_parked = msgspec.msgpack.Decoder(HeldEvent)


class SqliteSagas:
    """The sagas of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, row: SagaRow) -> bool:
        now = self._clock.now()
        added = await tx.execute(ADD, (
            row.saga, row.tenant, row.id, row.attempt, row.status, row.turn, row.reason, row.correlation,
            *parent_columns(row.parent), now, now, progress_of(row), row.state,
        ))  # fmt: skip
        return added.rowcount > 0

    async def load(
        self,
        tx: Transaction,
        saga: str,
        tenant: str,
        id: str,
        *,
        attempt: int | None = None,
        correlation: str | None = None,
    ) -> SagaRow | None:
        found = await tx.execute(LOAD, (saga, tenant, id, attempt, correlation))
        return saga_row(found[0]) if found else None

    async def save(self, tx: Transaction, row: SagaRow, turn: SagaTurn, *, cancel: Sequence[str] = ()) -> bool:
        saved = await tx.execute(SAVE, (
            self._clock.now(), row.status, row.turn, row.reason, row.ended, progress_of(row), row.state,
            row.saga, row.tenant, row.id, row.attempt, row.turn - 1, shape_of(row),
        ))  # fmt: skip
        if not saved:
            return False
        number, index = saved.scalar(), msgspec.json.encode(row.index).decode()
        await tx.execute(RECORD, (number, row.turn, msgspec.json.encode(turn)))
        await tx.execute(UNINDEX, (number, index))
        await tx.execute(INDEX, (row.tenant, number, index))
        for name in cancel:
            await tx.execute(CANCEL, (row.tenant, name))
        return True

    async def begin(self, tx: Transaction, row: SagaRow) -> None:
        parent = parent_columns(row.parent)
        await tx.execute(BEGIN, (row.correlation, *parent, self._clock.now(), row.number))

    async def drop(self, tx: Transaction, row: SagaRow) -> None:
        if (await tx.execute(DROP, (row.number,))).rowcount:
            await tx.execute(FORGET_TURNS, (row.number,))

    async def park(self, tx: Transaction, row: SagaRow, event: HeldEvent) -> None:
        await tx.execute(PARK, (row.number, event.entry.event_id, msgspec.msgpack.encode(event)))

    async def unpark(self, tx: Transaction, row: SagaRow, event_id: str) -> HeldEvent | None:
        found = await tx.execute(UNPARK, (row.number, event_id))
        blob: Any = found.scalar() if found else None
        return None if blob is None else _parked.decode(blob)

    async def find(self, wanted: SagaFilter, *, after: int = 0, limit: int = 100) -> Sequence[SagaRow]:
        sql, parameters = find_sagas(wanted, after=after, limit=limit, prefix="posthouse_")
        return [saga_row(columns) for columns in await self._database.select(sql.replace("{}", "?"), parameters)]

    async def history(self, saga: str, tenant: str, id: str, *, attempt: int | None = None) -> Sequence[SagaTurn]:
        found: Sequence[Sequence[Any]] = await self._database.select(HISTORY, (saga, tenant, id, attempt))
        return [_turns.decode(record) for (record,) in found]

    async def turns_in(self, tx: Transaction, row: SagaRow) -> Sequence[SagaTurn]:
        found: Sequence[Sequence[Any]] = await tx.execute(TURNS, (row.number,))
        return [_turns.decode(record) for (record,) in found]

    async def shapes(self, sagas: Sequence[str], each: int, *, among: int = SHAPED) -> Sequence[tuple[SagaRow, int]]:
        parameters = (json.dumps(sorted(set(sagas))), json.dumps(NOT_OVER), each, among)
        found: Sequence[Sequence[Any]] = await self._database.select(SHAPES, parameters)
        return [(saga_row(columns), times) for times, *columns in found]

    async def counts(self) -> Mapping[tuple[str, SagaStatus], int]:
        found: Sequence[Sequence[Any]] = await self._database.select(COUNTS)
        return {(saga, status): number for saga, status, number in found}

    async def purge(self, age: float, limit: int) -> int:
        now = self._clock.now()
        old: Sequence[Sequence[Any]] = await self._database.select(OLD, (now - age, limit))
        if old:
            async with self._database.begin() as tx:
                old = list(await tx.execute(OLD, (now - age, limit)))  # one may go on meanwhile: something came late
                tx.run_many(BLANK, [(now, number) for (number,) in old])
                tx.run_many(FORGET_TURNS, old)
                tx.run_many(FORGET_INDEX, old)
        return len(old)

    async def forget(self, age: float, limit: int) -> int:
        old = await self._database.select(BURIED, (self._clock.now() - age, limit))
        if old:
            async with self._database.begin() as tx:
                tx.run_many(FORGET, old)
                tx.run_many(FORGET_TURNS, old)
        return len(old)
