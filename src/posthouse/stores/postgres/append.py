"""Append: how rows enter the outbox. One statement for all, for our own transactions and for joined ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.store import OutboxRow
from posthouse.store.outbox import Number
from posthouse.stores.postgres.schema import Place
from posthouse.stores.postgres.steps import Steps, literal
from posthouse.stores.rows import packed, shard_of_row

# Number the rows and add them; the event ids that stand for them, or NULL when they stand for themselves.
APPEND = """
SELECT posthouse.append(CAST($1 AS text), CAST($2 AS integer), CAST($3 AS smallint[]), CAST($4 AS text[]),
    CAST($5 AS text[]), CAST($6 AS text[]), CAST($7 AS boolean[]), CAST($8 AS text[]), CAST($9 AS text[]),
    CAST($10 AS bytea[]), CAST($11 AS text[]), CAST($12 AS double precision), CAST($13 AS double precision))
"""

# Number rows that are not added yet.
NUMBER = """
SELECT n.stands, n.fresh, n.sequence, n.lineage FROM posthouse.number(CAST($1 AS text), CAST($2 AS integer), CAST($3 AS text[]),
    CAST($4 AS text[]), CAST($5 AS text[]), CAST($6 AS boolean[]), CAST($7 AS text[]), CAST($8 AS text[]),
    CAST($9 AS double precision), CAST($10 AS double precision)) n ORDER BY n.place
"""

# Add them.
APPEND_NUMBERED = """
SELECT posthouse.append_numbered(CAST($1 AS smallint[]), CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS text[]),
    CAST($5 AS bigint[]), CAST($6 AS integer[]), CAST($7 AS text[]), CAST($8 AS text[]), CAST($9 AS bytea[]))
"""

TYPES = ("text", "integer", "smallint", "text", "text", "text", "boolean", "text", "text", "bytea")
"""Those of what `posthouse.append_one` takes."""


def append_one(after: int = 0) -> str:
    """The same for one row without an intent, by far the most frequent, where so many parameters come before …"""
    places = ", ".join(f"CAST(${after + number} AS {kind})" for number, kind in enumerate(TYPES, 1))
    return f"SELECT posthouse.append_one({places})"


APPEND_ONE = append_one()

# … and in a statement that has no parameters.
APPEND_WORDS = "SELECT posthouse.append_one"

# One row that has its number, in such a statement.
APPEND_NUMBERED_WORDS = "SELECT posthouse.append_numbered"
NUMBERED_TYPES = ("smallint", "text", "text", "text", "bigint", "integer", "text", "text", "bytea")


def appending(rows: Sequence[OutboxRow], place: Place, now: float | None, window: float) -> Steps[Sequence[str]]:
    """Add rows; the event id that stands for each. `now` None: by the database's clock. `window`: seconds for which an
    idempotency key is remembered."""
    if not rows:
        return []
    ids = [row.event_id for row in rows]
    if is_plain(rows):
        yield APPEND_ONE, one_row(rows[0], place)
        return ids
    parameters = (
        place.identity,
        place.shards,
        [shard_of_row(row, place.shards) for row in rows],
        [row.topic for row in rows],
        [row.tenant for row in rows],
        [row.key for row in rows],
        [row.numbered for row in rows],
        ids,
        [packed(row.headers) for row in rows],
        [row.body for row in rows],
        [row.idempotency_key for row in rows],
        now,
        window,
    )
    standing: Any = (yield APPEND, parameters).scalar()
    return ids if standing is None else list(standing)


def numbering(rows: Sequence[OutboxRow], place: Place, now: float | None, window: float) -> Steps[Sequence[Number]]:
    """Note intents and take numbers, for rows that are added by `appending_numbered`."""
    if not rows:
        return []
    found: Any = yield (
        NUMBER,
        (
            place.identity,
            place.shards,
            [row.topic for row in rows],
            [row.tenant for row in rows],
            [row.key for row in rows],
            [row.numbered for row in rows],
            [row.event_id for row in rows],
            [row.idempotency_key for row in rows],
            now,
            window,
        ),
    )
    return [Number(*columns) for columns in found]


def appending_numbered(rows: Sequence[OutboxRow], place: Place) -> Steps[Sequence[str]]:
    """Add rows that have their number and their lineage."""
    ids = [row.event_id for row in rows]
    if rows:
        yield (
            APPEND_NUMBERED,
            (
                [shard_of_row(row, place.shards) for row in rows],
                [row.topic for row in rows],
                [row.tenant for row in rows],
                [row.key for row in rows],
                [row.sequence for row in rows],
                [row.lineage for row in rows],
                ids,
                [packed(row.headers) for row in rows],
                [row.body for row in rows],
            ),
        )
    return ids


def append_call(rows: Sequence[OutboxRow], place: Place) -> str | None:
    """What `APPEND_WORDS` is called with, written out, for a statement without parameters; None where that cannot be."""
    if not is_plain(rows):
        return None
    try:
        words = ", ".join(map(literal, _columns(rows[0])))
    except ValueError:
        return None  # as a parameter it is refused, with an error that says so
    return f"({literal(place.identity)}, {place.shards}, {shard_of_row(rows[0], place.shards)}::smallint, {words})"


def append_numbered_call(rows: Sequence[OutboxRow], place: Place) -> str | None:
    """The same for one row that has its number."""
    if len(rows) != 1:
        return None
    row = rows[0]
    shard = shard_of_row(row, place.shards)
    values = (
        shard,
        row.topic,
        row.tenant,
        row.key,
        row.sequence,
        row.lineage,
        row.event_id,
        packed(row.headers),
        row.body,
    )
    try:
        words = [f"ARRAY[{literal(value)}]::{kind}[]" for value, kind in zip(values, NUMBERED_TYPES, strict=True)]
    except ValueError:
        return None
    return f"({', '.join(words)})"


def is_plain(rows: Sequence[OutboxRow]) -> bool:
    """One row, without an intent that others may have had before."""
    return len(rows) == 1 and rows[0].idempotency_key is None


def one_row(row: OutboxRow, place: Place) -> tuple[object, ...]:
    """What `APPEND_ONE` is called with."""
    return (place.identity, place.shards, shard_of_row(row, place.shards), *_columns(row))


def _columns(row: OutboxRow) -> tuple[object, ...]:
    return (row.topic, row.tenant, row.key, row.numbered, row.event_id, packed(row.headers), row.body)
