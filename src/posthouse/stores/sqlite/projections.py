"""Projections: the generations of read models, and up to where streams were read in bulk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.store.projections import NUMBERS_LOST, Effect, Generation, GenerationState, History, StreamKey
from posthouse.store.transaction import Transaction
from posthouse.stores.sqlite.database import Database, SqliteTransaction

COLUMNS = ", ".join(Generation.__struct_fields__)

# Add a generation, unless one of its number, or in its state, is there.
BEGIN = f"""
INSERT INTO posthouse_generation ({COLUMNS}) VALUES ({", ".join("?" * len(Generation.__struct_fields__))})
ON CONFLICT DO NOTHING
"""

# A number that was never given, also not by a file that a backup has replaced.
NUMBER = f"""
INSERT INTO posthouse_generation_number (projection, last)
SELECT ?1, 1 + max(
    (SELECT coalesce(max(number), 0) FROM posthouse_generation WHERE projection = ?1),
    (SELECT (value - 1) * {NUMBERS_LOST} FROM posthouse_meta WHERE name = 'lineage'))
WHERE true
ON CONFLICT (projection) DO UPDATE SET last = max(last + 1, excluded.last) RETURNING last
"""

# Whether it is complete.
JUDGE = "UPDATE posthouse_generation SET history = ? WHERE projection = ? AND number = ? AND history = 'unknown'"

# The tables of a retired one.
CONDEMNED = "SELECT tables FROM posthouse_generation WHERE projection = ? AND number = ? AND state = 'retired'"

# All of them.
GENERATIONS = f"SELECT {COLUMNS} FROM posthouse_generation ORDER BY projection, number"

# Those whose time has come.
EXPIRED = "SELECT projection, number FROM posthouse_generation WHERE state = 'retired' AND drop_at <= ?"

# The one that is read.
LIVE = "SELECT number FROM posthouse_generation WHERE projection = ? AND state = 'live'"

# Take or renew the right to build one. One that lasts longer than it ever does was given by a clock that was set back since.
LEASE = """
UPDATE posthouse_generation SET owner = ?1, until = ?2
WHERE projection = ?3 AND number = ?4 AND state = 'building' AND (owner = ?1 OR until <= ?5 OR until > 2 * ?2 - ?5)
"""

# Which tables it has.
NAME_TABLES = "UPDATE posthouse_generation SET tables = ? WHERE projection = ? AND number = ?"

STANDING = (
    "projection = ?1 AND number = ?2 AND state = 'building' AND owner = ?3 AND phase = ?4 AND cursor = ?5 AND read = ?6"
)
"""Being built by its owner, and as far as that believes."""

# How far it is.
ADVANCE = f"UPDATE posthouse_generation SET phase = ?7, cursor = ?8, read = ?9 WHERE {STANDING}"

# The one before is not read any more …
REPLACE = f"""
UPDATE posthouse_generation SET state = 'retired', retired_at = ?7, drop_at = ?7 + ?8
WHERE projection = ?1 AND state = 'live' AND EXISTS (SELECT 1 FROM posthouse_generation WHERE {STANDING})
"""

# … but this one.
GO_LIVE = f"UPDATE posthouse_generation SET state = 'live', live_at = ?7, owner = '', until = 0 WHERE {STANDING}"

# Whether it is what it is believed to be; there is one writer.
STATE = "SELECT state FROM posthouse_generation WHERE projection = ? AND number = ?"

# An effect is said, or left to a swap, unless it was.
NOTE_EFFECT = """
INSERT INTO posthouse_effect (tenant, projection, event_id, number, noted_at, facts) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""

# Those of some events that were said.
SAID = """
SELECT event_id FROM posthouse_effect WHERE tenant = ? AND projection = ? AND number = 0
    AND event_id IN (SELECT value FROM json_each(?))
"""

# What was left to a swap.
LEFT = """
SELECT tenant, event_id, facts FROM posthouse_effect WHERE projection = ? AND number = ? AND number > 0
ORDER BY position
"""

# Forget the oldest.
PURGE = """
DELETE FROM posthouse_effect WHERE position IN (
    SELECT position FROM posthouse_effect WHERE noted_at < ? ORDER BY noted_at LIMIT ?)
"""

# The last event applied.
NOTE = """
UPDATE posthouse_generation SET event_at = max(event_at, ?), applied_at = ?
WHERE projection = ? AND number = ? AND applied_at < ?
"""

# Give one up.
RETIRE = """
UPDATE posthouse_generation SET state = 'retired', retired_at = max(retired_at, ?1), drop_at = ?1, owner = '', until = 0
WHERE projection = ?2 AND number = ?3 AND state <> 'live'
"""

# Whether one is not retired.
KEPT = "SELECT 1 FROM posthouse_generation WHERE projection = ? AND number = ? AND state <> 'retired'"

# What a consumer group has seen and holds; figures go last.
SEEN = (
    """DELETE FROM posthouse_held WHERE id IN (SELECT id FROM posthouse_held WHERE consumer = ? LIMIT ?)""",
    """DELETE FROM posthouse_head WHERE (consumer, topic, tenant, key) IN (
        SELECT consumer, topic, tenant, key FROM posthouse_head WHERE consumer = ? LIMIT ?)""",
    """DELETE FROM posthouse_inbox WHERE (consumer, tenant, event_id) IN (
        SELECT consumer, tenant, event_id FROM posthouse_inbox WHERE consumer = ? LIMIT ?)""",
    """DELETE FROM posthouse_applied WHERE (consumer, topic) IN (
        SELECT consumer, topic FROM posthouse_applied WHERE consumer = ? LIMIT ?)""",
    """DELETE FROM posthouse_forgotten WHERE consumer IN (
        SELECT consumer FROM posthouse_forgotten WHERE consumer = ? LIMIT ?)""",
    """DELETE FROM posthouse_consumer WHERE (consumer, topic) IN (
        SELECT consumer, topic FROM posthouse_consumer WHERE consumer = ? LIMIT ?)""",
)

# Up to where its streams were read.
UNCOVER = """
DELETE FROM posthouse_overlap WHERE (projection, number, tenant, aggregate, stream) IN (
    SELECT projection, number, tenant, aggregate, stream FROM posthouse_overlap
    WHERE projection = ? AND number = ? LIMIT ?)
"""

# The generation itself.
REMOVE = "DELETE FROM posthouse_generation WHERE projection = ? AND number = ? AND state = 'retired'"

# How many events there are.
EXTENT = """
SELECT coalesce(sum(version - base), 0) FROM posthouse_stream WHERE aggregate IN (SELECT value FROM json_each(?))
"""

# It is settled what comes in bulk …
CLOSE = f"UPDATE posthouse_generation SET phase = 'closing' WHERE {STANDING}"

# … for each stream up to the version that it has.
COVER = """
INSERT INTO posthouse_overlap (projection, number, tenant, aggregate, stream, version)
SELECT ?, ?, tenant, aggregate, stream, version FROM posthouse_stream
WHERE aggregate IN (SELECT value FROM json_each(?))
"""

# Up to where some streams were read; they are a JSON array of arrays.
COVERED = """
SELECT o.tenant, o.aggregate, o.stream, o.version FROM json_each(?) s JOIN posthouse_overlap o
    ON o.tenant = json_extract(s.value, '$[0]') AND o.aggregate = json_extract(s.value, '$[1]')
        AND o.stream = json_extract(s.value, '$[2]')
WHERE o.projection = ? AND o.number = ?
"""

_tables = msgspec.json.Decoder(tuple[str, ...])


class SqliteProjections:
    """The generations in a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def number(self, tx: Transaction, projection: str) -> int:
        return int(str((await tx.execute(NUMBER, (projection,))).scalar()))

    async def judge(self, projection: str, number: int, history: History) -> None:
        async with self._database.begin(books=True) as tx:
            tx.run(JUDGE, (history, projection, number))

    async def condemn(self, tx: Transaction, projection: str, number: int) -> Sequence[str] | None:
        found: Any = await tx.execute(CONDEMNED, (projection, number))
        return _tables.decode(found[0][0]) if found else None

    async def begin(self, tx: Transaction, generation: Generation) -> bool:
        now = self._clock.now()
        live_at = generation.live_at or (now if generation.state == "live" else 0.0)
        begun = msgspec.structs.replace(generation, made_at=generation.made_at or now, live_at=live_at)
        values = msgspec.structs.asdict(begun) | {
            "tables": _packed(generation.tables),
            "effects": _packed(generation.effects),
        }
        return (await tx.execute(BEGIN, tuple(values.values()))).rowcount == 1

    async def name_tables(self, tx: Transaction, projection: str, number: int, tables: Sequence[str]) -> None:
        await tx.execute(NAME_TABLES, (_packed(tables), projection, number))

    async def generations(self) -> Sequence[Generation]:
        return [generation_of(columns) for columns in await self._database.select(GENERATIONS)]

    async def expired(self) -> Sequence[tuple[str, int]]:
        found: Sequence[Sequence[Any]] = await self._database.select(EXPIRED, (self._clock.now(),))
        return [(projection, number) for projection, number in found]

    async def live(self, tx: Transaction, projection: str) -> int | None:
        found = await tx.execute(LIVE, (projection,))
        return int(str(found.scalar())) if found else None

    async def lease(self, projection: str, number: int, owner: str, seconds: float) -> bool:
        now = self._clock.now()
        async with self._database.begin() as tx:
            return tx.run(LEASE, (owner, now + seconds, projection, number, now)).rowcount == 1

    async def advance(self, tx: Transaction, before: Generation, after: Generation) -> bool:
        return (await tx.execute(ADVANCE, (*_standing(before), *_place(after)))).rowcount == 1

    async def swap(self, tx: Transaction, generation: Generation, drop_after: float | None) -> bool:
        now = self._clock.now()
        await tx.execute(REPLACE, (*_standing(generation), now, drop_after))
        return (await tx.execute(GO_LIVE, (*_standing(generation), now))).rowcount == 1

    async def confirmed(self, tx: Transaction, projection: str, number: int) -> GenerationState | None:
        found: Any = await tx.execute(STATE, (projection, number))
        return found[0][0] if found else None

    async def say(self, tx: Transaction, projection: str, tenant: str, event_id: str) -> bool:
        said = await tx.execute(NOTE_EFFECT, (tenant, projection, event_id, 0, self._clock.now(), None))
        return said.rowcount == 1

    async def unsaid(self, tx: Transaction, projection: str, tenant: str, event_ids: Sequence[str]) -> Collection[str]:
        found: Any = await tx.execute(SAID, (tenant, projection, _packed(event_ids)))
        return set(event_ids) - {event_id for (event_id,) in found}

    async def leave(self, tx: Transaction, projection: str, number: int, effect: Effect) -> None:
        now = self._clock.now()
        await tx.execute(NOTE_EFFECT, (effect.tenant, projection, effect.event_id, number, now, effect.facts))

    async def left(self, projection: str, number: int) -> Sequence[Effect]:
        found: Sequence[Sequence[Any]] = await self._database.select(LEFT, (projection, number))
        return [Effect(*columns) for columns in found]

    async def purge_effects(self, age: float, limit: int) -> int:
        async with self._database.begin() as tx:
            return tx.run(PURGE, (self._clock.now() - age, limit)).rowcount

    async def note(self, projection: str, number: int, event_at: float, applied_at: float) -> None:
        async with self._database.begin(books=True) as tx:
            tx.run(NOTE, (event_at, applied_at, projection, number, applied_at))

    async def retire(self, projection: str, number: int) -> bool:
        async with self._database.begin() as tx:
            return tx.run(RETIRE, (self._clock.now(), projection, number)).rowcount == 1

    async def remove(self, projection: str, number: int, consumer: str, limit: int) -> bool:
        async with self._database.begin() as tx:
            if tx.run(KEPT, (projection, number)):
                return True
            gone = [tx.run(sql, (consumer, limit)).rowcount for sql in SEEN]
            gone.append(tx.run(UNCOVER, (projection, number, limit)).rowcount)
            if any(count >= limit for count in gone):
                return False
            tx.run(REMOVE, (projection, number))
            return True

    async def extent(self, aggregates: Sequence[str]) -> int:
        return int(str((await self._database.select(EXTENT, (_packed(aggregates),))).scalar()))

    async def cover(self, generation: Generation, aggregates: Sequence[str]) -> bool:
        async with self._database.begin() as tx:
            return _covered(tx, generation, aggregates)

    async def covered(
        self, tx: Transaction, projection: str, number: int, streams: Sequence[StreamKey]
    ) -> Mapping[StreamKey, int]:
        asked = msgspec.json.encode(streams).decode()
        rows: Any = await tx.execute(COVERED, (asked, projection, number))
        return {(tenant, aggregate, stream): version for tenant, aggregate, stream, version in rows}

    async def turn_to(self, tx: Transaction, tenant: str) -> None:
        """Tenants share a file."""


def _covered(tx: SqliteTransaction, generation: Generation, aggregates: Sequence[str]) -> bool:
    if tx.run(CLOSE, _standing(generation)).rowcount != 1:
        return False
    tx.run(COVER, (generation.projection, generation.number, _packed(aggregates)))
    return True


def _standing(generation: Generation) -> tuple[object, ...]:
    return generation.projection, generation.number, generation.owner, *_place(generation)


def _place(generation: Generation) -> tuple[str, str, int]:
    return generation.phase, generation.cursor, generation.read


def _packed(names: Sequence[str]) -> str:
    return msgspec.json.encode(names).decode()


def generation_of(columns: Sequence[Any]) -> Generation:
    """From the columns of GENERATIONS."""
    said: dict[str, Any] = dict(zip(Generation.__struct_fields__, columns, strict=True))
    lists = {name: _tables.decode(said[name]) for name in ("tables", "effects")}
    return Generation(**(said | lists))
