"""Schedules: what runs again and again, and when it does next."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.clock import Clock
from posthouse.store import Rows, Transaction
from posthouse.store.schedules import ScheduleRow
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.joins import ours
from posthouse.stores.postgres.steps import NOW, Steps
from posthouse.stores.rows import SCHEDULE, schedule_row

MOMENT = NOW.replace("$1", "CAST($1 AS double precision)")

# Add a schedule that is not there yet.
ADD = f"""
INSERT INTO posthouse.schedule ({SCHEDULE})
VALUES (CAST($1 AS text), CAST($2 AS text), CAST($3 AS text), CAST($4 AS text), CAST($5 AS double precision),
    CAST($6 AS double precision), CAST($7 AS double precision), CAST($8 AS double precision),
    CAST($9 AS double precision), CAST($10 AS double precision))
ON CONFLICT (service, name) DO NOTHING RETURNING 1
"""

# One schedule, locked.
LOCK = f"""
SELECT {SCHEDULE}, {MOMENT} FROM posthouse.schedule
WHERE service = CAST($2 AS text) AND name = CAST($3 AS text) FOR UPDATE
"""

# One schedule, locked, if it is due and nobody has it.
LOCK_DUE = f"""
SELECT {SCHEDULE}, {MOMENT} FROM posthouse.schedule
WHERE service = CAST($2 AS text) AND name = CAST($3 AS text) AND paused_at IS NULL AND next_at <= {MOMENT}
FOR UPDATE SKIP LOCKED
"""

# Store what was decided about a schedule.
SAVE = """
UPDATE posthouse.schedule SET expression = CAST($3 AS text), tz = CAST($4 AS text),
    next_at = CAST($5 AS double precision), last_at = CAST($6 AS double precision),
    paused_at = CAST($7 AS double precision), seen_at = CAST($8 AS double precision)
WHERE service = CAST($1 AS text) AND name = CAST($2 AS text)
"""

# A run is done.
DONE = f"""
UPDATE posthouse.schedule SET done_at = CAST($4 AS double precision), ended_at = {MOMENT}
WHERE service = CAST($2 AS text) AND name = CAST($3 AS text) AND (done_at IS NULL OR done_at < CAST($4 AS double precision))
"""

# Forget a schedule.
REMOVE = "DELETE FROM posthouse.schedule WHERE service = CAST($1 AS text) AND name = CAST($2 AS text) RETURNING 1"

# Every schedule.
FIND = f"""
SELECT {SCHEDULE}, {NOW} FROM posthouse.schedule ORDER BY service COLLATE "C", name COLLATE "C"
"""


class PostgresSchedules:
    """The schedules of a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tx: Transaction, row: ScheduleRow) -> bool:
        return bool(await self._run(
            tx, ADD, row.service, row.name, row.expression, row.tz, row.next_at, row.last_at, row.done_at, row.ended_at,
            row.paused_at, row.seen_at,
        ))  # fmt: skip

    async def lock(self, tx: Transaction, service: str, name: str, *, due: bool = False) -> ScheduleRow | None:
        found = await self._run(tx, LOCK_DUE if due else LOCK, self._now(), service, name)
        return schedule_row(found[0]) if found else None

    async def save(self, tx: Transaction, row: ScheduleRow) -> None:
        await self._run(
            tx, SAVE, row.service, row.name, row.expression, row.tz, row.next_at, row.last_at, row.paused_at, row.seen_at,
        )  # fmt: skip

    async def done(self, tx: Transaction, service: str, name: str, moment: float) -> None:
        await self._run(tx, DONE, self._now(), service, name, moment)

    async def remove(self, tx: Transaction, service: str, name: str) -> bool:
        return bool(await self._run(tx, REMOVE, service, name))

    async def find(self) -> Sequence[ScheduleRow]:
        return [schedule_row(columns) for columns in await self._database.run(FIND, self._now())]

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()

    async def _run(self, tx: Transaction, sql: str, *parameters: object) -> Rows:
        return await (await ours(self._database, tx)).carry_out(_step(sql, parameters))


def _step(sql: str, parameters: Sequence[object]) -> Steps[Rows]:
    return (yield sql, parameters)
