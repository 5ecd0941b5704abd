"""Projections: the generations of read models, and up to where streams were read in bulk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.store.projections import NUMBERS_LOST, Effect, Generation, GenerationState, History, StreamKey
from posthouse.store.transaction import Transaction
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.joins import theirs_of
from posthouse.stores.postgres.steps import NOW, Steps
from posthouse.stores.postgres.transaction import BEGUN, PostgresTransaction, own

FIELDS = Generation.__struct_fields__
COLUMNS = ", ".join(FIELDS)


def _given(place: int) -> str:
    """A column's value; a moment that is 0 is now."""
    value = f"${place + 2}"
    moment = f"coalesce(nullif({value}::double precision, 0), {NOW})"
    match FIELDS[place]:
        case "made_at":
            return moment
        case "live_at":
            return f"CASE WHEN ${FIELDS.index('state') + 2} = 'live' THEN {moment} ELSE {value} END"
    return value


# Add a generation, unless one of its number, or in its state, is there.
BEGIN = f"""
INSERT INTO posthouse.generation ({COLUMNS}) VALUES ({", ".join(map(_given, range(len(FIELDS))))})
ON CONFLICT DO NOTHING
"""

# A number that was never given, also not by a server that was lost.
NUMBER = f"""
INSERT INTO posthouse.generation_number AS n (projection, last)
SELECT $1, 1 + greatest(max(g.number), (posthouse.current_lineage() - 1) * {NUMBERS_LOST})
FROM posthouse.generation g WHERE g.projection = $1
ON CONFLICT (projection) DO UPDATE SET last = greatest(n.last + 1, excluded.last) RETURNING n.last
"""

# Whether it is complete.
JUDGE = """
UPDATE posthouse.generation SET history = $1 WHERE projection = $2 AND number = $3 AND history = 'unknown'
"""

# All of them.
GENERATIONS = f'SELECT {COLUMNS} FROM posthouse.generation ORDER BY projection COLLATE "C", number'

# Those whose time has come.
EXPIRED = f"SELECT projection, number FROM posthouse.generation WHERE state = 'retired' AND drop_at <= {NOW}"

# The one that is read.
LIVE = "SELECT number FROM posthouse.generation WHERE projection = CAST($1 AS text) AND state = 'live'"

# Take or renew the right to build one. One that lasts longer than it ever does was given by a clock that was set back since.
LEASE = f"""
UPDATE posthouse.generation SET owner = $2, until = {NOW} + $3
WHERE projection = $4 AND number = $5 AND state = 'building' AND (owner = $2 OR until <= {NOW} OR until > {NOW} + 2 * $3)
"""

# Which tables it has.
NAME_TABLES = "UPDATE posthouse.generation SET tables = $1 WHERE projection = $2 AND number = $3"

STANDING = (
    "projection = $1 AND number = $2 AND state = 'building' AND owner = $3 AND phase = $4 AND cursor = $5 AND read = $6"
)
"""Being built by its owner, and as far as that believes: a server that took over may lack the last steps."""

# How far it is.
ADVANCE = f"UPDATE posthouse.generation SET phase = $7, cursor = $8, read = $9 WHERE {STANDING}"

# The one that is to be read; locked, so that its owner stays the same.
NEXT = f"SELECT 1 FROM posthouse.generation WHERE {STANDING} FOR UPDATE"

# The one before is not read any more …
REPLACE = f"""
UPDATE posthouse.generation SET state = 'retired', retired_at = {NOW}, drop_at = {NOW} + $2
WHERE projection = $3 AND state = 'live'
"""

# … but this one.
GO_LIVE = f"""
UPDATE posthouse.generation SET state = 'live', live_at = {NOW}, owner = '', until = 0
WHERE projection = $2 AND number = $3
"""

# Whether it is what it is believed to be, and stays so.
STATE = "SELECT state FROM posthouse.generation WHERE projection = $1 AND number = $2 FOR SHARE"

# An effect is said, or left to a swap, unless it was.
NOTE_EFFECT = f"""
INSERT INTO posthouse.effect (tenant, projection, event_id, number, noted_at, facts) VALUES ($2, $3, $4, $5, {NOW}, $6)
ON CONFLICT DO NOTHING
"""

# Those of some events that were said.
SAID = """
SELECT event_id FROM posthouse.effect
WHERE tenant = $1 AND projection = $2 AND event_id = ANY ($3::text[]) AND number = 0
"""

# What was left to a swap.
LEFT = """
SELECT tenant, event_id, facts FROM posthouse.effect WHERE projection = $1 AND number = $2 AND number > 0
ORDER BY position
"""

# Forget the oldest.
PURGE = f"""
DELETE FROM posthouse.effect WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM posthouse.effect WHERE noted_at < {NOW} - $2 ORDER BY noted_at LIMIT $3))
"""

# The last event applied.
NOTE = """
UPDATE posthouse.generation SET event_at = greatest(event_at, $1), applied_at = $2
WHERE projection = $3 AND number = $4 AND applied_at < $2
"""

# Give one up.
RETIRE = f"""
UPDATE posthouse.generation
SET state = 'retired', retired_at = greatest(retired_at, {NOW}), drop_at = {NOW}, owner = '', until = 0
WHERE projection = $2 AND number = $3 AND state <> 'live'
"""

# Whether one is retired, and stays so: nobody else destroys it, or makes anything of it, meanwhile.
RETIRED = """
SELECT tables FROM posthouse.generation WHERE projection = $1 AND number = $2 AND state = 'retired' FOR UPDATE
"""

# Whether one is anything else.
KEPT = "SELECT 1 FROM posthouse.generation WHERE projection = $1 AND number = $2 AND state <> 'retired' FOR UPDATE"

# How long we wait for a lock that others may hold for long. Whoever comes after us waits as long, and no longer.
BRIEFLY = "SET LOCAL lock_timeout = '50ms'"

# What a consumer group has seen and holds.
SEEN = tuple(
    f"""
DELETE FROM posthouse.{table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM posthouse.{table} WHERE consumer = $1 LIMIT $2))
"""
    for table in ("held", "head", "inbox", "applied_count", "applied", "forgotten", "consumer")
)

# Up to where its streams were read.
UNCOVER = """
DELETE FROM posthouse.overlap WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM posthouse.overlap WHERE projection = $1 AND number = $2 LIMIT $3))
"""

# The generation itself.
REMOVE = "DELETE FROM posthouse.generation WHERE projection = $1 AND number = $2 AND state = 'retired'"

# How many events there are.
EXTENT = "SELECT coalesce(sum(version - base), 0)::bigint FROM posthouse.stream WHERE aggregate = ANY ($1::text[])"

# It is settled what comes in bulk …
CLOSE = f"UPDATE posthouse.generation SET phase = 'closing' WHERE {STANDING}"

# … for each stream up to the version that it has: one statement, so one moment.
COVER = """
INSERT INTO posthouse.overlap (tenant, projection, number, aggregate, stream, version)
SELECT tenant, $1, $2, aggregate, stream, version FROM posthouse.stream WHERE aggregate = ANY ($3::text[])
"""

# Up to where some streams were read.
COVERED = """
SELECT o.tenant, o.aggregate, o.stream, o.version
FROM unnest($1::text[], $2::text[], $3::text[]) AS s (tenant, aggregate, stream) JOIN posthouse.overlap o
    ON o.tenant = s.tenant AND o.projection = $4 AND o.number = $5 AND o.aggregate = s.aggregate AND o.stream = s.stream
"""

# Whose rows the transaction sees from here on.
TURN_TO = "SELECT set_config('posthouse.tenant', $1, true)"


class PostgresProjections:
    """The generations in a `PostgresStore`."""

    def __init__(self, database: Database, clock: Clock | None, *, isolated: bool) -> None:
        self._database = database
        self._clock = clock
        self._isolated = isolated

    async def number(self, tx: Transaction, projection: str) -> int:
        return int(str((await own(tx).run(NUMBER, projection)).scalar()))

    async def judge(self, projection: str, number: int, history: History) -> None:
        await self._database.run(JUDGE, history, projection, number)

    async def begin(self, tx: Transaction, generation: Generation) -> bool:
        lists = {"tables": list(generation.tables), "effects": list(generation.effects)}
        values = msgspec.structs.asdict(generation) | lists
        return (await own(tx).run(BEGIN, self._now(), *values.values())).rowcount == 1

    async def name_tables(self, tx: Transaction, projection: str, number: int, tables: Sequence[str]) -> None:
        await own(tx).run(NAME_TABLES, list(tables), projection, number)

    async def generations(self) -> Sequence[Generation]:
        return [_generation(columns) for columns in await self._database.run(GENERATIONS)]

    async def expired(self) -> Sequence[tuple[str, int]]:
        found: Sequence[Sequence[Any]] = await self._database.run(EXPIRED, self._now())
        return [(projection, number) for projection, number in found]

    async def live(self, tx: Transaction, projection: str) -> int | None:
        theirs = tx if isinstance(tx, BEGUN) else theirs_of(self._database, tx)
        return await theirs.carry_out(_living(projection))

    async def lease(self, projection: str, number: int, owner: str, seconds: float) -> bool:
        done = await self._database.run(LEASE, self._now(), owner, seconds, projection, number)
        return done.rowcount == 1

    async def advance(self, tx: Transaction, before: Generation, after: Generation) -> bool:
        return (await own(tx).run(ADVANCE, *_standing(before), *_place(after))).rowcount == 1

    async def swap(self, tx: Transaction, generation: Generation, drop_after: float | None) -> bool:
        projection, number = generation.projection, generation.number
        if not await own(tx).run(NEXT, *_standing(generation)):
            return False
        await own(tx).run(REPLACE, self._now(), drop_after, projection)
        await own(tx).run(GO_LIVE, self._now(), projection, number)
        return True

    async def confirmed(self, tx: Transaction, projection: str, number: int) -> GenerationState | None:
        found: Any = await own(tx).run(STATE, projection, number)
        return found[0][0] if found else None

    async def say(self, tx: Transaction, projection: str, tenant: str, event_id: str) -> bool:
        return (await own(tx).run(NOTE_EFFECT, self._now(), tenant, projection, event_id, 0, None)).rowcount == 1

    async def unsaid(self, tx: Transaction, projection: str, tenant: str, event_ids: Sequence[str]) -> Collection[str]:
        found: Any = await own(tx).run(SAID, tenant, projection, list(event_ids))
        return set(event_ids) - {event_id for (event_id,) in found}

    async def leave(self, tx: Transaction, projection: str, number: int, effect: Effect) -> None:
        noted = (effect.tenant, projection, effect.event_id, number, effect.facts)
        await own(tx).run(NOTE_EFFECT, self._now(), *noted)

    async def left(self, projection: str, number: int) -> Sequence[Effect]:
        found: Sequence[Sequence[Any]] = await self._database.run(LEFT, projection, number)
        return [Effect(*columns) for columns in found]

    async def purge_effects(self, age: float, limit: int) -> int:
        return (await self._database.run(PURGE, self._now(), age, limit)).rowcount

    async def note(self, projection: str, number: int, event_at: float, applied_at: float) -> None:
        await self._database.run(NOTE, event_at, applied_at, projection, number)

    async def retire(self, projection: str, number: int) -> bool:
        return (await self._database.run(RETIRE, self._now(), projection, number)).rowcount == 1

    async def condemn(self, tx: Transaction, projection: str, number: int) -> Sequence[str] | None:
        await own(tx).run(BRIEFLY)
        found: Any = await own(tx).run(RETIRED, projection, number)
        return list(found[0][0]) if found else None

    async def remove(self, projection: str, number: int, consumer: str, limit: int) -> bool:
        async with PostgresTransaction(self._database) as tx:
            await tx.run(BRIEFLY)
            if await tx.run(KEPT, projection, number):
                return True
            gone = [(await tx.run(sql, consumer, limit)).rowcount for sql in SEEN]
            gone.append((await tx.run(UNCOVER, projection, number, limit)).rowcount)
            if any(count >= limit for count in gone):
                return False
            await tx.run(REMOVE, projection, number)
            return True

    async def extent(self, aggregates: Sequence[str]) -> int:
        return int(str((await self._database.run(EXTENT, list(aggregates))).scalar()))

    async def cover(self, generation: Generation, aggregates: Sequence[str]) -> bool:
        async with PostgresTransaction(self._database) as tx:
            if (await tx.run(CLOSE, *_standing(generation))).rowcount != 1:
                return False
            await tx.run(COVER, generation.projection, generation.number, list(aggregates))
            return True

    async def covered(
        self, tx: Transaction, projection: str, number: int, streams: Sequence[StreamKey]
    ) -> Mapping[StreamKey, int]:
        columns = ([key[place] for key in streams] for place in range(3))
        rows: Any = await own(tx).run(COVERED, *columns, projection, number)
        return {(tenant, aggregate, stream): version for tenant, aggregate, stream, version in rows}

    async def turn_to(self, tx: Transaction, tenant: str) -> None:
        if self._isolated:
            await own(tx).run(TURN_TO, tenant)

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()


def _living(projection: str) -> Steps[int | None]:
    found: Any = yield LIVE, (projection,)
    return int(found.scalar()) if found else None


def _standing(generation: Generation) -> tuple[object, ...]:
    return generation.projection, generation.number, generation.owner, *_place(generation)


def _place(generation: Generation) -> tuple[str, str, int]:
    return generation.phase, generation.cursor, generation.read


def _generation(columns: Sequence[Any]) -> Generation:
    said: dict[str, Any] = dict(zip(FIELDS, columns, strict=True))
    return Generation(**(said | {name: tuple(said[name]) for name in ("tables", "effects")}))
