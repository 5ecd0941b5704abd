"""History: all streams, read in pages, at the speed of the driver.

A position is drawn when an event is added, not when it is committed: whoever remembers only the last one he saw never sees
what commits late below it. So a cursor is a snapshot, as the relay's are: `s1` is what was read, `s2` what was visible when
the reader last looked. What lies between is a window, which is read in the order of positions; when it is at its end, the
next one begins where it ended. Within a window a stream is in order because its positions are, and windows follow commits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from posthouse.errors import StoreError, StoreUnavailable
from posthouse.local.postgres.connection import ServerConnection
from posthouse.store.streams import BodyPage, StreamEvent, StreamPage
from posthouse.stores.postgres.database import Database
from posthouse.stores.rows import packed, unpacked

SEPARATOR = "|"

COLUMNS = "position, xid, tenant, aggregate, stream, version, event_id, type, headers, body"
EVENTS = f"(SELECT {COLUMNS} FROM posthouse.stream_event UNION ALL SELECT {COLUMNS} FROM posthouse.stream_archive) e"
"""All events. One that is archived goes from one table to the other as it is, so that every statement finds it in one."""

PINNED = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
"""A plan that was made while the table was empty would read all of it for every page."""

# Where a window begins and ends that is open from now on: which snapshot it is up to, and the positions around it. An
# addition keeps the planner from looking for the lowest position through all of them.
OPEN = f"""
SELECT pg_current_snapshot()::text, m.streams, coalesce(p.timeline, ''), posthouse.at_home(), w.lo - 1, w.hi
FROM posthouse.meta m CROSS JOIN posthouse.place() p CROSS JOIN LATERAL (
    SELECT min(e.position + 0) AS lo, max(e.position + 0) AS hi FROM {EVENTS}
    WHERE e.xid >= pg_snapshot_xmin((SELECT $1::text::pg_snapshot))
        AND NOT pg_visible_in_snapshot(e.xid, (SELECT $2::text::pg_snapshot))) w
"""

# The same for the very first one, which has everything in it.
OPEN_FIRST = f"""
SELECT pg_current_snapshot()::text, m.streams, coalesce(p.timeline, ''), posthouse.at_home(), 0,
    (SELECT max(e.position) FROM {EVENTS})
FROM posthouse.meta m CROSS JOIN posthouse.place() p
"""

# In which order of things cursors are good.
STREAMS = "SELECT m.streams, coalesce(p.timeline, '') FROM posthouse.meta m CROSS JOIN posthouse.place() p"

# Let the log reach the disk with the number of a transaction that began after the snapshot, so that no crash takes back what
# the snapshot says: whoever keeps it outside cannot know of one.
LASTING = """
SELECT pg_logical_emit_message(true, 'posthouse', ''), set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)
"""

# A page of a window; of some types, unless NULL.
PAGE = f"""
SELECT {{columns}}
FROM {EVENTS}
WHERE e.position > $1 AND e.position <= $2 AND pg_visible_in_snapshot(e.xid, (SELECT $3::text::pg_snapshot))
    {{fresh}} {{typed}}
ORDER BY e.position LIMIT {{limit}}
"""
WHOLE = "e.tenant, e.aggregate, e.stream, e.version, e.event_id, e.type, e.headers, e.body, e.position"
BODY = "e.headers IS NOT DISTINCT FROM {headers}::text, e.body, e.position"
FRESH = "AND NOT pg_visible_in_snapshot(e.xid, (SELECT $4::text::pg_snapshot))"


class Cursor(msgspec.Struct, frozen=True):
    """Where a reader stands. `s1`: everything visible there was read; empty at the beginning. Where a window is open, `s2`
    is what it goes up to, and its positions up to `last` of `hi` were read. Snapshots mean something in one order of things
    (`streams`) and on one timeline of the server: a promoted one may lack what they show, and gives its numbers again."""

    streams: int = 0
    timeline: str = ""
    s1: str = ""
    s2: str = ""
    last: int = 0
    hi: int = 0

    @classmethod
    def of(cls, text: str) -> Cursor:
        """The cursor that a text stands for; StoreError for any other text."""
        if not text:
            return cls()
        try:
            streams, timeline, s1, s2, last, hi = text.split(SEPARATOR)
            return cls(int(streams), timeline, s1, s2, int(last), int(hi))
        except ValueError:
            raise StoreError(f"{text!r} is not a cursor of this store: give what a page said, or nothing") from None

    def __str__(self) -> str:
        return SEPARATOR.join((str(self.streams), self.timeline, self.s1, self.s2, str(self.last), str(self.hi)))

    @property
    def closed(self) -> Cursor:
        """The window was read to its end."""
        return Cursor(self.streams, self.timeline, self.s2)


class Wanted(msgspec.Struct, frozen=True):
    """What a page is to hold: of which types, if any are given; with headers, only bodies and whether theirs are these."""

    limit: int
    types: Collection[str]
    headers: Mapping[str, str] | None = None


class History:
    """Reads all streams of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, after: str, limit: int, types: Collection[str]) -> StreamPage:
        """The page behind a cursor."""
        given = Cursor.of(after)
        cursor, found = await self._found(given, Wanted(limit, types))
        return StreamPage(_events(found), *_onward(given, cursor, found, limit))

    async def read_bodies(
        self, headers: Mapping[str, str], after: str, limit: int, types: Collection[str]
    ) -> BodyPage | None:
        """The bodies of that page; None unless all have these headers."""
        given = Cursor.of(after)
        cursor, found = await self._found(given, Wanted(limit, types, headers))
        bodies = [body for alike, body, _ in found if alike]
        if len(bodies) < len(found):
            return None
        return BodyPage(bodies, *_onward(given, cursor, found, limit))

    async def _found(self, given: Cursor, wanted: Wanted) -> tuple[Cursor, Sequence[Sequence[Any]]]:
        """The window that it is in, and rows of it; the position is the last column."""
        await self._database.check()
        async with self._database.connected() as connection:
            await connection.begin(PINNED, isolation="repeatable_read")
            try:
                cursor = await self._window(connection, given)
                found = await self._page(connection, cursor, wanted) if cursor.hi else []
                opens = bool(cursor.hi) and not given.s2
                await connection.commit(*([LASTING] if opens else []))
            except Exception:
                await connection.roll_back()
                raise
            return cursor, found

    async def _window(self, connection: ServerConnection, cursor: Cursor) -> Cursor:
        """The window that the cursor is in, or a new one behind it."""
        fetch: Any = connection.fetchrow
        if cursor.s2:
            streams, timeline = await fetch(self._database.text(STREAMS))
            _refuse_other(cursor, streams, timeline)
            return cursor
        if cursor.s1:
            found = await fetch(self._database.text(OPEN), cursor.s1, cursor.s1)
        else:
            found = await fetch(self._database.text(OPEN_FIRST))
        s2, streams, timeline, at_home, last, hi = found
        if not at_home:
            raise StoreUnavailable("the database was restored from a dump: a relay's next lease puts the streams right")
        _refuse_other(cursor, streams, timeline)
        return Cursor(streams, timeline, cursor.s1, s2, last or 0, hi or 0)

    async def _page(self, connection: ServerConnection, cursor: Cursor, wanted: Wanted) -> Sequence[Sequence[Any]]:
        parameters: list[object] = [cursor.last, cursor.hi, cursor.s2]
        fresh, typed, columns = "", "", WHOLE
        if cursor.s1:
            parameters.append(cursor.s1)
            fresh = FRESH
        if wanted.types:
            parameters.append(sorted(wanted.types))
            typed = f"AND e.type = ANY (${len(parameters)}::text[])"
        if wanted.headers is not None:
            parameters.append(packed(wanted.headers))
            columns = BODY.format(headers=f"${len(parameters)}")
        parameters.append(wanted.limit)
        statement = PAGE.format(columns=columns, fresh=fresh, typed=typed, limit=f"${len(parameters)}")
        fetch: Any = connection.fetch
        rows: Sequence[Sequence[Any]] = await fetch(self._database.text(statement), *parameters)
        return rows


def _onward(given: Cursor, cursor: Cursor, found: Sequence[Sequence[Any]], limit: int) -> tuple[str, bool]:
    """Where the next page begins, and whether it is there already. Behind a window with nothing in it: where it began."""
    if not cursor.hi:
        return str(given) if given.s1 else "", False
    if len(found) < limit:
        return str(cursor.closed), bool(given.s2)  # the world went on since it was opened
    return str(msgspec.structs.replace(cursor, last=found[-1][-1])), True


def _refuse_other(cursor: Cursor, streams: int, timeline: str) -> None:
    if cursor.streams not in (0, streams):
        raise StoreError(
            "the cursor is from before the database was restored, and nobody can say what it had seen: begin again, "
            "without one"
        )
    if cursor.streams and cursor.timeline != timeline:
        raise StoreError(
            "the cursor is from before a standby took over, which may lack what it had seen: begin again, without one"
        )


def _events(found: Sequence[Sequence[Any]]) -> list[StreamEvent]:
    """Written out: a call for each of a million rows would cost a fifth of the read."""
    return [
        StreamEvent(tenant, aggregate, stream, version, event_id, kind, unpacked(headers), body, position)
        for tenant, aggregate, stream, version, event_id, kind, headers, body, position in found
    ]
