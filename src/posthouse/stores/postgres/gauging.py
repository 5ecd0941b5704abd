"""Gauging: how a store stands, in one statement and so in one snapshot, by the database's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from posthouse.errors import StoreError, StoreUnavailable
from posthouse.local.postgres.pool import Share
from posthouse.store import Connections, Gauges
from posthouse.store.projections import Generation
from posthouse.store.sagas import NOT_OVER
from posthouse.stores.postgres.counting import FIGURES, MOST, counts_of, kinds_of
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import sqlstate_of
from posthouse.stores.postgres.steps import NOW

CANCELLED = "57014"

# The statement gives up by itself, and reads by index what may be large, whatever is known of the tables.
LIMIT = """
SELECT set_config('statement_timeout', $1, true), set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true)
"""

DUE = 200
"""Retries that are due, of which those are counted whose turn it is."""

# What ages are measured from, and what is no count: told apart by the first column, as in FIGURES. The index of held events, and
# that of sagas, is read in leaps, from the first of each kind to the first of the next.
STANDING = f"""
WITH RECURSIVE clock AS MATERIALIZED (SELECT {NOW} AS now),
held_kind AS (
    (SELECT h.consumer, h.topic, h.state, h.first_at FROM posthouse.held h
        ORDER BY h.consumer, h.topic, h.state, h.id LIMIT 1)
    UNION ALL
    SELECT n.* FROM held_kind k CROSS JOIN LATERAL (
        SELECT h.consumer, h.topic, h.state, h.first_at FROM posthouse.held h
        WHERE (h.consumer, h.topic, h.state) > (k.consumer, k.topic, k.state)
        ORDER BY h.consumer, h.topic, h.state, h.id LIMIT 1) n
), saga_kind AS (
    (SELECT s.saga, s.status, s.started_at FROM posthouse.saga s WHERE s.purged_at IS NULL
        ORDER BY s.saga, s.status, s.number LIMIT 1)
    UNION ALL
    SELECT n.* FROM saga_kind k CROSS JOIN LATERAL (
        SELECT s.saga, s.status, s.started_at FROM posthouse.saga s
        WHERE s.purged_at IS NULL AND (s.saga, s.status) > (k.saga, k.status)
        ORDER BY s.saga, s.status, s.number LIMIT 1) n
)
SELECT f.* FROM ({FIGURES}) f
UNION ALL SELECT 'at', '', '', 0, 0, c.now FROM clock c
UNION ALL SELECT 'oldest stuck', t.topic, '', 0, 0, c.now - s.first_at
FROM clock c, posthouse.tallied() t CROSS JOIN LATERAL (
    SELECT k.first_at FROM posthouse.stuck k WHERE k.topic = t.topic AND NOT k.quarantined ORDER BY k.first_at LIMIT 1) s
WHERE t.kind = 'stuck' AND t.state = 'waiting'
UNION ALL SELECT 'oldest held', k.consumer, k.state, 0, 0, max(c.now - k.first_at)
FROM clock c, held_kind k WHERE k.state <> 'skipped' GROUP BY k.consumer, k.state
UNION ALL SELECT 'runnable', k.consumer, '', sum(e.due)::bigint, 0, max(c.now - e.next_at)
FROM clock c CROSS JOIN (SELECT DISTINCT consumer, state FROM held_kind WHERE state IN ('retrying', 'gap')) k CROSS JOIN LATERAL (
    SELECT min(d.next_at) AS next_at, count(*) FILTER (WHERE d.state = 'retrying') AS due FROM (
        SELECT h.* FROM posthouse.held h WHERE h.consumer = k.consumer AND h.state = k.state AND h.next_at <= c.now
        ORDER BY h.next_at LIMIT {DUE}) d
    WHERE d.state = 'gap' OR d.sequence IS NULL OR d.sequence = (SELECT n.sequence + 1 FROM posthouse.head n
        WHERE n.tenant = d.tenant AND n.consumer = d.consumer AND n.topic = d.topic AND n.key = d.key)
    HAVING count(*) > 0) e
GROUP BY k.consumer
UNION ALL (SELECT 'timers overdue', '', '', 0, 0, c.now - t.due_at FROM clock c, posthouse.timer t ORDER BY t.due_at, t.id LIMIT 1)
UNION ALL SELECT 'oldest saga', k.saga, k.status, 0, 0, c.now - k.started_at FROM clock c, saga_kind k
UNION ALL SELECT 'schedule', s.service, s.name, 0, 0, c.now - s.next_at FROM clock c, posthouse.schedule s
WHERE s.paused_at IS NULL AND s.next_at < c.now
UNION ALL SELECT 'generation', to_json(g)::text, '', 0, 0, 0 FROM posthouse.generation g WHERE g.state <> 'retired'
UNION ALL SELECT 'shards', '', '', count(*) FILTER (WHERE l.owner IS NOT NULL AND l.until > c.now),
    count(*) FILTER (WHERE l.owner IS NULL OR l.until <= c.now), sum(l.epoch) FROM clock c, posthouse.shard l
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
            rows: Any = await connection.run(database.text(STANDING), (now, MOST))
    except StoreError as error:
        if sqlstate_of(error.__cause__ or error) != CANCELLED:
            raise
        raise StoreUnavailable(f"the database did not say how it stands within {timeout:g} s") from error
    return _gauges(rows, database.share)


def _gauges(rows: Sequence[Sequence[Any]], share: Share) -> Gauges:
    kinds = kinds_of(rows)

    def ages(what: str) -> dict[Any, float]:
        return {(first, second): max(0.0, seconds) for first, second, *_, seconds in kinds[what]}

    def age(what: str) -> float:
        return max((seconds for *_, seconds in kinds[what]), default=0.0)

    ((_, _, leased, free, leases),) = kinds["shards"]
    ((_, _, used, limit, _),) = kinds["connections"]
    return Gauges(
        at=age("at"),
        counts=counts_of(rows, MOST),
        unsent_oldest=_unsent_oldest(kinds),
        held_oldest=ages("oldest held"),
        held_runnable={consumer: seconds for (consumer, _), seconds in ages("runnable").items()},
        held_due={consumer: due for consumer, _, due, *_ in kinds["runnable"] if due},
        timers_overdue=max(0.0, age("timers overdue")),
        sagas=_of_sagas(kinds, "saga"),
        sagas_ended=_of_sagas(kinds, "ended"),
        sagas_oldest={place: seconds for place, seconds in ages("oldest saga").items() if place[1] in NOT_OVER},
        schedules_overdue=ages("schedule"),
        generations=[_generation(row) for row, *_ in kinds["generation"]],
        shards_leased=leased,
        shards_free=free,
        leases=int(leases),
        runs=kinds["runs"][0][2],
        connections=Connections(own=share.in_use, own_limit=share.most, used=used, limit=limit),
    )


def _unsent_oldest(kinds: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for what in ("backlog", "first", "oldest stuck"):
        for topic, *_, seconds in kinds[what]:
            found[topic] = max(found.get(topic, 0.0), seconds)
    return found


def _of_sagas(kinds: Mapping[str, Sequence[Sequence[Any]]], kind: str) -> dict[Any, int]:
    """Those of the tally of this kind, by saga and status."""
    found = ((what.removeprefix(f"{kind} "), rows) for what, rows in kinds.items() if what.startswith(f"{kind} "))
    return {(saga, status): number for status, rows in found for saga, _, number, *_ in rows}


def _generation(row: str) -> Generation:
    found = _decoder.decode(row)
    return msgspec.structs.replace(found, tables=tuple(found.tables), effects=tuple(found.effects))
