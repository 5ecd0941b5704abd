"""Timers: rows that enter the outbox when their time has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from posthouse.errors import StoreError
from posthouse.store import Timer, Transaction
from posthouse.store.timers import PUT_BACK, Append
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import sqlstate_of
from posthouse.stores.postgres.joins import theirs_of
from posthouse.stores.postgres.outbox import PostgresOutbox
from posthouse.stores.postgres.schema import Place
from posthouse.stores.postgres.steps import NOW, Steps
from posthouse.stores.postgres.transaction import BEGUN, PostgresTransaction
from posthouse.stores.rows import TIMER, shard_of_row, timer_columns, timer_of, untyped

LOCKED = "55P03"
"""Somebody else holds it, and we do not wait."""

# What the clock says.
MOMENT = NOW.replace("$1", "CAST($1 AS double precision)")
CLOCK = f"SELECT {MOMENT}"

# Set a timer, or move and replace the one with its name.
SET = f"""
INSERT INTO posthouse.timer ({TIMER}, shard)
VALUES (CAST($1 AS text), coalesce(CAST($2 AS double precision) + coalesce(CAST($3 AS double precision),
        extract(epoch FROM clock_timestamp())::double precision), CAST($4 AS double precision)),
    CAST($5 AS text), CAST($6 AS text), CAST($7 AS text), CAST($8 AS text), CAST($9 AS boolean), CAST($10 AS text),
    CAST($11 AS text), CAST($12 AS bytea), CAST($13 AS smallint))
ON CONFLICT (tenant, name) DO UPDATE SET due_at = excluded.due_at, topic = excluded.topic, event_id = excluded.event_id,
    key = excluded.key, numbered = excluded.numbered, idempotency_key = excluded.idempotency_key,
    headers = excluded.headers, body = excluded.body, shard = excluded.shard
"""

# Cancel a timer.
CANCEL = "DELETE FROM posthouse.timer WHERE tenant = CAST($1 AS text) AND name = CAST($2 AS text) RETURNING 1"

# The same, while it says this event.
CANCEL_EVENT = f"{CANCEL.removesuffix(' RETURNING 1')} AND event_id = CAST($3 AS text) RETURNING 1"

# Let a timer be due.
HASTEN = f"""
UPDATE posthouse.timer SET due_at = least(due_at, {MOMENT})
WHERE tenant = CAST($2 AS text) AND name = CAST($3 AS text) RETURNING 1
"""

# Whether one is due, without waiting for another scheduler.
ANY_DUE = f"SELECT EXISTS (SELECT 1 FROM posthouse.timer WHERE due_at <= (SELECT {NOW}))"

# Move what is due into the outbox.
FIRE = "SELECT posthouse.fire($1, $2, $3)"

# The same for whoever adds the rows himself: take turns, wait for nobody, find what is free and take it out.
TAKE_TURNS = "SELECT pg_try_advisory_xact_lock(hashtextextended('posthouse.fire', 0))"
WAIT_FOR_NOBODY = "SELECT set_config('lock_timeout', '20ms', true)"
FREE = "SELECT f.ids FROM posthouse.free_timers($1, $2, '{}', $3) f"
TAKE = f"""
WITH gone AS (DELETE FROM posthouse.timer WHERE id = ANY ($1) RETURNING id, {TIMER})
SELECT {TIMER} FROM gone ORDER BY due_at, id
"""

# In how many seconds the next one is due.
NEXT_DUE = f"SELECT min(due_at) - {NOW} FROM posthouse.timer"

# What is not yet due, of one tenant or of all.
PENDING = f"""
SELECT {TIMER} FROM posthouse.timer WHERE $1::text IS NULL OR tenant = $1 ORDER BY due_at, id LIMIT $2
"""

# One by its name.
GET = f"SELECT {TIMER} FROM posthouse.timer WHERE tenant = $1 AND name = $2"


class PostgresTimers:
    """The timers of a `PostgresStore`."""

    def __init__(self, database: Database, outbox: PostgresOutbox, window: float) -> None:
        self._database = database
        self._outbox = outbox
        self._window = window

    async def now(self, tx: Transaction) -> float:
        theirs = tx if isinstance(tx, BEGUN) else theirs_of(self._database, tx)
        return await theirs.carry_out(_reading(self._outbox.now()))

    async def set(self, tx: Transaction, timer: Timer) -> None:
        if isinstance(tx, BEGUN):
            await tx.carry_out(self._setting(timer, await self._database.check()))
        else:
            theirs = theirs_of(self._database, tx)
            await theirs.carry_out(self._setting(timer, await theirs.checked()))

    async def cancel(self, tx: Transaction, tenant: str, name: str, *, event_id: str = "") -> bool:
        theirs = tx if isinstance(tx, BEGUN) else theirs_of(self._database, tx)
        return await theirs.carry_out(_cancelling(tenant, name, event_id))

    async def hasten(self, tx: Transaction, tenant: str, name: str) -> bool:
        theirs = tx if isinstance(tx, BEGUN) else theirs_of(self._database, tx)
        return await theirs.carry_out(_hastening(self._outbox.now(), tenant, name))

    async def fire(self, limit: int, append: Append | None = None) -> int:
        now = self._outbox.now()
        if not (await self._database.run(ANY_DUE, now)).scalar():
            return 0
        if append is not None:
            return await self._fire_by(append, limit, now)
        fired: Any = (await self._database.run_committed(FIRE, limit, now, self._window)).scalar()
        if fired:
            self._database.notifier.notify()
        return int(fired)

    async def _fire_by(self, append: Append, limit: int, now: float | None) -> int:
        """Fire timers whose rows somebody else adds. When one of them would have to wait for a transaction of a user, all are tried
        one by one, and those that wait are left for the next time."""
        passed: list[int] = []
        fired, most = 0, limit
        while fired + len(passed) < limit:
            ids: list[int] = []
            try:
                async with PostgresTransaction(self._database) as tx:
                    if not (await tx.run(TAKE_TURNS)).scalar():
                        return fired
                    await tx.run(WAIT_FOR_NOBODY)
                    ids = untyped((await tx.run(FREE, most, now, passed)).scalar())
                    if not ids:
                        return fired
                    timers = [timer_of(columns) for columns in await tx.run(TAKE, ids)]
                    left = await append(tx, [timer.row for timer in timers])
                    for timer in timers:
                        if timer.row.event_id in left:
                            await self.set(tx, msgspec.structs.replace(timer, after=PUT_BACK))
            except StoreError as error:
                if sqlstate_of(error.__cause__ or error) != LOCKED:
                    raise
                most, passed = 1, passed + ids if len(ids) == 1 else passed
                continue
            fired += len(ids)
            if most == limit:
                return fired
        return fired

    async def next_due(self) -> float | None:
        due: Any = (await self._database.run(NEXT_DUE, self._outbox.now())).scalar()
        return None if due is None else float(due)

    async def pending(self, tenant: str | None = None, limit: int = 100) -> Sequence[Timer]:
        return [timer_of(columns) for columns in await self._database.run(PENDING, tenant, limit)]

    async def get(self, tenant: str, name: str) -> Timer | None:
        found = list(await self._database.run(GET, tenant, name))
        return timer_of(found[0]) if found else None

    def _setting(self, timer: Timer, place: Place) -> Steps[None]:
        place_in_outbox = shard_of_row(timer.row, place.shards)
        yield SET, (timer.name, timer.after, self._outbox.now(), timer.due_at, *timer_columns(timer), place_in_outbox)


def _reading(now: float | None) -> Steps[float]:
    found: Any = (yield CLOCK, (now,))[0][0]
    return float(found)


def _hastening(now: float | None, tenant: str, name: str) -> Steps[bool]:
    return bool((yield HASTEN, (now, tenant, name)))


def _cancelling(tenant: str, name: str, event_id: str) -> Steps[bool]:
    return bool((yield (CANCEL_EVENT, (tenant, name, event_id)) if event_id else (CANCEL, (tenant, name))))
