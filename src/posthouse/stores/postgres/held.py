"""Held: what was accepted from the broker and could not be applied, and how many of each key wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.clock import Clock
from posthouse.store import HeldEvent, HeldFilter, InboxEntry, Transaction
from posthouse.stores.postgres.browsing import held_lines
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.leaps import PINNED
from posthouse.stores.postgres.transaction import own
from posthouse.stores.rows import HELD, held_columns, held_event, untyped

COLUMNS = ", ".join(f"e.{column}" for column in HELD)
EVENT = f"ROW({', '.join(f'${number}' for number in range(1, len(HELD) + 1))})::posthouse.held"
BEHIND_EVENT = f"${len(HELD) + 1}, ${len(HELD) + 2}"

KIND = ("consumer", "topic", "state")
"""What makes a kind of held events."""
FILTERS = (*KIND, "tenant", "key", "event_id")

# A clock that is read anew for each row is no bound for an index: where it should be one, it is read once, by a SELECT.
NOW_SECOND = "coalesce($2, extract(epoch FROM clock_timestamp())::double precision)"

# Hold an event.
HOLD = f"SELECT posthouse.hold({EVENT}, {BEHIND_EVENT})"

# Change an event in its turn.
CHANGE = f"SELECT posthouse.change({EVENT}, {BEHIND_EVENT})"

# Retrying events whose turn it is: the next of their key, or alone.
IN_TURN = """
FROM posthouse.held e LEFT JOIN posthouse.head h
    ON h.consumer = e.consumer AND h.topic = e.topic AND h.tenant = e.tenant AND h.key = e.key
WHERE e.consumer = $1 AND e.state = 'retrying' AND (e.sequence IS NULL OR (e.sequence = h.sequence + 1 AND h.replay = ''))
"""

# Whose time has come: count the run before it begins, and hide the event for a while.
CLAIM = f"""
WITH clock AS MATERIALIZED (
    SELECT coalesce($2, extract(epoch FROM clock_timestamp())::double precision) AS now
), due AS (
    SELECT e.id, e.next_at {IN_TURN} AND e.next_at <= (SELECT now FROM clock) ORDER BY e.next_at, e.id LIMIT $3
    FOR UPDATE OF e SKIP LOCKED)
UPDATE posthouse.held e SET attempts = e.attempts + 1, turn = e.turn + 1, next_at = clock.now + $4, last_at = clock.now
FROM due, clock WHERE e.id = due.id
RETURNING due.next_at, {COLUMNS}
"""

# Hide claimed events a while longer, in their turn. One that its own run has taken out is locked, and nobody claims it.
KEEP = """
WITH clock AS MATERIALIZED (
    SELECT coalesce($3, extract(epoch FROM clock_timestamp())::double precision) AS now
), mine AS (
    SELECT e.id FROM posthouse.held e JOIN unnest($1::bigint[], $2::bigint[]) m (id, turn) ON m.id = e.id AND m.turn = e.turn
    WHERE e.state = 'retrying' FOR UPDATE OF e SKIP LOCKED)
UPDATE posthouse.held e SET next_at = clock.now + $4, last_at = clock.now FROM mine, clock WHERE e.id = mine.id
"""

# In how many seconds something wants attention.
NEXT_DUE = f"""
SELECT least((SELECT min(e.next_at) {IN_TURN}),
    (SELECT min(e.next_at) FROM posthouse.held e WHERE e.consumer = $1 AND e.state = 'gap'
        AND e.next_at > (SELECT {NOW_SECOND}))) - {NOW_SECOND}
"""

# Take an event out, in its turn; its key waits for one less. The head is locked first, as everywhere. A server that took over
# may have given its id to another.
REMOVE = """
WITH first AS MATERIALIZED (
    SELECT 1 FROM posthouse.held e JOIN posthouse.head h
        ON h.consumer = e.consumer AND h.topic = e.topic AND h.tenant = e.tenant AND h.key = e.key
    WHERE e.id = $1 AND e.turn = $2 AND e.consumer = $3 AND e.event_id = $4 AND e.sequence IS NOT NULL FOR UPDATE OF h
), gone AS (
    DELETE FROM posthouse.held WHERE id = $1 AND turn = $2 AND consumer = $3 AND event_id = $4
        AND (SELECT count(*) FROM first) >= 0 RETURNING *),
counted AS (
    UPDATE posthouse.head h SET held = h.held - 1 FROM gone g
    WHERE g.sequence IS NOT NULL AND g.state IN ('retrying', 'gap', 'blocked', 'dead')
        AND h.consumer = g.consumer AND h.topic = g.topic AND h.tenant = g.tenant AND h.key = g.key)
SELECT 1 FROM gone
"""

# The way is free for the next number.
PROMOTE = """
UPDATE posthouse.held SET state = 'retrying', attempts = 0, turn = turn + 1,
    next_at = coalesce($1, extract(epoch FROM clock_timestamp())::double precision)
WHERE consumer = $2 AND topic = $3 AND tenant = $4 AND key = $5 AND sequence = $6
    AND sequence IS NOT NULL AND state IN ('gap', 'blocked')
"""

# Events by id …
FIND = f"SELECT {COLUMNS} FROM posthouse.held e WHERE {{asked}} ORDER BY e.id LIMIT $2"

# … those of a key, or of a tenant, along its own index, whatever is known of the table …
FIND_ALONG = f"""
SELECT {COLUMNS} FROM posthouse.held e WHERE (e.{{column}}, e.id) > ({{place}}, $1) AND e.{{column}} <= {{place}} AND {{asked}}
ORDER BY e.{{column}}, e.id LIMIT $2
"""

# … those that are this event: they are few, and looked for before anything else is asked …
FIND_EVENT = f"""
SELECT {COLUMNS} FROM (SELECT * FROM posthouse.held WHERE event_id = {{event_id}} OFFSET 0) e WHERE {{asked}} ORDER BY e.id LIMIT $2
"""

# … and those of some kinds.
FIND_OF_KINDS = f"SELECT {COLUMNS} FROM posthouse.held_of_kinds($1, $2, {{kinds}}) e ORDER BY e.id"

# How many keep a key waiting, counted anew.
RECOUNT = """
UPDATE posthouse.head h SET held = (SELECT count(*) FROM posthouse.held e
    WHERE e.consumer = h.consumer AND e.topic = h.topic AND e.tenant = h.tenant AND e.key = h.key
        AND e.sequence IS NOT NULL AND e.state IN ('retrying', 'gap', 'blocked', 'dead'))
WHERE consumer = $1 AND topic = $2 AND tenant = $3 AND key = $4
"""

# What is due and never in turn.
STRAYS = f"""
SELECT {COLUMNS} FROM posthouse.held e LEFT JOIN posthouse.head h
    ON h.consumer = e.consumer AND h.topic = e.topic AND h.tenant = e.tenant AND h.key = e.key
WHERE e.consumer = $1 AND e.state = 'retrying' AND e.next_at <= (SELECT {NOW_SECOND}) AND e.sequence IS NOT NULL
    AND e.sequence IS DISTINCT FROM h.sequence + 1
ORDER BY e.next_at, e.id LIMIT $3
"""

# Gaps that lasted too long.
OVERDUE = f"SELECT {COLUMNS} FROM posthouse.held e WHERE e.consumer = $1 AND e.state = 'gap' AND e.next_at <= (SELECT {NOW_SECOND}) ORDER BY e.next_at, e.id LIMIT $3"


class PostgresHeld:
    """The held events of a `PostgresStore`. Where the store has no clock of its own, everything goes by the database's: when
    an event is due, and how long it is hidden, must not depend on which machine asks."""

    def __init__(self, database: Database, clock: Clock | None) -> None:
        self._database = database
        self._clock = clock

    async def hold(self, tx: Transaction, event: HeldEvent) -> bool:
        return bool((await own(tx).run(HOLD, *held_columns(event), self._now(), event.after)).scalar())

    async def claim_due(self, consumer: str, limit: int, visibility: float) -> Sequence[HeldEvent]:
        due = await self._database.run(CLAIM, consumer, self._now(), limit, visibility)
        return [held_event(columns) for _, *columns in sorted(due, key=lambda row: untyped(row[:2]))]

    async def keep(self, events: Sequence[HeldEvent], visibility: float) -> None:
        ids, turns = [event.id for event in events], [event.turn for event in events]
        await self._database.run(KEEP, ids, turns, self._now(), visibility)

    async def next_due(self, consumer: str) -> float | None:
        due: Any = (await self._database.run(NEXT_DUE, consumer, self._now())).scalar()
        return None if due is None else float(due)

    async def remove(self, tx: Transaction, event: HeldEvent) -> bool:
        return bool(await own(tx).run(REMOVE, event.id, event.turn, event.consumer, event.entry.event_id))

    async def change(self, tx: Transaction, event: HeldEvent) -> bool:
        return bool((await own(tx).run(CHANGE, *held_columns(event), self._now(), event.after)).scalar())

    async def promote(self, tx: Transaction, consumer: str, entry: InboxEntry) -> bool:
        if entry.sequence is None:
            return False
        following = (consumer, entry.topic, entry.tenant, entry.key, entry.sequence + 1)
        return (await own(tx).run(PROMOTE, self._now(), *following)).rowcount > 0

    async def recount(self, tx: Transaction, consumer: str, entry: InboxEntry) -> None:
        await own(tx).run(RECOUNT, consumer, entry.topic, entry.tenant, entry.key)

    async def find(self, wanted: HeldFilter, *, after: int = 0, limit: int = 100) -> Sequence[HeldEvent]:
        if any(value is not None for value in (wanted.tenants, wanted.fingerprint, wanted.correlation)):
            return await self._browse(wanted, after, limit)
        sql, parameters = find_held(wanted, after=after, limit=limit)
        return [held_event(columns) for columns in await self._database.run(sql, *parameters)]

    async def _browse(self, wanted: HeldFilter, after: int, limit: int) -> Sequence[HeldEvent]:
        """As lists for people are found, whole and without haste."""
        sql, parameters = held_lines(wanted, after=after, limit=limit, newest=False, columns=COLUMNS)
        await self._database.check()
        async with self._database.connected() as connection, connection.transaction(readonly=True):
            await connection.run(PINNED, ("0",))
            return [held_event(columns) for columns in await connection.run(self._database.text(sql), parameters)]

    async def newest(self) -> int:
        found = await self._database.run("SELECT coalesce(max(h.id), 0) FROM posthouse.held h")
        return int(str(found.one()[0]))

    async def strays(self, consumer: str, *, limit: int = 100) -> Sequence[HeldEvent]:
        return [held_event(columns) for columns in await self._database.run(STRAYS, consumer, self._now(), limit)]

    async def overdue_gaps(self, consumer: str, *, limit: int = 100) -> Sequence[HeldEvent]:
        return [held_event(columns) for columns in await self._database.run(OVERDUE, consumer, self._now(), limit)]

    def _now(self) -> float | None:
        """The time, or None for the database's own clock."""
        return None if self._clock is None else self._clock.now()


def find_held(wanted: HeldFilter, *, after: int, limit: int) -> tuple[str, Sequence[object]]:
    """The statement that finds events by id, made of what is asked alone, so that an index answers it."""
    given = {name: value for name in FILTERS if (value := getattr(wanted, name)) is not None}
    parameters: list[object] = [after, limit, *given.values()]
    places = {name: f"${number}" for number, name in enumerate(given, 3)}
    asked = {"after": "e.id > $1", **{name: f"e.{name} = {place}" for name, place in places.items()}}
    if wanted.ids is not None:
        parameters.append(list(wanted.ids))
        asked["ids"] = f"e.id = ANY (${len(parameters)}::bigint[])"
    sql, known, column = FIND, set[str](), ""
    if wanted.event_id is not None:
        sql = FIND_EVENT
    elif wanted.ids is None and (wanted.key is not None or wanted.tenant is not None):
        column = "tenant" if wanted.key is None else "key"
        sql, known = FIND_ALONG, {"after", column}
        # What no index answers, so that no other one is taken for it.
        asked = {name: words.replace(" = ", " IS NOT DISTINCT FROM ") for name, words in asked.items()}
    elif wanted.ids is None and not given.keys().isdisjoint(KIND):
        sql = FIND_OF_KINDS
    rest = " AND ".join(words for name, words in asked.items() if name not in known) or "true"
    kinds = ", ".join(places.get(name, "NULL") for name in KIND)
    return sql.format(
        asked=rest, kinds=kinds, column=column, place=places.get(column), event_id=places.get("event_id")
    ), parameters
