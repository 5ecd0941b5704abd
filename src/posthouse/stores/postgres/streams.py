"""Streams: facts of event-sourced aggregates. Whoever appends holds the row of the stream, so versions follow commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from posthouse.errors import VersionConflict
from posthouse.store.streams import BodyPage, Snapshot, Stream, StreamEvent, StreamHead, StreamPage, refuse_closed
from posthouse.store.transaction import Transaction
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.history import COLUMNS, EVENTS, History
from posthouse.stores.postgres.joins import ours
from posthouse.stores.postgres.steps import Steps
from posthouse.stores.rows import STREAM_EVENT, packed, stream_event, untyped

# Move a stream on from the version that is expected, and add the events behind it, all or nothing. A position is drawn for
# each once the row of the stream is ours. No row comes back when the stream is elsewhere.
APPEND = """
WITH given AS MATERIALIZED (
    SELECT CAST($1 AS text) AS tenant, CAST($2 AS text) AS aggregate, CAST($3 AS text) AS stream,
        CAST($4 AS bigint) AS expected, CAST($5 AS bigint) AS many
), head AS (
    INSERT INTO posthouse.stream AS s (tenant, aggregate, stream, version)
    SELECT g.tenant, g.aggregate, g.stream, g.many FROM given g
    WHERE g.expected = 0 OR EXISTS (SELECT 1 FROM posthouse.stream k
        WHERE k.tenant = g.tenant AND k.aggregate = g.aggregate AND k.stream = g.stream)
    ON CONFLICT (tenant, aggregate, stream) DO UPDATE SET version = s.version + excluded.version
    WHERE s.version = (SELECT g.expected FROM given g) AND s.state = 'open'
    RETURNING 1
)
INSERT INTO posthouse.stream_event (tenant, aggregate, stream, version, event_id, type, headers, body)
SELECT g.tenant, g.aggregate, g.stream, g.expected + r.place, r.event_id, r.type, r.headers, r.body
FROM head CROSS JOIN given g
CROSS JOIN unnest(CAST($6 AS text[]), CAST($7 AS text[]), CAST($8 AS text[]), CAST($9 AS bytea[])) WITH ORDINALITY
    AS r (event_id, type, headers, body, place)
ORDER BY r.place
RETURNING version
"""

OF_STREAM = "tenant = CAST($1 AS text) AND aggregate = CAST($2 AS text) AND stream = CAST($3 AS text)"

# The last version of a stream …
VERSION = f"SELECT version FROM posthouse.stream WHERE {OF_STREAM}"

# … and nobody else appends.
HOLD = f"{VERSION} FOR UPDATE"

# Where it stands, and the same while nobody else appends.
HEAD = f"SELECT version, base, state FROM posthouse.stream WHERE {OF_STREAM}"
HOLD_HEAD = f"{HEAD} FOR UPDATE"

# A stream behind a version.
READ = f"""
SELECT {STREAM_EVENT} FROM {EVENTS}
WHERE {OF_STREAM} AND version > CAST($4 AS bigint) ORDER BY version LIMIT CAST($5 AS integer)
"""

# Put a stream out of the way, its events as they are …
ARCHIVE = (
    f"INSERT INTO posthouse.stream_archive ({COLUMNS}) SELECT {COLUMNS} FROM posthouse.stream_event WHERE {OF_STREAM}",
    f"DELETE FROM posthouse.stream_event WHERE {OF_STREAM}",
    f"DELETE FROM posthouse.snapshot WHERE {OF_STREAM}",
    f"UPDATE posthouse.stream SET state = 'archived' WHERE {OF_STREAM}",
)

# … or delete it up to its last fact …
DELETE = (
    *(
        f"""DELETE FROM {table} WHERE {OF_STREAM} AND version < (SELECT version FROM posthouse.stream WHERE {OF_STREAM})"""
        for table in ("posthouse.stream_event", "posthouse.stream_archive")
    ),
    f"DELETE FROM posthouse.snapshot WHERE {OF_STREAM}",
    f"UPDATE posthouse.stream SET state = 'deleted', base = version WHERE {OF_STREAM}",
)

# … or let it take events again.
REOPEN = (f"UPDATE posthouse.stream SET state = 'open' WHERE {OF_STREAM}",)

# What was kept of a stream.
SNAPSHOT = f"SELECT version, shape, state FROM posthouse.snapshot WHERE {OF_STREAM}"

# Keep a snapshot, unless a later one of the same shape is there.
KEEP = """
INSERT INTO posthouse.snapshot AS s (tenant, aggregate, stream, version, shape, state)
VALUES (CAST($1 AS text), CAST($2 AS text), CAST($3 AS text), CAST($4 AS bigint), CAST($5 AS text), CAST($6 AS bytea))
ON CONFLICT (tenant, aggregate, stream) DO UPDATE
SET version = excluded.version, shape = excluded.shape, state = excluded.state
WHERE s.shape <> excluded.shape OR s.version < excluded.version
"""

# Forget snapshots, of one aggregate or all.
DROP = "DELETE FROM posthouse.snapshot WHERE $1::text IS NULL OR aggregate = $1"


class PostgresStreams:
    """The streams of a `PostgresStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._history = History(database)

    async def append(self, tx: Transaction, events: Sequence[StreamEvent]) -> None:
        if events:
            await (await ours(self._database, tx)).carry_out(_appending(events))

    async def version(self, tx: Transaction, stream: Stream, *, hold: bool = False) -> int:
        return await (await ours(self._database, tx)).carry_out(_version(stream, HOLD if hold else VERSION))

    async def head(self, tx: Transaction, stream: Stream, *, hold: bool = False) -> StreamHead | None:
        return await (await ours(self._database, tx)).carry_out(_head(stream, HOLD_HEAD if hold else HEAD))

    async def archive(self, tx: Transaction, stream: Stream) -> None:
        await (await ours(self._database, tx)).carry_out(_changing(stream, ARCHIVE))

    async def delete(self, tx: Transaction, stream: Stream) -> None:
        await (await ours(self._database, tx)).carry_out(_changing(stream, DELETE))

    async def reopen(self, tx: Transaction, stream: Stream) -> None:
        await (await ours(self._database, tx)).carry_out(_changing(stream, REOPEN))

    async def read(
        self, tx: Transaction, stream: Stream, *, after: int = 0, limit: int = 10_000
    ) -> Sequence[StreamEvent]:
        return await (await ours(self._database, tx)).carry_out(_reading(stream, after, limit))

    async def snapshot(self, tx: Transaction, stream: Stream) -> Snapshot | None:
        return await (await ours(self._database, tx)).carry_out(_snapshot(stream))

    async def keep(self, tx: Transaction, stream: Stream, snapshot: Snapshot) -> None:
        await (await ours(self._database, tx)).carry_out(_keeping(stream, snapshot))

    async def drop_snapshots(self, aggregate: str | None = None) -> int:
        return (await self._database.run(DROP, aggregate)).rowcount

    async def read_all(self, after: str = "", limit: int = 10_000, *, types: Collection[str] = ()) -> StreamPage:
        return await self._history.read(after, limit, types)

    async def read_bodies(
        self, headers: Mapping[str, str], after: str = "", limit: int = 10_000, *, types: Collection[str] = ()
    ) -> BodyPage | None:
        return await self._history.read_bodies(headers, after, limit, types)


def _appending(events: Sequence[StreamEvent]) -> Steps[None]:
    stream, expected = events[0].name, events[0].version - 1
    added = yield APPEND, (
        *_key(stream), expected, len(events), [event.event_id for event in events], [event.type for event in events],
        [packed(event.headers) for event in events], [event.body for event in events],
    )  # fmt: skip
    if not added:
        head = yield from _head(stream, HEAD)
        refuse_closed(stream, head)
        raise VersionConflict(str(stream), expected, 0 if head is None else head.version)


def _head(stream: Stream, statement: str) -> Steps[StreamHead | None]:
    found = yield statement, _key(stream)
    return StreamHead(*untyped(found[0])) if found else None


def _changing(stream: Stream, statements: Sequence[str]) -> Steps[None]:
    for statement in statements:
        yield statement, _key(stream)


def _version(stream: Stream, statement: str) -> Steps[int]:
    found = yield statement, _key(stream)
    return int(str(found.scalar())) if found else 0


def _reading(stream: Stream, after: int, limit: int) -> Steps[Sequence[StreamEvent]]:
    return [stream_event(columns) for columns in (yield READ, (*_key(stream), after, limit))]


def _snapshot(stream: Stream) -> Steps[Snapshot | None]:
    found = yield SNAPSHOT, _key(stream)
    if not found:
        return None
    version, shape, state = untyped(found[0])
    return Snapshot(version, shape, bytes(state))


def _keeping(stream: Stream, snapshot: Snapshot) -> Steps[None]:
    yield KEEP, (*_key(stream), snapshot.version, snapshot.shape, snapshot.state)


def _key(stream: Stream) -> tuple[str, str, str]:
    return stream.tenant, stream.aggregate, stream.id
