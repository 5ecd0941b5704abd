"""Outbox: append-only rows, read by relays through leased shards. One writer makes id order commit order."""

from __future__ import annotations

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from posthouse.clock import Clock
from posthouse.store import Action, OutboxRow, OutboxShard, Poll, SentFilter, StuckRow, Tail, Transaction, parked
from posthouse.store.outbox import Number, ShardLease
from posthouse.stores.rows import SEPARATOR, outbox_row, place_of, stuck_row, untyped
from posthouse.stores.sqlite.actions import SqliteActions
from posthouse.stores.sqlite.append import appending, appending_numbered, numbering
from posthouse.stores.sqlite.database import Database, SqliteTransaction, rows_of
from posthouse.stores.sqlite.joins import SqliteJoined
from posthouse.stores.sqlite.steps import Steps, carry_out

COLUMNS = "o.id, o.topic, o.tenant, o.key, o.sequence, o.lineage, o.event_id, o.headers, o.body"

# Leases. A set of shards is a bit mask.

# This relay is alive.
REGISTER = (
    "INSERT INTO posthouse_member (owner, until) VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET until = excluded.until"
)

# Relays that are not.
BURY = "DELETE FROM posthouse_member WHERE until <= ? OR until > ?"

# How many share the shards, and how many shards there are.
SHARERS = "SELECT (SELECT count(*) FROM posthouse_member), (SELECT count(*) FROM posthouse_shard)"

# Shards of an owner.
OWNED = "SELECT number FROM posthouse_shard WHERE owner = ? ORDER BY number"

# Give up shards.
GIVE_UP = "UPDATE posthouse_shard SET owner = NULL, until = 0 WHERE owner = ? AND (? >> number) & 1"

# Take shards that nobody holds any more.
TAKE = """
UPDATE posthouse_shard SET owner = ?, epoch = epoch + 1 WHERE number IN (
    SELECT number FROM posthouse_shard WHERE owner IS NULL OR (owner <> ? AND (until <= ? OR until > ?)) ORDER BY number LIMIT ?)
"""

# Keep what is held.
RENEW = "UPDATE posthouse_shard SET until = ? WHERE owner = ? RETURNING number, epoch"

# Leave the relays.
LEAVE = "DELETE FROM posthouse_member WHERE owner = ?"

# What the fence compares: the shards that an owner holds now.
HELD_SHARDS = "SELECT number, epoch, cursor FROM posthouse_shard WHERE owner = ? AND until > ?"

# Every shard, and who holds it.
LEASES = """
SELECT number, epoch, CASE WHEN until > ?1 THEN coalesce(owner, '') ELSE '' END,
    CASE WHEN owner IS NULL THEN 0.0 ELSE max(0.0, until - ?1) END FROM posthouse_shard ORDER BY number
"""

# Polls.

# Every shard's cursor.
CURSORS = "SELECT number, epoch, cursor FROM posthouse_shard"

# The newest row.
NEWEST = "SELECT max(id) FROM posthouse_outbox"

# Whether any key is stuck.
ANY_STUCK = "SELECT EXISTS (SELECT 1 FROM posthouse_stuck)"

# Rows of some shards in id order.
SCAN = f"""
SELECT {COLUMNS}, 0 FROM posthouse_outbox o
WHERE o.id > ? AND o.id <= ? AND (? >> o.shard) & 1 ORDER BY o.id LIMIT ?
"""

# The same where shards have cursors of their own, or keys are stuck.
SCAN_WITH_CARE = f"""
SELECT {COLUMNS}, EXISTS (
    SELECT 1 FROM posthouse_stuck s WHERE s.topic = o.topic AND s.tenant = o.tenant AND s.key = o.key)
FROM posthouse_outbox o CROSS JOIN posthouse_shard l ON l.number = o.shard
WHERE o.id > ? AND o.id <= ? AND (? >> o.shard) & 1 AND o.id > l.cursor ORDER BY o.id LIMIT ?
"""

# Settling.

# Move cursors forward.
MOVE = "UPDATE posthouse_shard SET cursor = max(cursor, ?) WHERE (? >> number) & 1"

# Park a row.
PARK = """
INSERT INTO posthouse_stuck (id, shard, topic, tenant, key, attempts, first_at, next_at, error, quarantined)
SELECT id, shard, topic, tenant, key, ?, ?, ?, ?, ? FROM posthouse_outbox WHERE id = ?
ON CONFLICT (id) DO NOTHING
"""

# Count rows that the broker accepted.
COUNT_SENT = """
INSERT INTO posthouse_sent (topic, count) VALUES (?, ?)
ON CONFLICT (topic) DO UPDATE SET count = count + excluded.count
"""

# Stuck rows.

STUCK = f"""
SELECT {COLUMNS}, s.attempts, s.error, s.quarantined, s.next_at - ?1, ?1 - s.first_at, s.first_at, s.next_at
FROM posthouse_stuck s JOIN posthouse_outbox o ON o.id = s.id
"""

# The first row of each stuck key, when its time has come.
STUCK_DUE = f"""{STUCK}
WHERE s.next_at <= ?1 AND NOT s.quarantined AND (?2 >> s.shard) & 1 AND (s.key IS NULL OR NOT EXISTS (
    SELECT 1 FROM posthouse_stuck e WHERE e.topic = s.topic AND e.tenant = s.tenant AND e.key = s.key AND e.id < s.id))
ORDER BY s.id LIMIT ?3
"""

# All of them.
STUCK_ALL = f"{STUCK} WHERE s.id > ?2 ORDER BY s.id LIMIT ?3"

# A stuck row was sent.
UNPARK = "DELETE FROM posthouse_stuck WHERE id = ? RETURNING topic, tenant, key"

# Its followers are due.
WAKE = "UPDATE posthouse_stuck SET next_at = min(next_at, ?) WHERE topic = ? AND tenant = ? AND key = ?"

# Try again later.
RESCHEDULE = (
    "UPDATE posthouse_stuck SET attempts = ?, first_at = ?, next_at = ?, error = ?, quarantined = ? WHERE id = ?"
)

# Try again now.
RETRY = "UPDATE posthouse_stuck SET next_at = ?, quarantined = 0 WHERE id = ?"

# What is there, sent or not.
KEPT = f"SELECT {COLUMNS} FROM posthouse_outbox o WHERE o.id > ? ORDER BY o.id LIMIT ?"

# What was sent and is there still.
WRITTEN = "SELECT id, written_at FROM posthouse_outbox WHERE id IN (SELECT value FROM json_each(?1))"
SENT = f"""
SELECT {COLUMNS} FROM posthouse_outbox o CROSS JOIN posthouse_shard l ON l.number = o.shard
WHERE o.id > ?1 AND o.id <= l.cursor AND NOT EXISTS (SELECT 1 FROM posthouse_stuck s WHERE s.id = o.id)
    AND (?3 IS NULL OR o.topic = ?3) AND (?4 IS NULL OR o.tenant = ?4) AND (?5 IS NULL OR o.key = ?5)
ORDER BY o.id LIMIT ?2
"""

# Following.

# Which store this is, up to which row rows may be gone, and the last one.
PLACE = """
SELECT (SELECT value FROM posthouse_meta WHERE name = 'identity'), (SELECT value FROM posthouse_meta WHERE name = 'lineage'),
    (SELECT value FROM posthouse_meta WHERE name = 'purged'),
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'posthouse_outbox'), 0)
"""

# Rows between two ids, of some topics and one tenant, or all.
TAIL = f"""
SELECT {COLUMNS} FROM posthouse_outbox o WHERE o.id > ?1 AND o.id <= ?2 AND (?3 IS NULL OR o.tenant = ?3)
    AND (?4 IS NULL OR o.topic IN (SELECT value FROM json_each(?4))) ORDER BY o.id LIMIT ?5
"""

# The last number of a key, and the lineage.
LAST_NUMBER = """
SELECT coalesce((SELECT sequence FROM posthouse_key WHERE topic = ? AND tenant = ? AND key = ?), 0), value
FROM posthouse_meta WHERE name = 'lineage'
"""

# Purging.

# Rows that every shard has passed and that are not stuck, up to an id. One bound for both: of two, SQLite would search by one and
# look through all that is kept for the other.
PURGE = """
DELETE FROM posthouse_outbox WHERE id IN (
    SELECT id FROM posthouse_outbox
    WHERE id <= min(?, (SELECT min(cursor) FROM posthouse_shard)) AND id NOT IN (SELECT id FROM posthouse_stuck)
    ORDER BY id LIMIT ?) RETURNING id
"""

# Remember up to where rows are gone.
NOTE_PURGED = "UPDATE posthouse_meta SET value = max(value, ?) WHERE name = 'purged'"

# How far every shard is, and how far that was noted.
PASSED = "SELECT (SELECT min(cursor) FROM posthouse_shard), (SELECT coalesce(max(id), 0) FROM posthouse_passed)"

# Note it: the rows between two notes, with about what a row takes besides.
NOTE_PASSED = """
INSERT INTO posthouse_passed (id, at, bytes)
SELECT ?1, ?2, coalesce(sum(length(body) + coalesce(length(headers), 0) + 150), 0) FROM posthouse_outbox WHERE id > ?3 AND id <= ?1
"""

# Up to which row nothing is kept any more: passed long enough ago, or too much came behind it.
KEPT_ENOUGH = """
SELECT max(id) FROM (SELECT id, at, sum(bytes) OVER (ORDER BY id DESC) AS so_far FROM posthouse_passed)
WHERE at <= ? OR so_far > ?
"""

# Forget the notes on rows that are gone.
FORGET_PASSED = "DELETE FROM posthouse_passed WHERE id < ?"

# Intents whose window is over.
FORGET = """
DELETE FROM posthouse_idempotency WHERE (tenant, topic, idempotency_key) IN (
    SELECT tenant, topic, idempotency_key FROM posthouse_idempotency WHERE until <= ? ORDER BY until LIMIT ?)
"""


ALL = 2**63 - 1
"""Not below any id."""


class Cursor(msgspec.Struct, frozen=True):
    """How far a poll has looked, and the cursors it began from."""

    upto: int
    before: Mapping[int, int]


class SqliteOutbox:
    """The outbox of a `SqliteStore`."""

    def __init__(self, database: Database, clock: Clock, window: float) -> None:
        self._database = database
        self._clock = clock
        self._window = window

    async def append(
        self, tx: Transaction, rows: Sequence[OutboxRow], *, with_commit: bool = False, numbered: bool = False
    ) -> Sequence[str]:
        now = self._clock.now()

        def steps(shards: int) -> Steps[Sequence[str]]:
            if numbered:
                return appending_numbered(rows, shards=shards, now=now)
            return appending(rows, shards=shards, now=now, window=self._window)

        if isinstance(tx, SqliteTransaction):
            tx.appended = True
            return carry_out(steps(self._database.known_shards), tx.run)
        theirs = self._theirs(tx)
        return await theirs.carry_out(steps(await theirs.checked()))

    async def number(self, tx: Transaction, rows: Sequence[OutboxRow]) -> Sequence[Number]:
        steps = numbering(rows, now=self._clock.now(), window=self._window)
        if isinstance(tx, SqliteTransaction):
            return carry_out(steps, tx.run)
        theirs = self._theirs(tx)
        await theirs.checked()
        return await theirs.carry_out(steps)

    def _theirs(self, tx: Transaction) -> SqliteJoined:
        return tx if isinstance(tx, SqliteJoined) else SqliteJoined(self._database, tx.connection)

    async def lease(self, owner: str, seconds: float) -> Sequence[OutboxShard]:
        async with self._database.begin(books=True) as tx:
            now = self._clock.now()
            tx.run(REGISTER, (owner, now + seconds))
            longest = now + max(seconds, 3600.0)  # one that ends later was given by a clock that was set back since
            tx.run(BURY, (now, longest))
            members, shards = _numbers(tx.run(SHARERS).one())
            share = math.ceil(shards / members)
            mine = [number for (number,) in map(_numbers, tx.run(OWNED, (owner,)))]
            if len(mine) > share:
                tx.run(GIVE_UP, (owner, _mask(mine[share:])))
            elif len(mine) < share:
                tx.run(TAKE, (owner, owner, now, longest, share - len(mine)))
            held = map(_numbers, sorted(tx.run(RENEW, (now + seconds, owner))))
            return [OutboxShard(number, epoch) for number, epoch in held]

    async def release(self, owner: str) -> None:
        async with self._database.begin(books=True) as tx:
            tx.run(GIVE_UP, (owner, -1))
            tx.run(LEAVE, (owner,))

    async def poll(self, shards: Sequence[OutboxShard], limit: int) -> Poll:
        return await self._database.read(lambda connection: self._poll(connection, shards, limit))

    def _poll(self, connection: sqlite3.Connection, shards: Sequence[OutboxShard], limit: int) -> Poll:
        cursors = {(number, epoch): cursor for number, epoch, cursor in connection.execute(CURSORS).fetchall()}
        before = {shard.number: cursors[key] for shard in shards if (key := (shard.number, shard.epoch)) in cursors}
        if not before:
            return Poll(shards=shards, rows=())
        low, high = min(before.values()), max(before.values())
        newest = connection.execute(NEWEST).fetchone()[0] or 0
        if newest <= low:
            return Poll(shards=shards, rows=())
        stuck = connection.execute(ANY_STUCK).fetchone()[0]
        scan = SCAN if low == high and not stuck else SCAN_WITH_CARE
        found = connection.execute(scan, (low, newest, _mask(before), limit)).fetchall()
        more = len(found) == limit
        return Poll(
            shards=shards,
            rows=[outbox_row(*columns) for columns in found],
            stuck=frozenset(columns[0] for columns in found if columns[9]) if stuck else frozenset(),
            more=more,
            cursor=Cursor(found[-1][0] if more else newest, before),
        )

    async def settle(self, owner: str, poll: Poll, stuck: Sequence[StuckRow]) -> bool:
        cursor = poll.cursor
        if not isinstance(cursor, Cursor):
            return await self._database.read(lambda connection: self._holds(connection, owner, poll.shards, {}))
        async with self._database.begin(books=True) as tx:
            if not self._holds(tx, owner, poll.shards, cursor.before):
                return False
            tx.run(MOVE, (cursor.upto, _mask(cursor.before)))
            waiting = [*stuck, *self._unnamed(poll, stuck)]
            now = self._clock.now()
            tx.run_many(PARK, [_stuck_columns(row, now) for row in waiting])
            unsent = {row.row.id for row in waiting}
            sent = Counter(row.topic for row in poll.rows if row.id not in unsent)
            tx.run_many(COUNT_SENT, sent.items())
        return True

    def _unnamed(self, poll: Poll, stuck: Sequence[StuckRow]) -> Iterable[StuckRow]:
        """Rows that the poll flagged and the relay did not name: they are parked too, never passed over."""
        if not poll.stuck:
            return
        named = {row.row.id for row in stuck}
        for row in poll.rows:
            if row.id in poll.stuck and row.id not in named:
                yield parked(row)

    def _holds(
        self,
        reader: SqliteTransaction | sqlite3.Connection,
        owner: str,
        shards: Iterable[OutboxShard],
        before: Mapping[int, int],
    ) -> bool:
        """The fence: every shard is held by `owner` under its epoch, and its cursor stands where it was read."""
        run = reader.run if isinstance(reader, SqliteTransaction) else lambda sql, p: rows_of(reader, sql, p)
        held = {(number, epoch): cursor for number, epoch, cursor in run(HELD_SHARDS, (owner, self._clock.now()))}
        for shard in shards:
            cursor = held.get((shard.number, shard.epoch))
            if cursor is None or before.get(shard.number, cursor) != cursor:
                return False
        return True

    async def stuck_due(self, shards: Sequence[OutboxShard], limit: int) -> Sequence[StuckRow]:
        mask = _mask(shard.number for shard in shards)
        return [
            stuck_row(columns) for columns in await self._database.select(STUCK_DUE, (self._clock.now(), mask, limit))
        ]

    async def settle_stuck(
        self, owner: str, shards: Sequence[OutboxShard], sent: Sequence[int], failed: Sequence[StuckRow]
    ) -> bool:
        async with self._database.begin(books=True) as tx:
            if not self._holds(tx, owner, shards, {}):
                return False
            now = self._clock.now()
            for row_id in sent:
                for topic, tenant, key in tx.run(UNPARK, (row_id,)):
                    tx.run(WAKE, (now, topic, tenant, key))
                    tx.run(COUNT_SENT, (topic, 1))
            tx.run_many(RESCHEDULE, [_stuck_columns(row, now) for row in failed])
        return True

    async def leases(self) -> Sequence[ShardLease]:
        found = await self._database.select(LEASES, (self._clock.now(),))
        return [ShardLease(*untyped(columns)) for columns in found]

    async def stuck(self, *, after: int = 0, limit: int | None = None) -> Sequence[StuckRow]:
        parameters = (self._clock.now(), after, -1 if limit is None else limit)
        return [stuck_row(columns) for columns in await self._database.select(STUCK_ALL, parameters)]

    async def retry_stuck(self, row_id: int, action: Action | None = None) -> bool:
        async with self._database.begin() as tx:
            tx.appended = True
            done = tx.run(RETRY, (self._clock.now(), row_id)).rowcount > 0
            if done and action is not None:
                await SqliteActions(self._database, self._clock).add(tx, action)
            return done

    async def kept(self, after: int, limit: int) -> Sequence[OutboxRow]:
        return [outbox_row(*columns) for columns in await self._database.select(KEPT, (after, limit))]

    async def sent(self, wanted: SentFilter, after: int, limit: int) -> Sequence[OutboxRow]:
        parameters = (after, limit, wanted.topic, wanted.tenant, wanted.key)
        return [outbox_row(*columns) for columns in await self._database.select(SENT, parameters)]

    async def written(self, ids: Collection[int]) -> Mapping[int, float]:
        wanted = msgspec.json.encode(sorted(ids)).decode()
        return {int(untyped(id)): float(untyped(at)) for id, at in await self._database.select(WRITTEN, (wanted,))}

    async def newest(self) -> int:
        return int(untyped((await self._database.select(NEWEST)).scalar()) or 0)

    async def tail(
        self,
        after: str = "",
        *,
        upto: str = "",
        topics: Collection[str] = (),
        tenant: str | None = None,
        limit: int = 500,
        reach: int = 100_000,
    ) -> Tail:
        wanted = None if not topics else msgspec.json.encode(sorted(topics)).decode()

        def read(connection: sqlite3.Connection) -> Tail:
            identity, lineage, purged, last = connection.execute(PLACE).fetchone()
            place = place_of(identity, lineage)
            end = f"{place}{SEPARATOR}{last}"
            if not after:
                return Tail(position=end)
            begin, stop = _id_of(after, place), _id_of(upto, place) if upto else last
            if begin is None or stop is None or not purged <= begin <= last or last - begin > reach:
                return Tail(position=end, gone=True)
            found = connection.execute(TAIL, (begin, stop, tenant, wanted, limit)).fetchall()
            more = len(found) == limit
            positions = [f"{place}{SEPARATOR}{columns[0]}" for columns in found]
            position = positions[-1] if more else f"{place}{SEPARATOR}{max(begin, stop)}"
            return Tail(rows=[outbox_row(*row) for row in found], positions=positions, position=position, more=more)

        return await self._database.read(read)

    async def last_number(self, topic: str, tenant: str, key: str) -> tuple[int, int]:
        sequence, lineage = _numbers((await self._database.select(LAST_NUMBER, (topic, tenant, key))).one())
        return sequence, lineage

    async def purge(self, limit: int, *, keep: float = 0.0, room: int = 0) -> int:
        async with self._database.begin(books=True) as tx:
            tx.run(FORGET, (self._clock.now(), limit))
            upto = self._kept_enough(tx, keep, room) if keep else ALL
            gone = [number for (number,) in map(_numbers, tx.run(PURGE, (upto, limit)))]
            if gone:
                tx.run(NOTE_PURGED, (max(gone),))
            if len(gone) < limit:
                tx.run(FORGET_PASSED, (upto,))
            return len(gone)

    def _kept_enough(self, tx: SqliteTransaction, keep: float, room: int) -> int:
        """Up to which row nothing is kept any more; notes how far the outbox was sent by now."""
        passed, noted = _numbers(tx.run(PASSED).one())
        now = self._clock.now()
        if passed > noted:
            tx.run(NOTE_PASSED, (passed, now, noted))
        found = tx.run(KEPT_ENOUGH, (now - keep, room)).scalar()
        return int(str(found)) if found is not None else 0


def _id_of(position: str, place: str) -> int | None:
    """The id that a position of this place stands for."""
    found = re.fullmatch(rf"{place}{re.escape(SEPARATOR)}([0-9]{{1,18}})", position)
    return None if found is None else int(found[1])


def _mask(numbers: Iterable[int]) -> int:
    """A set of shards as the bits of one integer."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _numbers(columns: Sequence[Any]) -> Sequence[int]:
    return columns


def _stuck_columns(stuck: StuckRow, now: float) -> Sequence[object]:
    """In the order of PARK and RESCHEDULE."""
    return (stuck.attempts, stuck.first_at or now, now + stuck.after, stuck.error, stuck.quarantined, stuck.row.id)
