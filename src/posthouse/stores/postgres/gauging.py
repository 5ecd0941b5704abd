"""Gauging: how a store stands, in one statement and so in one snapshot, by the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from posthouse.errors import StoreError, StoreUnavailable
from posthouse.store import Connections, Gauges
from posthouse.store.projections import Generation
from posthouse.store.sagas import NOT_OVER
from posthouse.stores.postgres.counting import FIGURES, counts_of
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import sqlstate_of
from posthouse.stores.postgres.steps import NOW

CANCELLED = "57014"

# The statement gives up by itself, and writes nothing.
LIMIT = "SELECT set_config('statement_timeout', $1, true), set_config('jit', 'off', true)"

# What ages are measured from, and what is no count: told apart by the first column, as in FIGURES.
STANDING = f"""
WITH clock AS MATERIALIZED (SELECT {NOW} AS now)
SELECT f.*, 0::double precision AS seconds FROM ({FIGURES}) f
UNION ALL SELECT 'at', '', '', 0, 0, now FROM clock
UNION ALL SELECT 'oldest stuck', '', '', 0, 0, (SELECT now FROM clock) - min(first_at) FROM posthouse.stuck HAVING count(*) > 0
UNION ALL SELECT 'oldest held', consumer, state, 0, 0, (SELECT now FROM clock) - min(first_at)
FROM posthouse.held WHERE state <> 'skipped' GROUP BY consumer, state
UNION ALL SELECT 'runnable', consumer, '', 0, 0, (SELECT now FROM clock) - min(next_at)
FROM posthouse.held WHERE state IN ('retrying', 'gap') AND next_at <= (SELECT now FROM clock) GROUP BY consumer
UNION ALL SELECT 'timers overdue', '', '', 0, 0, (SELECT now FROM clock) - min(due_at) FROM posthouse.timer HAVING count(*) > 0
UNION ALL SELECT 'saga', saga, status, count(*), 0, (SELECT now FROM clock) - min(started_at)
FROM posthouse.saga WHERE purged_at IS NULL GROUP BY saga, status
UNION ALL SELECT 'ended', saga, status, count(*), 0, 0 FROM posthouse.saga WHERE ended_at IS NOT NULL GROUP BY saga, status
UNION ALL SELECT 'schedule', service, name, 0, 0, (SELECT now FROM clock) - next_at FROM posthouse.schedule
WHERE paused_at IS NULL AND next_at < (SELECT now FROM clock)
UNION ALL SELECT 'generation', to_json(g)::text, '', 0, 0, 0 FROM posthouse.generation g WHERE g.state <> 'retired'
UNION ALL SELECT 'shards', '', '', count(*) FILTER (WHERE owner IS NOT NULL AND until > (SELECT now FROM clock)),
    count(*) FILTER (WHERE owner IS NULL OR until <= (SELECT now FROM clock)), sum(epoch) FROM posthouse.shard
UNION ALL SELECT 'connections', '', '', coalesce(sum(d.numbackends), 0)::bigint,
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint, 0
FROM pg_stat_database d
"""

_decoder = msgspec.json.Decoder(Generation)


async def gauged(database: Database, now: float | None, timeout: float) -> Gauges:
    """How it stands; `now` is None for the database's own clock."""
    await database.check()
    try:
        async with database.connected() as connection, connection.transaction(readonly=True):
            await connection.run(LIMIT, (str(max(1, round(timeout * 1000))),))
            rows: Any = await connection.run(database.text(STANDING), (now,))
    except StoreError as error:
        if sqlstate_of(error.__cause__ or error) != CANCELLED:
            raise
        raise StoreUnavailable(f"the database did not say how it stands within {timeout:g} s") from error
    return _gauges(rows, database)


def _gauges(rows: Sequence[Sequence[Any]], database: Database) -> Gauges:
    kinds: dict[str, list[Sequence[Any]]] = {}
    for what, *columns in rows:
        kinds.setdefault(what, []).append(columns)

    def ages(what: str) -> dict[Any, float]:
        return {(first, second): max(0.0, seconds) for first, second, *_, seconds in kinds.get(what, ())}

    def age(what: str) -> float:
        return ages(what).get(("", ""), 0.0)

    ((_, _, leased, free, leases),) = kinds["shards"]
    ((_, _, used, limit, _),) = kinds["connections"]
    sagas = kinds.get("saga", ())
    return Gauges(
        at=age("at"),
        counts=counts_of([row[:5] for row in rows]),
        oldest_stuck=age("oldest stuck"),
        held_oldest=ages("oldest held"),
        held_runnable={consumer: seconds for (consumer, _), seconds in ages("runnable").items()},
        timers_overdue=age("timers overdue"),
        sagas={(saga, status): number for saga, status, number, *_ in sagas},
        sagas_ended={(saga, outcome): number for saga, outcome, number, *_ in kinds.get("ended", ())},
        sagas_oldest={place: seconds for place, seconds in ages("saga").items() if place[1] in NOT_OVER},
        schedules_overdue=ages("schedule"),
        generations=[_generation(row) for row, *_ in kinds.get("generation", ())],
        shards_leased=leased,
        shards_free=free,
        leases=int(leases),
        runs=kinds["runs"][0][2],
        connections=Connections(own=database.share.in_use, own_limit=database.share.most, used=used, limit=limit),
    )


def _generation(row: str) -> Generation:
    found = _decoder.decode(row)
    return msgspec.structs.replace(found, tables=tuple(found.tables), effects=tuple(found.effects))
