"""Sagas: where each stands, and the history of its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.store import HeldEvent, Rows, Transaction
from posthouse.store.sagas import NOT_OVER, SHAPED, SagaFilter, SagaRow, SagaStatus, SagaTurn, progress_of, shape_of
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.joins import ours
from posthouse.stores.postgres.steps import NOW, Steps
from posthouse.stores.rows import SAGA, find_sagas, parent_columns, saga_row

MOMENT = NOW.replace("$1", "CAST($1 AS double precision)")

# Add a saga that is not there yet.
ADD = f"""
INSERT INTO posthouse.saga (saga, tenant, id, attempt, status, turn, reason, correlation, parent_saga, parent_id,
    parent_attempt, started_at, changed_at, progress, state)
VALUES (CAST($2 AS text), CAST($3 AS text), CAST($4 AS text), CAST($5 AS integer), CAST($6 AS text), CAST($7 AS integer),
    CAST($8 AS text), CAST($9 AS text), CAST($10 AS text), CAST($11 AS text), CAST($12 AS integer),
    {MOMENT}, {MOMENT}, CAST($13 AS text), CAST($14 AS text))
ON CONFLICT (tenant, saga, id, attempt) DO NOTHING RETURNING 1
"""

# One saga, locked.
LOAD = f"""
SELECT {SAGA} FROM posthouse.saga
WHERE saga = CAST($1 AS text) AND tenant = CAST($2 AS text) AND id = CAST($3 AS text)
    AND (CAST($4 AS integer) IS NULL OR attempt = CAST($4 AS integer))
ORDER BY (correlation = CAST($5 AS text)) IS TRUE DESC, attempt DESC LIMIT 1 FOR UPDATE
"""

# Store the next turn of a saga with its index, add it to the history, and cancel timers, all or nothing.
SAVE = f"""
WITH saved AS (
    UPDATE posthouse.saga SET status = CAST($2 AS text), turn = CAST($3 AS integer), reason = CAST($4 AS text),
        changed_at = {MOMENT}, ended_at = CASE WHEN CAST($5 AS boolean) THEN coalesce(ended_at, {MOMENT}) END,
        progress = CAST($6 AS text), shape = CAST($17 AS text),
        state = CAST($7 AS text)
    WHERE saga = CAST($8 AS text) AND tenant = CAST($9 AS text) AND id = CAST($10 AS text)
        AND attempt = CAST($11 AS integer) AND turn = CAST($12 AS integer)
    RETURNING tenant, number, turn
), cancelled AS (
    DELETE FROM posthouse.timer t USING saved s WHERE t.tenant = s.tenant AND t.name = ANY (CAST($13 AS text[]))
), unindexed AS (
    DELETE FROM posthouse.saga_index i USING saved s
    WHERE i.tenant = s.tenant AND i.number = s.number AND i.field <> ALL (CAST($15 AS text[]))
), indexed AS (
    INSERT INTO posthouse.saga_index AS i (tenant, number, field, value)
    SELECT s.tenant, s.number, f.field, f.value
    FROM saved s, unnest(CAST($15 AS text[]), CAST($16 AS text[])) AS f (field, value)
    ON CONFLICT (tenant, number, field) DO UPDATE SET value = excluded.value WHERE i.value <> excluded.value
)
INSERT INTO posthouse.saga_turn (tenant, number, turn, record)
SELECT s.tenant, s.number, s.turn, CAST($14 AS text) FROM saved s RETURNING 1
"""

# One that was awaited is started.
BEGIN = f"""
UPDATE posthouse.saga SET correlation = CAST($2 AS text), parent_saga = CAST($3 AS text), parent_id = CAST($4 AS text),
    parent_attempt = CAST($5 AS integer), started_at = {MOMENT}
WHERE tenant = CAST($6 AS text) AND number = CAST($7 AS bigint) AND status = 'awaited'
    AND purged_at IS NULL
"""

# One that was awaited is not any more.
DROP = """
WITH gone AS (
    DELETE FROM posthouse.saga WHERE tenant = CAST($1 AS text) AND number = CAST($2 AS bigint) AND status = 'awaited'
    AND purged_at IS NULL
    RETURNING tenant, number
)
DELETE FROM posthouse.saga_turn t USING gone g WHERE t.tenant = g.tenant AND t.number = g.number
"""

# Keep an event that came too early, and take it out.
PARK = """
INSERT INTO posthouse.saga_waiting (tenant, number, event_id, event)
VALUES (CAST($1 AS text), CAST($2 AS bigint), CAST($3 AS text), CAST($4 AS bytea))
ON CONFLICT (tenant, number, event_id) DO UPDATE SET event = excluded.event
"""
UNPARK = """
DELETE FROM posthouse.saga_waiting
WHERE tenant = CAST($1 AS text) AND number = CAST($2 AS bigint) AND event_id = CAST($3 AS text) RETURNING event
"""

# Sagas that are not over, some of each shape, spread over the time in which they were started, of the oldest and the newest.
# The first of a shape stands for all that are not shown.
SHAPES = f"""
WITH looked AS MATERIALIZED (
    SELECT n.saga, u.status, e.number, e.shape FROM unnest($1::text[]) n (saga) CROSS JOIN unnest($2::text[]) u (status)
    CROSS JOIN LATERAL (
        (SELECT s.number, s.shape FROM posthouse.saga s
            WHERE s.saga = n.saga AND s.status = u.status AND s.purged_at IS NULL
            ORDER BY s.saga, s.status, s.number LIMIT $4)
        UNION
        (SELECT s.number, s.shape FROM posthouse.saga s
            WHERE s.saga = n.saga AND s.status = u.status AND s.purged_at IS NULL
            ORDER BY s.saga DESC, s.status DESC, s.number DESC LIMIT $4)) e
), placed AS (
    SELECT number, count(*) OVER same AS times, row_number() OVER (same ORDER BY number) AS place
    FROM looked WINDOW same AS (PARTITION BY saga, status, shape)
)
SELECT CASE place WHEN 1 THEN times - (times + step - 1) / step + 1 ELSE 1 END, {", ".join(f"s.{name}" for name in SAGA.split(", "))}
FROM (SELECT *, (times + $3::bigint - 1) / $3::bigint AS step FROM placed) AS counted
CROSS JOIN LATERAL (SELECT * FROM posthouse.saga one WHERE one.number = counted.number AND one.purged_at IS NULL OFFSET 0) s
WHERE (place - 1) % step = 0 ORDER BY number
"""

# The turns of one saga.
HISTORY = """
SELECT t.record FROM posthouse.saga s JOIN posthouse.saga_turn t ON t.tenant = s.tenant AND t.number = s.number
WHERE s.saga = $1 AND s.tenant = $2 AND s.id = $3 AND s.attempt = coalesce($4, (
    SELECT max(n.attempt) FROM posthouse.saga n WHERE n.saga = $1 AND n.tenant = $2 AND n.id = $3)) ORDER BY t.turn
"""

# The same, by the number of a saga.
TURNS = """
SELECT record FROM posthouse.saga_turn WHERE tenant = CAST($1 AS text) AND number = CAST($2 AS bigint) ORDER BY turn
"""

# How many per saga and status.
COUNTS = "SELECT t.name, t.state, t.number FROM posthouse.tallied() t WHERE t.kind = 'saga'"

# Of those that ended long ago leave a tombstone, and nothing else.
PURGE = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} AS now, {NOW} - $2 AS before), gone AS (
    UPDATE posthouse.saga SET purged_at = (SELECT now FROM clock), progress = '{{}}', state = '{{}}'
    WHERE ctid = ANY (ARRAY(
        SELECT o.ctid FROM posthouse.saga o WHERE o.purged_at IS NULL AND o.ended_at < (SELECT before FROM clock)
            AND CAST(o.progress AS jsonb) -> 'deadlines' IS NULL
            AND NOT EXISTS (SELECT FROM posthouse.saga_waiting w WHERE w.tenant = o.tenant AND w.number = o.number)
        ORDER BY o.ended_at LIMIT $3 FOR UPDATE SKIP LOCKED))
    RETURNING tenant, number
), turns AS (
    DELETE FROM posthouse.saga_turn t USING gone g WHERE t.tenant = g.tenant AND t.number = g.number
), fields AS (
    DELETE FROM posthouse.saga_index i USING gone g WHERE i.tenant = g.tenant AND i.number = g.number
)
SELECT count(*) FROM gone
"""

# Delete tombstones.
FORGET = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} - $2 AS before), gone AS (
    DELETE FROM posthouse.saga WHERE ctid = ANY (ARRAY(
        SELECT o.ctid FROM posthouse.saga o WHERE o.purged_at IS NOT NULL AND o.ended_at < (SELECT before FROM clock)
        ORDER BY o.ended_at LIMIT $3 FOR UPDATE SKIP LOCKED))
    RETURNING tenant, number
), turns AS (
    DELETE FROM posthouse.saga_turn t USING gone g WHERE t.tenant = g.tenant AND t.number = g.number
)
SELECT count(*) FROM gone
"""

_turns = msgspec.json.Decoder(SagaTurn)
_parked = msgspec.msgpack.Decoder(HeldEvent)


class PostgresSagas:
    """The sagas of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, row: SagaRow) -> bool:
        return bool(await self._run(
            tx, ADD, self._now(), row.saga, row.tenant, row.id, row.attempt, row.status, row.turn, row.reason, row.correlation,
            *parent_columns(row.parent), progress_of(row), row.state.decode(),
        ))  # fmt: skip

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
        which = (saga, tenant, id, attempt, correlation)
        found = _first(await self._run(tx, LOAD, *which))
        while found is not None and found.ended and attempt is None:
            # Whoever began it again held this row until now: the next attempt is seen by the next statement only.
            before, found = found, _first(await self._run(tx, LOAD, *which))
            if found is None or found.attempt == before.attempt:
                break
        return found

    async def save(self, tx: Transaction, row: SagaRow, turn: SagaTurn, *, cancel: Sequence[str] = ()) -> bool:
        return bool(await self._run(
            tx, SAVE, self._now(), row.status, row.turn, row.reason, row.ended, progress_of(row), row.state.decode(),
            row.saga, row.tenant, row.id, row.attempt, row.turn - 1, list(cancel), msgspec.json.encode(turn).decode(),
            list(row.index), list(row.index.values()), shape_of(row),
        ))  # fmt: skip

    async def begin(self, tx: Transaction, row: SagaRow) -> None:
        parent = parent_columns(row.parent)
        await self._run(tx, BEGIN, self._now(), row.correlation, *parent, row.tenant, row.number)

    async def drop(self, tx: Transaction, row: SagaRow) -> None:
        await self._run(tx, DROP, row.tenant, row.number)

    async def park(self, tx: Transaction, row: SagaRow, event: HeldEvent) -> None:
        await self._run(tx, PARK, row.tenant, row.number, event.entry.event_id, msgspec.msgpack.encode(event))

    async def unpark(self, tx: Transaction, row: SagaRow, event_id: str) -> HeldEvent | None:
        found: Sequence[Sequence[Any]] = await self._run(tx, UNPARK, row.tenant, row.number, event_id)
        return _parked.decode(found[0][0]) if found else None

    async def _run(self, tx: Transaction, sql: str, *parameters: object) -> Rows:
        return await (await ours(self._database, tx)).carry_out(_step(sql, parameters))

    async def find(self, wanted: SagaFilter, *, after: int = 0, limit: int = 100) -> Sequence[SagaRow]:
        sql, parameters = find_sagas(wanted, after=after, limit=limit, prefix="posthouse.")
        numbered = sql.format(*(f"${number}" for number in range(1, len(parameters) + 1)))
        return [saga_row(columns) for columns in await self._database.run(numbered, *parameters)]

    async def history(self, saga: str, tenant: str, id: str, *, attempt: int | None = None) -> Sequence[SagaTurn]:
        found: Sequence[Sequence[Any]] = await self._database.run(HISTORY, saga, tenant, id, attempt)
        return [_turns.decode(record) for (record,) in found]

    async def turns_in(self, tx: Transaction, row: SagaRow) -> Sequence[SagaTurn]:
        found: Sequence[Sequence[Any]] = await self._run(tx, TURNS, row.tenant, row.number)
        return [_turns.decode(record) for (record,) in found]

    async def shapes(self, sagas: Sequence[str], each: int, *, among: int = SHAPED) -> Sequence[tuple[SagaRow, int]]:
        found: Sequence[Sequence[Any]] = await self._database.run(
            SHAPES, sorted(set(sagas)), list(NOT_OVER), each, among
        )
        return [(saga_row(columns), times) for times, *columns in found]

    async def counts(self) -> Mapping[tuple[str, SagaStatus], int]:
        found: Sequence[Sequence[Any]] = await self._database.run(COUNTS)
        return {(saga, status): number for saga, status, number in found}

    async def purge(self, age: float, limit: int) -> int:
        gone: Any = (await self._database.run(PURGE, self._now(), age, limit)).scalar()
        return int(gone)

    async def forget(self, age: float, limit: int) -> int:
        gone: Any = (await self._database.run(FORGET, self._now(), age, limit)).scalar()
        return int(gone)

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()


def _first(found: Rows) -> SagaRow | None:
    return saga_row(found[0]) if found else None


def _step(sql: str, parameters: Sequence[object]) -> Steps[Rows]:
    return (yield sql, parameters)
