"""Streams: facts of event-sourced aggregates, in the order of the one writer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from posthouse.errors import VersionConflict
from posthouse.store.streams import BodyPage, Snapshot, Stream, StreamEvent, StreamHead, StreamPage, refuse_closed
from posthouse.store.transaction import Transaction
from posthouse.stores.rows import STREAM_EVENT, packed, stream_event
from posthouse.stores.sqlite.database import Database

# The last version of a stream.
VERSION = "SELECT version FROM posthouse_stream WHERE tenant = ? AND aggregate = ? AND stream = ?"

# Where it stands.
HEAD = "SELECT version, base, state FROM posthouse_stream WHERE tenant = ? AND aggregate = ? AND stream = ?"

# Move it.
MOVE = """
INSERT INTO posthouse_stream (tenant, aggregate, stream, version) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, aggregate, stream) DO UPDATE SET version = excluded.version
"""

# Add an event.
ADD = """
INSERT INTO posthouse_stream_event (tenant, aggregate, stream, version, event_id, type, headers, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

# A stream behind a version.
READ = f"""
SELECT {STREAM_EVENT} FROM posthouse_stream_event WHERE tenant = ?1 AND aggregate = ?2 AND stream = ?3 AND version > ?4
UNION ALL
SELECT {STREAM_EVENT} FROM posthouse_stream_archive WHERE tenant = ?1 AND aggregate = ?2 AND stream = ?3 AND version > ?4
ORDER BY version LIMIT ?5
"""

# Put a stream out of the way: its events as they are …
OUT_OF_THE_WAY = f"""
INSERT INTO posthouse_stream_archive ({STREAM_EVENT}) SELECT {STREAM_EVENT} FROM posthouse_stream_event
WHERE tenant = ? AND aggregate = ? AND stream = ?
"""

# … and whatever else is left of it.
CLEAR = (
    "DELETE FROM posthouse_stream_event WHERE tenant = ? AND aggregate = ? AND stream = ?",
    "DELETE FROM posthouse_snapshot WHERE tenant = ? AND aggregate = ? AND stream = ?",
    "UPDATE posthouse_stream SET state = 'archived' WHERE tenant = ? AND aggregate = ? AND stream = ?",
)

# Delete a stream up to its last fact.
DELETE = (
    *(
        f"""DELETE FROM {table} WHERE tenant = ?1 AND aggregate = ?2 AND stream = ?3 AND version < (
            SELECT version FROM posthouse_stream WHERE tenant = ?1 AND aggregate = ?2 AND stream = ?3)"""
        for table in ("posthouse_stream_event", "posthouse_stream_archive")
    ),
    "DELETE FROM posthouse_snapshot WHERE tenant = ? AND aggregate = ? AND stream = ?",
    "UPDATE posthouse_stream SET state = 'deleted', base = version WHERE tenant = ? AND aggregate = ? AND stream = ?",
)

# Let it take events again.
REOPEN = "UPDATE posthouse_stream SET state = 'open' WHERE tenant = ? AND aggregate = ? AND stream = ?"

# What was kept of a stream.
SNAPSHOT = "SELECT version, shape, state FROM posthouse_snapshot WHERE tenant = ? AND aggregate = ? AND stream = ?"

# Keep a snapshot, unless a later one of the same shape is there.
KEEP = """
INSERT INTO posthouse_snapshot (tenant, aggregate, stream, version, shape, state) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, aggregate, stream) DO UPDATE
SET version = excluded.version, shape = excluded.shape, state = excluded.state
WHERE shape <> excluded.shape OR version < excluded.version
"""

# Forget snapshots, of one aggregate or all.
DROP = "DELETE FROM posthouse_snapshot WHERE ?1 IS NULL OR aggregate = ?1"

# All streams behind a position; one more than asked for tells whether there is more.
READ_ALL = """
SELECT {columns} FROM posthouse_stream_event WHERE position > ?1
UNION ALL SELECT {columns} FROM posthouse_stream_archive WHERE position > ?1 ORDER BY position LIMIT ?2
"""

# The same of some types, which are a JSON array.
READ_TYPES = """
SELECT {columns} FROM posthouse_stream_event WHERE position > ?1 AND type IN (SELECT value FROM json_each(?2))
UNION ALL
SELECT {columns} FROM posthouse_stream_archive WHERE position > ?1 AND type IN (SELECT value FROM json_each(?2))
ORDER BY position LIMIT ?3
"""


class SqliteStreams:
    """The streams of a `SqliteStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, tx: Transaction, events: Sequence[StreamEvent]) -> None:
        if not events:
            return
        stream, expected = events[0].name, events[0].version - 1
        head = await self.head(tx, stream)
        refuse_closed(stream, head)
        found = 0 if head is None else head.version
        if found != expected:
            raise VersionConflict(str(stream), expected, found)
        await tx.execute(MOVE, (*_key(stream), events[-1].version))
        for event in events:
            await tx.execute(
                ADD, (*_key(stream), event.version, event.event_id, event.type, packed(event.headers), event.body)
            )

    async def version(self, tx: Transaction, stream: Stream, *, hold: bool = False) -> int:
        """Whoever writes holds every stream: there is one writer."""
        found = await tx.execute(VERSION, _key(stream))
        return int(str(found.scalar())) if found else 0

    async def head(self, tx: Transaction, stream: Stream, *, hold: bool = False) -> StreamHead | None:
        found: Any = await tx.execute(HEAD, _key(stream))
        return StreamHead(*found[0]) if found else None

    async def archive(self, tx: Transaction, stream: Stream) -> None:
        for statement in (OUT_OF_THE_WAY, *CLEAR):
            await tx.execute(statement, _key(stream))

    async def delete(self, tx: Transaction, stream: Stream) -> None:
        for statement in DELETE:
            await tx.execute(statement, _key(stream))

    async def reopen(self, tx: Transaction, stream: Stream) -> None:
        await tx.execute(REOPEN, _key(stream))

    async def read(
        self, tx: Transaction, stream: Stream, *, after: int = 0, limit: int = 10_000
    ) -> Sequence[StreamEvent]:
        return [stream_event(columns) for columns in await tx.execute(READ, (*_key(stream), after, limit))]

    async def snapshot(self, tx: Transaction, stream: Stream) -> Snapshot | None:
        found = await tx.execute(SNAPSHOT, _key(stream))
        return _snapshot(found[0]) if found else None

    async def keep(self, tx: Transaction, stream: Stream, snapshot: Snapshot) -> None:
        await tx.execute(KEEP, (*_key(stream), snapshot.version, snapshot.shape, snapshot.state))

    async def drop_snapshots(self, aggregate: str | None = None) -> int:
        async with self._database.begin() as tx:
            return tx.run(DROP, (aggregate,)).rowcount

    async def read_all(self, after: str = "", limit: int = 10_000, *, types: Collection[str] = ()) -> StreamPage:
        start = int(after or 0)
        found = await self._behind(start, limit + 1, types, STREAM_EVENT)
        events = [stream_event(columns) for columns in found[:limit]]
        return StreamPage(events, str(events[-1].position if events else start), more=len(found) > limit)

    async def read_bodies(
        self, headers: Mapping[str, str], after: str = "", limit: int = 10_000, *, types: Collection[str] = ()
    ) -> BodyPage | None:
        start, wanted = int(after or 0), packed(headers)
        found = await self._behind(start, limit + 1, types, "headers, body, position")
        rows = found[:limit]
        if any(text != wanted for text, _, _ in rows):
            return None
        last = rows[-1][2] if rows else start
        return BodyPage([body for _, body, _ in rows], str(last), more=len(found) > limit)

    async def _behind(self, start: int, limit: int, types: Collection[str], columns: str) -> Sequence[Sequence[Any]]:
        """These columns of events behind a position."""
        if not types:
            return await self._database.select(READ_ALL.format(columns=columns), (start, limit))
        names = msgspec.json.encode(sorted(types)).decode()
        return await self._database.select(READ_TYPES.format(columns=columns), (start, names, limit))


def _key(stream: Stream) -> tuple[str, str, str]:
    return stream.tenant, stream.aggregate, stream.id


def _snapshot(columns: Sequence[Any]) -> Snapshot:
    return Snapshot(*columns)
