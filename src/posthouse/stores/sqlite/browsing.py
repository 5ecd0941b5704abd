"""Browsing: lists for people, read beside whatever else the process does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from posthouse.errors import StoreUnavailable
from posthouse.store import BLOCKING, HeldFilter, HeldState
from posthouse.store.actions import Action, ActionFilter
from posthouse.store.browsing import (
    ACTIONS_SLOW,
    APPLIED_SLOW,
    BEHIND,
    BEHIND_SLOW,
    BY_TENANT_SLOW,
    COUNTED,
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
from posthouse.stores.rows import ACTION, OUTBOX, SAGA, action_of, find_sagas, held_group, outbox_row, saga_row
from posthouse.stores.sqlite.counting import Late
from posthouse.stores.sqlite.held import LISTED, held_asked

T = TypeVar("T")

LATEST = 2**63 - 1

LINE = HeldLine.__struct_fields__
LINES = ", ".join(f"substr(error, 1, {SHOWN})" if column == "error" else column for column in LINE)

# Held events by id.
HELD = f"SELECT {LINES} FROM posthouse_held WHERE id {{beyond}} ? AND {{asked}} ORDER BY id {{down}} LIMIT ?"

# Which failures there are, and how many of each: of all …
TALLIED = """
SELECT topic AS fingerprint, name AS consumer, state, number, 0 AS more FROM posthouse_tally
WHERE kind = 'failure' AND number > 0 AND {asked} ORDER BY number DESC, name, state, topic LIMIT ?
"""

# … and their first and last …
FIRST_AND_LAST = f"""
SELECT g.fingerprint, g.consumer, g.state, g.number, g.more, f.first_at, l.first_at, l.id, l.type, substr(l.error, 1, {SHOWN})
FROM ({TALLIED}) g
JOIN posthouse_held f ON f.id = (SELECT min(h.id) FROM posthouse_held h INDEXED BY posthouse_held_failure
    WHERE h.fingerprint = g.fingerprint AND h.consumer = g.consumer AND h.state = g.state)
JOIN posthouse_held l ON l.id = (SELECT max(h.id) FROM posthouse_held h INDEXED BY posthouse_held_failure
    WHERE h.fingerprint = g.fingerprint AND h.consumer = g.consumer AND h.state = g.state)
ORDER BY g.number DESC, g.consumer, g.state, g.fingerprint
"""

# … or of the newest that are asked for; `type` and `error` are those of the row with the highest id.
OF_NEWEST = f"""
SELECT fingerprint, consumer, state, count(*), looked >= {COUNTED}, min(first_at), max(first_at), max(id), type, error FROM (
    SELECT id, fingerprint, consumer, state, first_at, type, substr(error, 1, {SHOWN}) AS error, count(*) OVER () AS looked
    FROM (SELECT * FROM posthouse_held WHERE {{asked}} ORDER BY id DESC LIMIT {COUNTED}))
GROUP BY fingerprint, consumer, state ORDER BY 4 DESC, 2, 3, 1 LIMIT ?
"""

# How many of its key wait behind one.
WAITING_BEHIND = f"""
SELECT count(*) FROM (
    SELECT 1 FROM posthouse_held INDEXED BY posthouse_held_waiting
    WHERE consumer = ? AND topic = ? AND tenant = ? AND key = ? AND sequence > ?
        AND sequence IS NOT NULL AND state IN ('retrying', 'gap', 'blocked', 'dead') LIMIT {BEHIND + 1})
"""

# For whom events of one state are held, among the oldest …
OF_STATE = """
SELECT tenant, count(*), min(first_at) FROM (
    SELECT tenant, first_at FROM posthouse_held WHERE state = ? ORDER BY id LIMIT ?) GROUP BY tenant
"""

# … and who said the newest in the outbox.
SAID = """
SELECT tenant, topic, count(*) FROM (SELECT tenant, topic FROM posthouse_outbox ORDER BY id DESC LIMIT ?) GROUP BY tenant, topic
"""

# Timers, soonest first.
TIMERS = f"""
SELECT {", ".join(TimerLine.__struct_fields__)} FROM posthouse_timer
WHERE (due_at, id) > (?, ?) AND {{asked}} ORDER BY due_at, id LIMIT ?
"""

# What operators did, newest first.
ACTIONS = f"SELECT at, {ACTION} FROM posthouse_action WHERE {{asked}} ORDER BY at DESC, id DESC LIMIT ?"
OF_VERB = "(verb = ? OR substr(verb, 1, length(?) + 1) = ? || ' ' OR substr(verb, instr(verb, ' ') + 1) = ?)"

# Rows of the outbox among the newest behind an id, and the last id that was looked at.
LOOKED = f"""
WITH looked AS MATERIALIZED (
    SELECT id, ({{asked}}) AS fits FROM posthouse_outbox o WHERE id < ? ORDER BY id DESC LIMIT {LOOKED_THROUGH}),
found AS MATERIALIZED (SELECT id FROM looked WHERE fits ORDER BY id DESC LIMIT ?)
SELECT CASE WHEN (SELECT count(*) FROM found) >= ? THEN (SELECT min(id) FROM found)
    WHEN (SELECT count(*) FROM looked) >= {LOOKED_THROUGH} THEN (SELECT min(id) FROM looked) END,
    {", ".join(f"o.{column}" for column in OUTBOX.split(", "))}
FROM (SELECT 1) LEFT JOIN (SELECT * FROM posthouse_outbox WHERE id IN (SELECT id FROM found)) o ORDER BY o.id DESC
"""

# Where consumers stand with a key.
HEADS = """
SELECT h.consumer, h.topic, h.sequence, h.lineage, h.event_id, h.held FROM posthouse_consumer c
JOIN posthouse_head h ON h.consumer = c.consumer AND h.topic = c.topic AND h.tenant = ? AND h.key = ?
ORDER BY h.consumer, h.topic
"""

# Who has had an event that stands alone.
APPLIED = """
SELECT i.consumer, i.topic, i.received_at, i.result FROM (SELECT DISTINCT consumer FROM posthouse_consumer) c
JOIN posthouse_inbox i ON i.consumer = c.consumer AND i.tenant = ? AND i.event_id = ? ORDER BY i.consumer
"""


class Look(Protocol):
    """How a store lets somebody read beside it; raises `Late` after so many seconds."""

    async def __call__(self, work: Callable[[sqlite3.Connection], T], timeout: float | None = None) -> T: ...


class SqliteBrowsing:
    """The lists of a `SqliteStore`."""

    def __init__(self, look: Look) -> None:
        self._look = look

    async def held(
        self,
        wanted: HeldFilter,
        *,
        after: int | None = None,
        limit: int = 50,
        newest: bool = True,
        timeout: float = TIMEOUT,
    ) -> Sequence[HeldLine]:
        asked, parameters = held_asked(wanted)
        down, beyond, begin = ("DESC", "<", LATEST) if newest else ("ASC", ">", 0)
        sql = HELD.format(beyond=beyond, asked=asked, down=down)
        found = await self._rows(sql, (begin if after is None else after, *parameters, limit), timeout, HELD_SLOW)
        return [HeldLine(**dict(zip(LINE, columns, strict=True))) for columns in found]

    async def held_groups(
        self, wanted: HeldFilter, *, limit: int = 100, timeout: float = TIMEOUT
    ) -> Sequence[HeldGroup]:
        others = (
            wanted.topic,
            wanted.tenant,
            wanted.tenants,
            wanted.key,
            wanted.event_id,
            wanted.correlation,
            wanted.ids,
        )
        if any(value is not None for value in others):
            asked, parameters = held_asked(wanted)
            sql = OF_NEWEST.format(asked=asked)
        else:
            names = (("name", wanted.consumer), ("state", wanted.state), ("topic", wanted.fingerprint))
            given = [(name, value) for name, value in names if value is not None]
            parameters = [value for _, value in given]
            sql = FIRST_AND_LAST.format(asked=" AND ".join(f"{name} = ?" for name, _ in given) or "true")
        return [held_group(columns) for columns in await self._rows(sql, (*parameters, limit), timeout, GROUPS_SLOW)]

    async def waiting_behind(self, lines: Sequence[HeldLine], *, timeout: float = TIMEOUT) -> Mapping[int, Bounded]:
        asked = [line for line in lines if line.sequence is not None and line.state in BLOCKING]

        def count(connection: sqlite3.Connection) -> dict[int, Bounded]:
            counted = {}
            for line in asked:
                place = (line.consumer, line.topic, line.tenant, line.key, line.sequence)
                (number,) = connection.execute(WAITING_BEHIND, place).fetchone()
                counted[line.id] = Bounded(min(number, BEHIND), more=number > BEHIND)
            return counted

        return await self._looked(count, timeout, BEHIND_SLOW)

    async def held_by_tenant(
        self, states: Sequence[HeldState], *, limit: int = 1_000, timeout: float = TIMEOUT
    ) -> Sequence[TenantHeld]:
        def found(connection: sqlite3.Connection) -> Sequence[TenantHeld]:
            return [
                TenantHeld(tenant=tenant, state=state, number=number, first_at=first_at)
                for state in states
                for tenant, number, first_at in connection.execute(OF_STATE, (state, limit))
            ]

        return await self._looked(found, timeout, BY_TENANT_SLOW)

    async def said_by_tenant(self, *, limit: int = 1_000, timeout: float = TIMEOUT) -> Sequence[TenantSaid]:
        found = await self._rows(SAID, (limit,), timeout, SAID_SLOW)
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
        begin = (LATEST if newest else 0) if after is None else after
        sql, parameters = find_sagas(wanted, after=begin, limit=limit, prefix="posthouse_", newest=newest)
        columns = ", ".join("'{}'" if column == "state" else column for column in SAGA.split(", "))
        sql = f"SELECT {columns} FROM ({sql.replace('{}', '?')}) ORDER BY number {'DESC' if newest else 'ASC'}"
        return [saga_row(found) for found in await self._rows(sql, parameters, timeout, SAGAS_SLOW)]

    async def timers(
        self,
        tenants: Collection[str] | None = None,
        *,
        after: tuple[float, int] | None = None,
        limit: int = 50,
        timeout: float = TIMEOUT,
    ) -> Sequence[TimerLine]:
        asked, parameters = _of_tenants(tenants)
        place = after or (float("-inf"), 0)
        found = await self._rows(TIMERS.format(asked=asked), (*place, *parameters, limit), timeout, TIMERS_SLOW)
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
        found = await self._rows(sql, parameters, timeout, ACTIONS_SLOW)
        return [action_of(columns) for columns in found]

    async def outbox(
        self, wanted: OutboxFilter, *, after: int | None = None, limit: int = 50, timeout: float = TIMEOUT
    ) -> OutboxFound:
        among, tenants = _of_tenants(wanted.tenants)
        given = [(name, value) for name in ("event_id", "key", "topic") if (value := getattr(wanted, name)) is not None]
        words, parameters = [among, *(f"{name} IS ?" for name, _ in given)], [*tenants, *(value for _, value in given)]
        if wanted.contains is not None:
            words.append("(instr(coalesce(headers, ''), ?) > 0 OR instr(body, ?) > 0)")
            parameters += [wanted.contains, wanted.contains.encode()]
        sql = LOOKED.format(asked=" AND ".join(words))
        begin = LATEST if after is None else after
        found = await self._rows(sql, (*parameters, begin, limit, limit), timeout, OUTBOX_SLOW)
        rows = [outbox_row(*columns) for _, *columns in found if columns[0] is not None]
        return OutboxFound(rows, found[0][0])

    async def heads(self, tenant: str, key: str, *, timeout: float = TIMEOUT) -> Sequence[Head]:
        found = await self._rows(HEADS, (tenant, key), timeout, HEADS_SLOW)
        return [Head(**dict(zip(Head.__struct_fields__, columns, strict=True))) for columns in found]

    async def applied(self, tenant: str, event_id: str, *, timeout: float = TIMEOUT) -> Sequence[Applied]:
        found = await self._rows(APPLIED, (tenant, event_id), timeout, APPLIED_SLOW)
        return [Applied(**dict(zip(Applied.__struct_fields__, columns, strict=True))) for columns in found]

    async def _rows(
        self, sql: str, parameters: Sequence[Any], timeout: float, slow: tuple[str, str]
    ) -> Sequence[Sequence[Any]]:
        return await self._looked(lambda connection: connection.execute(sql, parameters).fetchall(), timeout, slow)

    async def _looked(self, work: Callable[[sqlite3.Connection], T], timeout: float, slow: tuple[str, str]) -> T:
        try:
            return await self._look(work, timeout)
        except Late as error:
            what, narrower = slow
            raise StoreUnavailable(too_slow(what, timeout, narrower)) from error


def action_lines(wanted: ActionFilter, *, after: tuple[float, str] | None, limit: int) -> tuple[str, Sequence[object]]:
    """The statement that finds what operators did, newest first."""
    among, tenants = _of_tenants(wanted.tenants)
    verb = None if wanted.verb is None else [wanted.verb] * 4
    conditions: list[tuple[str, Sequence[object] | None]] = [
        ("(at, id) < (?, ?)", after),
        ("at >= ?", None if wanted.since is None else [wanted.since]),
        ("at < ?", None if wanted.until is None else [wanted.until]),
        (OF_VERB, verb),
        ("by = ?", None if wanted.by is None else [wanted.by]),
        ("key = ?", None if wanted.key is None else [wanted.key]),
        ("event_id = ? AND event_id <> ''", None if wanted.event_id is None else [wanted.event_id]),
        (f"why {'LIKE' if wanted.job else 'NOT LIKE'} ?", None if wanted.job is None else [wanted.of_job]),
        (among, tenants),
    ]
    given = [(words, values) for words, values in conditions if values is not None]
    sql = ACTIONS.format(asked=" AND ".join(words for words, _ in given))
    parameters = [value for _, values in given for value in values]
    return sql, [*parameters, limit]


def _of_tenants(tenants: Collection[str] | None) -> tuple[str, list[object]]:
    if tenants is None:
        return "true", []
    return f"tenant IN {LISTED}", [msgspec.json.encode(sorted(set(tenants))).decode()]
