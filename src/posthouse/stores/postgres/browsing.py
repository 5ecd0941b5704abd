"""Browsing: lists for people, each composed of what is asked alone, so that an index answers it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any

from posthouse.errors import StoreError, StoreUnavailable
from posthouse.store import HeldFilter, HeldState
from posthouse.store.actions import Action, ActionFilter
from posthouse.store.browsing import (
    ACTIONS_SLOW,
    APPLIED_SLOW,
    BEHIND,
    BEHIND_SLOW,
    BY_TENANT_SLOW,
    COUNTED,
    COUNTED_OF_TENANT,
    GROUPS_SLOW,
    HEADS_SLOW,
    HELD_SLOW,
    LOOKED_THROUGH,
    OUTBOX_SLOW,
    SAGAS_SLOW,
    SAID_SLOW,
    SHOWN,
    TIMEOUT,
    TIMERS_SLOW,
    Applied,
    Bounded,
    Head,
    HeldGroup,
    HeldLine,
    OutboxFilter,
    OutboxFound,
    TenantHeld,
    TenantSaid,
    TimerLine,
    too_slow,
)
from posthouse.store.sagas import SagaFilter, SagaRow
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import sqlstate_of
from posthouse.stores.postgres.leaps import PINNED, Index, kinds, listed
from posthouse.stores.rows import ACTION, OUTBOX, SAGA, action_of, find_sagas, held_group, outbox_row, saga_row

CANCELLED = "57014"
LATEST = 2**63 - 1

BY_KIND = Index("posthouse.held", ("consumer", "topic", "state"), "id")
BY_FAILURE = Index("posthouse.held", ("fingerprint", "consumer", "state"), "id")
OF_TENANT = Index("posthouse.held", ("tenant",), "id")
BY_TENANT = Index("posthouse.held", ("tenant", "consumer", "state", "fingerprint"), "id")
SAGAS = Index("posthouse.saga", ("saga", "status"), "number", "h.purged_at IS NULL")
SAGAS_BY_TENANT = Index("posthouse.saga", ("tenant", "saga", "status"), "number", "h.purged_at IS NULL")

LINE = HeldLine.__struct_fields__
LINES = ", ".join(f"left(e.error, {SHOWN})" if column == "error" else f"e.{column}" for column in LINE)

# Lines of these ids, one by one: OFFSET keeps the planner from a walk along all ids because these are to be in order.
OF_IDS = (
    "SELECT {columns} FROM ({ids}) i CROSS JOIN LATERAL (SELECT * FROM {table} t WHERE t.{last} = i.{last} OFFSET 0) e"
)

# The groups of all tenants: the tally has their counts …
GROUPS = f"""
WITH largest AS MATERIALIZED (
    SELECT t.topic AS fingerprint, t.name AS consumer, t.state, t.number, false AS more FROM posthouse.tallied() t
    WHERE t.kind = 'failure' AND t.number > 0 AND {{asked}}
    ORDER BY t.number DESC, t.name, t.state, t.topic LIMIT $1)
SELECT g.fingerprint, g.consumer, g.state, g.number, g.more, f.first_at, l.first_at, l.id, l.type, left(l.error, {SHOWN})
FROM largest g CROSS JOIN LATERAL (
    SELECT h.first_at FROM posthouse.held h
    WHERE h.fingerprint = g.fingerprint AND h.consumer = g.consumer AND h.state = g.state
    ORDER BY h.fingerprint, h.consumer, h.state, h.id LIMIT 1) f CROSS JOIN LATERAL (
    SELECT h.* FROM posthouse.held h
    WHERE h.fingerprint = g.fingerprint AND h.consumer = g.consumer AND h.state = g.state
    ORDER BY h.fingerprint DESC, h.consumer DESC, h.state DESC, h.id DESC LIMIT 1) l
ORDER BY g.number DESC, g.consumer, g.state, g.fingerprint
"""

# … those of some tenants are counted up to a bound, each …
GROUPS_OF_TENANTS = f"""
WITH RECURSIVE {{kinds}}
SELECT k.fingerprint, k.consumer, k.state, sum(c.number)::bigint, bool_or(c.number >= {COUNTED_OF_TENANT}), min(f.first_at),
    max(l.first_at), max(l.id), (array_agg(l.type ORDER BY l.id DESC))[1], (array_agg(l.error ORDER BY l.id DESC))[1]
FROM kind k CROSS JOIN LATERAL (
    SELECT count(*) AS number FROM (
        SELECT 1 FROM posthouse.held h WHERE h.tenant = k.tenant AND h.consumer = k.consumer AND h.state = k.state
            AND h.fingerprint = k.fingerprint LIMIT {COUNTED_OF_TENANT}) b) c CROSS JOIN LATERAL (
    SELECT h.first_at FROM posthouse.held h WHERE h.tenant = k.tenant AND h.consumer = k.consumer AND h.state = k.state
        AND h.fingerprint = k.fingerprint ORDER BY h.tenant, h.consumer, h.state, h.fingerprint, h.id LIMIT 1) f
CROSS JOIN LATERAL (
    SELECT h.first_at, h.id, h.type, left(h.error, {SHOWN}) AS error FROM posthouse.held h
    WHERE h.tenant = k.tenant AND h.consumer = k.consumer AND h.state = k.state AND h.fingerprint = k.fingerprint
    ORDER BY h.tenant DESC, h.consumer DESC, h.state DESC, h.fingerprint DESC, h.id DESC LIMIT 1) l
WHERE {{asked}}
GROUP BY k.fingerprint, k.consumer, k.state ORDER BY 4 DESC, 2, 3, 1 LIMIT $1
"""

# … and of anything else the newest are looked at.
GROUPS_OF_NEWEST = f"""
WITH newest AS MATERIALIZED (
    SELECT e.fingerprint, e.consumer, e.state, e.first_at, e.id, e.type, left(e.error, {SHOWN}) AS error FROM ({{ids}}) i
    CROSS JOIN LATERAL (SELECT * FROM posthouse.held h WHERE h.id = i.id OFFSET 0) e)
SELECT n.fingerprint, n.consumer, n.state, count(*), (SELECT count(*) FROM newest) >= {COUNTED}, min(n.first_at), max(n.first_at),
    max(n.id), (array_agg(n.type ORDER BY n.id DESC))[1], (array_agg(n.error ORDER BY n.id DESC))[1]
FROM newest n GROUP BY n.fingerprint, n.consumer, n.state ORDER BY 4 DESC, 2, 3, 1 LIMIT {{limit}}
"""

# How many of its key wait behind each.
WAITING_BEHIND = f"""
SELECT l.id, c.number FROM unnest($1::bigint[]) l (id)
JOIN posthouse.held e ON e.id = l.id AND e.sequence IS NOT NULL AND e.state IN ('retrying', 'gap', 'blocked', 'dead')
CROSS JOIN LATERAL (
    SELECT count(*) AS number FROM (
        SELECT 1 FROM posthouse.held h WHERE h.tenant = e.tenant AND h.consumer = e.consumer AND h.topic = e.topic
            AND h.key = e.key AND h.sequence > e.sequence
            AND h.sequence IS NOT NULL AND h.state IN ('retrying', 'gap', 'blocked', 'dead')
        ORDER BY h.tenant, h.consumer, h.topic, h.key, h.sequence LIMIT {BEHIND + 1}) b) c
"""

# For whom events of one state are held, among the oldest …
OF_STATE = """
SELECT e.tenant, {state}::text, count(*), min(e.first_at) FROM ({ids}) i
CROSS JOIN LATERAL (SELECT h.tenant, h.first_at FROM posthouse.held h WHERE h.id = i.id OFFSET 0) e GROUP BY e.tenant
"""

# … and who said the newest in the outbox.
SAID = """
SELECT n.tenant, n.topic, count(*) FROM (
    SELECT o.tenant, o.topic FROM posthouse.outbox o ORDER BY o.id DESC LIMIT $1) n GROUP BY n.tenant, n.topic
"""

TIMER = ", ".join(f"t.{column}" for column in TimerLine.__struct_fields__)

# Timers, soonest first, of all …
TIMERS = f"""
SELECT {TIMER} FROM posthouse.timer t WHERE (t.due_at, t.id) > ($1::double precision, $2::bigint)
ORDER BY t.due_at, t.id LIMIT $3
"""

# … or of some tenants.
TIMERS_OF_TENANTS = f"""
SELECT {TIMER} FROM unnest($4::text[]) f (tenant) CROSS JOIN LATERAL (
    SELECT * FROM posthouse.timer h WHERE h.tenant = f.tenant AND (h.due_at, h.id) > ($1::double precision, $2::bigint)
    ORDER BY h.tenant, h.due_at, h.id LIMIT $3) t
ORDER BY t.due_at, t.id LIMIT $3
"""

# What operators did, newest first; that of one event is looked for before anything else is asked.
ACTIONS = f"""
SELECT a.at, {", ".join(f"a.{column}" for column in ACTION.split(", "))} FROM {{source}} a
WHERE {{asked}} ORDER BY a.at DESC, a.id DESC LIMIT {{limit}}
"""
OF_EVENT = "(SELECT * FROM posthouse.action o WHERE o.event_id = {event_id} AND o.event_id <> '' OFFSET 0)"

# Rows of the outbox among the newest behind an id, and the last id that was looked at.
LOOKED = f"""
WITH looked AS MATERIALIZED (
    SELECT o.id, {{asked}} AS fits FROM posthouse.outbox o WHERE o.id < $1::bigint ORDER BY o.id DESC LIMIT {LOOKED_THROUGH}),
found AS MATERIALIZED (SELECT l.id FROM looked l WHERE l.fits ORDER BY l.id DESC LIMIT $2),
rows AS (SELECT {", ".join(f"o.{column}" for column in OUTBOX.split(", "))} FROM found f JOIN posthouse.outbox o ON o.id = f.id)
SELECT CASE WHEN (SELECT count(*) FROM found) >= $2 THEN (SELECT min(id) FROM found)
    WHEN (SELECT count(*) FROM looked) >= {LOOKED_THROUGH} THEN (SELECT min(id) FROM looked) END AS goes_on, r.*
FROM (SELECT 1) one LEFT JOIN rows r ON true ORDER BY r.id DESC
"""

# Where consumers stand with a key.
HEADS = """
SELECT h.consumer, h.topic, h.sequence, h.lineage, h.event_id, h.held FROM posthouse.consumer c CROSS JOIN LATERAL (
    SELECT * FROM posthouse.head p
    WHERE p.tenant = $1 AND p.consumer = c.consumer AND p.topic = c.topic AND p.key = $2) h
ORDER BY h.consumer, h.topic
"""

# Who has had an event that stands alone.
APPLIED = """
SELECT i.consumer, i.topic, i.received_at, i.result FROM (SELECT DISTINCT c.consumer FROM posthouse.consumer c) c
CROSS JOIN LATERAL (
    SELECT * FROM posthouse.inbox p WHERE p.tenant = $1 AND p.consumer = c.consumer AND p.event_id = $2) i
ORDER BY i.consumer
"""


class Asked:
    """A statement's parameters, numbered as they come."""

    def __init__(self) -> None:
        self.parameters: list[object] = []

    def place(self, value: object) -> str:
        """Where it stands."""
        self.parameters.append(value)
        return f"${len(self.parameters)}"


class PostgresBrowsing:
    """The lists of a `PostgresStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def held(
        self,
        wanted: HeldFilter,
        *,
        after: int | None = None,
        limit: int = 50,
        newest: bool = True,
        timeout: float = TIMEOUT,
    ) -> Sequence[HeldLine]:
        sql, parameters = held_lines(wanted, after=after, limit=limit, newest=newest)
        found = await self._look(sql, parameters, timeout, HELD_SLOW)
        return [HeldLine(**dict(zip(LINE, columns, strict=True))) for columns in found]

    async def held_groups(
        self, wanted: HeldFilter, *, limit: int = 100, timeout: float = TIMEOUT
    ) -> Sequence[HeldGroup]:
        sql, parameters = held_groups(wanted, limit)
        return [held_group(columns) for columns in await self._look(sql, parameters, timeout, GROUPS_SLOW)]

    async def waiting_behind(self, lines: Sequence[HeldLine], *, timeout: float = TIMEOUT) -> Mapping[int, Bounded]:
        ids = [line.id for line in lines]
        found = await self._look(WAITING_BEHIND, [ids], timeout, BEHIND_SLOW)
        return {id: Bounded(min(number, BEHIND), more=number > BEHIND) for id, number in found}

    async def held_by_tenant(
        self, states: Sequence[HeldState], *, limit: int = 1_000, timeout: float = TIMEOUT
    ) -> Sequence[TenantHeld]:
        sql, parameters = tenants_held(states, limit)
        found = await self._look(sql, parameters, timeout, BY_TENANT_SLOW) if states else []
        return [TenantHeld(tenant=t, state=state, number=n, first_at=at) for t, state, n, at in found]

    async def said_by_tenant(self, *, limit: int = 1_000, timeout: float = TIMEOUT) -> Sequence[TenantSaid]:
        found = await self._look(SAID, [limit], timeout, SAID_SLOW)
        return [TenantSaid(tenant=tenant, topic=topic, number=number) for tenant, topic, number in found]

    async def sagas(
        self,
        wanted: SagaFilter,
        *,
        after: int | None = None,
        limit: int = 50,
        newest: bool = True,
        timeout: float = TIMEOUT,
    ) -> Sequence[SagaRow]:
        sql, parameters = saga_lines(wanted, after=after, limit=limit, newest=newest)
        return [saga_row(columns) for columns in await self._look(sql, parameters, timeout, SAGAS_SLOW)]

    async def timers(
        self,
        tenants: Collection[str] | None = None,
        *,
        after: tuple[float, int] | None = None,
        limit: int = 50,
        timeout: float = TIMEOUT,
    ) -> Sequence[TimerLine]:
        parameters: list[object] = [*(after or (float("-inf"), 0)), limit]
        sql = TIMERS if tenants is None else TIMERS_OF_TENANTS
        found = await self._look(
            sql, parameters if tenants is None else [*parameters, _set(tenants)], timeout, TIMERS_SLOW
        )
        return [TimerLine(**dict(zip(TimerLine.__struct_fields__, columns, strict=True))) for columns in found]

    async def actions(
        self,
        wanted: ActionFilter,
        *,
        after: tuple[float, str] | None = None,
        limit: int = 50,
        timeout: float = TIMEOUT,
    ) -> Sequence[Action]:
        sql, parameters = action_lines(wanted, after=after or wanted.before, limit=limit)
        return [action_of(columns) for columns in await self._look(sql, parameters, timeout, ACTIONS_SLOW)]

    async def outbox(
        self, wanted: OutboxFilter, *, after: int | None = None, limit: int = 50, timeout: float = TIMEOUT
    ) -> OutboxFound:
        sql, parameters = outbox_rows(wanted, after=after, limit=limit)
        found = await self._look(sql, parameters, timeout, OUTBOX_SLOW)
        rows = [outbox_row(*columns) for _, *columns in found if columns[0] is not None]
        return OutboxFound(rows, found[0][0])

    async def heads(self, tenant: str, key: str, *, timeout: float = TIMEOUT) -> Sequence[Head]:
        found = await self._look(HEADS, [tenant, key], timeout, HEADS_SLOW)
        return [Head(**dict(zip(Head.__struct_fields__, columns, strict=True))) for columns in found]

    async def applied(self, tenant: str, event_id: str, *, timeout: float = TIMEOUT) -> Sequence[Applied]:
        found = await self._look(APPLIED, [tenant, event_id], timeout, APPLIED_SLOW)
        return [Applied(**dict(zip(Applied.__struct_fields__, columns, strict=True))) for columns in found]

    async def _look(
        self, sql: str, parameters: Sequence[object], timeout: float, slow: tuple[str, str]
    ) -> Sequence[Sequence[Any]]:
        await self._database.check()
        try:
            async with self._database.connected() as connection, connection.transaction(readonly=True):
                await connection.run(PINNED, (str(max(1, round(timeout * 1000))),))
                found: Any = await connection.run(self._database.text(sql), parameters)
                return list(found)
        except StoreError as error:
            if sqlstate_of(error.__cause__ or error) != CANCELLED:
                raise
            what, narrower = slow
            raise StoreUnavailable(too_slow(what, timeout, narrower)) from error


def held_lines(
    wanted: HeldFilter, *, after: int | None, limit: int, newest: bool, columns: str = LINES
) -> tuple[str, Sequence[object]]:
    """The statement that finds held events by id."""
    asked = Asked()
    ids = _held_ids(asked, wanted, after=after, limit=limit, newest=newest)
    sql = OF_IDS.format(columns=columns, ids=ids, table="posthouse.held", last="id")
    return f"{sql} ORDER BY i.id {'DESC' if newest else 'ASC'}", asked.parameters


def _held_ids(asked: Asked, wanted: HeldFilter, *, after: int | None, limit: int, newest: bool) -> str:
    behind = asked.place((LATEST if newest else 0) if after is None else after)
    most = asked.place(limit)
    down, beyond = ("DESC", "<") if newest else ("ASC", ">")
    given = {
        column: asked.place(value)
        for column in ("consumer", "topic", "state", "key", "event_id", "fingerprint", "correlation")
        if (value := getattr(wanted, column)) is not None
    }
    tenants = _tenants(wanted)
    conditions = {column: f"h.{column} IS NOT DISTINCT FROM {place}" for column, place in given.items()}
    if tenants is not None:
        given["tenant"] = asked.place(tenants)
        conditions["tenant"] = f"(h.tenant = ANY ({given['tenant']}::text[])) IS TRUE"
    if wanted.ids is not None:
        conditions["ids"] = f"h.id = ANY ({asked.place(list(wanted.ids))}::bigint[])"
    rest = " AND ".join(conditions.values()) or "true"
    page = f"h.id {beyond} {behind}::bigint AND {rest} ORDER BY h.id {down} LIMIT {most}"
    if wanted.ids is not None:
        return f"SELECT h.id FROM posthouse.held h WHERE {page}"
    if wanted.event_id is not None:
        few = f"SELECT * FROM posthouse.held WHERE event_id = {given['event_id']} OFFSET 0"
        return f"SELECT h.id FROM ({few}) h WHERE {page}"
    for column in ("correlation", "key"):
        if column in given:
            back = ">=" if newest else "<="
            along = (
                f"(h.{column}, h.id) {beyond} ({given[column]}, {behind}::bigint) AND h.{column} {back} {given[column]}"
            )
            others = " AND ".join(words for name, words in conditions.items() if name != column) or "true"
            order = f"h.{column} {down}, h.id {down}"
            return f"SELECT h.id FROM posthouse.held h WHERE {along} AND {others} ORDER BY {order} LIMIT {most}"
    firsts: str | None
    if given.keys() <= {"tenant", "topic"} and "tenant" in given:
        index, firsts = OF_TENANT, given["tenant"]
    elif "tenant" in given:
        index, firsts = BY_TENANT, given["tenant"]
    elif "fingerprint" in given:
        index, firsts = BY_FAILURE, f"ARRAY[{given['fingerprint']}]"
    elif given:
        index, firsts = BY_KIND, f"ARRAY[{given['consumer']}]" if "consumer" in given else None
    else:
        return f"SELECT h.id FROM posthouse.held h WHERE {page}"
    fixed = [given[column] for column in takewhile(given.__contains__, index.columns[1:])] if firsts else []
    of = [words.replace("h.", "k.") for name, words in conditions.items() if name in index.columns[1:]]
    residual = [words for name, words in conditions.items() if name not in index.columns]
    return listed(index, firsts=firsts, fixed=fixed, of=of, asked=residual, after=behind, limit=most, newest=newest)


def tenants_held(states: Sequence[HeldState], limit: int) -> tuple[str, Sequence[object]]:
    """The statement that tells for whom events are held."""
    asked = Asked()
    parts = [
        OF_STATE.format(
            state=asked.place(state),
            ids=_held_ids(asked, HeldFilter(state=state), after=None, limit=limit, newest=False),
        )
        for state in states
    ]
    return " UNION ALL ".join(f"({part})" for part in parts), asked.parameters


def held_groups(wanted: HeldFilter, limit: int) -> tuple[str, Sequence[object]]:
    """The statement that finds groups of held events."""
    asked = Asked()
    tenants = _tenants(wanted)
    by_rows = any(
        value is not None for value in (wanted.topic, wanted.key, wanted.event_id, wanted.correlation, wanted.ids)
    )
    if by_rows:
        ids = _held_ids(asked, wanted, after=None, limit=COUNTED, newest=True)
        return GROUPS_OF_NEWEST.format(ids=ids, limit=asked.place(limit)), asked.parameters
    asked.place(limit)
    names = {"consumer": "t.name", "state": "t.state", "fingerprint": "t.topic"}
    given = {column: asked.place(value) for column in names if (value := getattr(wanted, column)) is not None}
    if tenants is None:
        words = [f"{names[column]} = {place}" for column, place in given.items()]
        return GROUPS.format(asked=" AND ".join(words) or "true"), asked.parameters
    words = [f"k.{column} = {place}" for column, place in given.items()]
    fixed = [given[column] for column in takewhile(given.__contains__, BY_TENANT.columns[1:])]
    found = kinds(BY_TENANT, asked.place(tenants), fixed)
    return GROUPS_OF_TENANTS.format(kinds=found, asked=" AND ".join(words) or "true"), asked.parameters


def saga_lines(wanted: SagaFilter, *, after: int | None, limit: int, newest: bool) -> tuple[str, Sequence[object]]:
    """The statement that finds sagas by number, without their state."""
    asked = Asked()
    tenants = _tenants(wanted)
    columns = ", ".join("'{}'" if column == "state" else f"e.{column}" for column in SAGA.split(", "))
    down, beyond = ("DESC", "<") if newest else ("ASC", ">")
    alone = (wanted.id, wanted.attempt, wanted.parent, wanted.correlation)
    if wanted.where or wanted.tombstones or any(value is not None for value in alone):
        given = (LATEST if newest else 0) if after is None else after
        sql, parameters = find_sagas(wanted, after=given, limit=limit, prefix="posthouse.", newest=newest)
        few, values = _few_sagas(wanted)
        sql = sql.replace("posthouse.saga s", few, 1)
        numbered = sql.format(*(f"${number}" for number in range(1, len(values) + len(parameters) + 1)))
        return f"SELECT {columns} FROM ({numbered}) e ORDER BY e.number {down}", (*values, *parameters)
    behind = asked.place((LATEST if newest else 0) if after is None else after)
    most = asked.place(limit)
    of = [
        f"k.{column} = {asked.place(value)}"
        for column, value in (("saga", wanted.saga), ("status", wanted.status))
        if value is not None
    ]
    if tenants is not None or of:
        index = SAGAS if tenants is None else SAGAS_BY_TENANT
        firsts = None if tenants is None else asked.place(tenants)
        ids = listed(index, firsts=firsts, of=of, asked=(), after=behind, limit=most, newest=newest)
    else:
        ids = f"""SELECT h.number FROM posthouse.saga h WHERE h.purged_at IS NULL AND h.number {beyond} {behind}::bigint
            ORDER BY h.number {down} LIMIT {most}"""
    # The row is looked for with what its partial index needs.
    one = f"SELECT {columns} FROM ({ids}) i CROSS JOIN LATERAL (SELECT * FROM posthouse.saga t WHERE t.number = i.number AND t.purged_at IS NULL OFFSET 0) e"
    return f"{one} ORDER BY i.number {down}", asked.parameters


def _few_sagas(wanted: SagaFilter) -> tuple[str, Sequence[object]]:
    """The relation in which sagas are looked for: few of them, by what finds few whatever else is asked."""
    words, values = "", list[object]()
    if wanted.id is not None:
        words, values = "id = {}", [wanted.id]
    elif wanted.correlation is not None:
        words, values = "correlation = {}", [wanted.correlation]
    elif wanted.parent is not None:
        words, values = "parent_saga = {} AND parent_id = {}", [wanted.parent.saga, wanted.parent.id]
    return f"(SELECT * FROM posthouse.saga WHERE {words} OFFSET 0) s" if words else "posthouse.saga s", values


def action_lines(wanted: ActionFilter, *, after: tuple[float, str] | None, limit: int) -> tuple[str, Sequence[object]]:
    """The statement that finds what operators did, newest first."""
    asked = Asked()
    words = []
    if after is not None:
        words.append(f"(a.at, a.id) < ({asked.place(after[0])}::double precision, {asked.place(after[1])}::text)")
    if wanted.since is not None:
        words.append(f"a.at >= {asked.place(wanted.since)}::double precision")
    if wanted.until is not None:
        words.append(f"a.at < {asked.place(wanted.until)}::double precision")
    if wanted.verb is not None:
        verb = asked.place(wanted.verb)
        words.append(
            f"(a.verb = {verb}::text OR starts_with(a.verb, {verb} || ' ') OR split_part(a.verb, ' ', 2) = {verb})"
        )
    words += [
        f"a.{column} IS NOT DISTINCT FROM {asked.place(value)}::text"
        for column, value in (("by", wanted.by), ("key", wanted.key))
        if value is not None
    ]
    if wanted.job is not None:
        words.append(f"a.why {'LIKE' if wanted.job else 'NOT LIKE'} {asked.place(wanted.of_job)}::text")
    if wanted.tenants is not None:
        words.append(f"(a.tenant = ANY ({asked.place(_set(wanted.tenants))}::text[])) IS TRUE")
    source = "posthouse.action"
    if wanted.event_id is not None:
        source = OF_EVENT.format(event_id=asked.place(wanted.event_id))
    sql = ACTIONS.format(source=source, asked=" AND ".join(words) or "true", limit=asked.place(limit))
    return sql, asked.parameters


def outbox_rows(wanted: OutboxFilter, *, after: int | None, limit: int) -> tuple[str, Sequence[object]]:
    """The statement that looks through the outbox."""
    asked = Asked()
    asked.place(LATEST if after is None else after)
    asked.place(limit)
    words = [
        f"o.{column} IS NOT DISTINCT FROM {asked.place(value)}::text"
        for column in ("event_id", "key", "topic")
        if (value := getattr(wanted, column)) is not None
    ]
    if wanted.tenants is not None:
        words.append(f"o.tenant = ANY ({asked.place(_set(wanted.tenants))}::text[])")
    if wanted.contains is not None:
        text, data = asked.place(wanted.contains), asked.place(wanted.contains.encode())
        words.append(
            f"(position({text}::text IN coalesce(o.headers, '')) > 0 OR position({data}::bytea IN o.body) > 0)"
        )
    return LOOKED.format(asked=f"({' AND '.join(words) or 'true'})"), asked.parameters


def _tenants(wanted: HeldFilter | SagaFilter) -> list[str] | None:
    """Those of which something may be seen; None: of all."""
    if wanted.tenant is None:
        return None if wanted.tenants is None else _set(wanted.tenants)
    return [wanted.tenant] if wanted.tenants is None or wanted.tenant in wanted.tenants else []


def _set(tenants: Collection[str]) -> list[str]:
    return sorted(set(tenants))
