"""Append: how rows enter the outbox. Written once, for our own transactions, for joined ones and for timers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posthouse.store import OutboxRow
from posthouse.store.outbox import Number
from posthouse.stores.rows import packed, shard_of_row
from posthouse.stores.sqlite.steps import Steps

# The next number of a key.
NEXT_NUMBER = """
INSERT INTO posthouse_key (topic, tenant, key, sequence) VALUES (?, ?, ?, 1)
ON CONFLICT (topic, tenant, key) DO UPDATE SET sequence = sequence + 1
RETURNING sequence
"""

# Remember an intent; returns a row only when it was not known, or known too long ago.
REMEMBER = """
INSERT INTO posthouse_idempotency (tenant, topic, idempotency_key, event_id, until) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (tenant, topic, idempotency_key) DO UPDATE SET event_id = excluded.event_id, until = excluded.until
WHERE posthouse_idempotency.until <= ?
RETURNING event_id
"""

# The event that already stands for an intent.
REMEMBERED = "SELECT event_id FROM posthouse_idempotency WHERE tenant = ? AND topic = ? AND idempotency_key = ?"

# The lineage in force.
LINEAGE = "SELECT value FROM posthouse_meta WHERE name = 'lineage'"

# One row, with the lineage in force ...
ADD = """
INSERT INTO posthouse_outbox (shard, topic, tenant, key, sequence, event_id, headers, body, written_at, lineage)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT value FROM posthouse_meta WHERE name = 'lineage'))
"""

# ... or with the one that it was given.
ADD_NUMBERED = """
INSERT INTO posthouse_outbox (shard, topic, tenant, key, sequence, event_id, headers, body, written_at, lineage)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def appending(rows: Sequence[OutboxRow], *, shards: int, now: float, window: float) -> Steps[Sequence[str]]:
    """Add rows; the event id that stands for each. `window`: seconds for which an idempotency key is remembered."""
    ids = []
    for row in rows:
        earlier = yield from _earlier(row, now, window)
        if earlier is None:
            sequence = yield from _next_number(row)
            yield ADD, _columns(row, sequence, shards, now)
        ids.append(earlier or row.event_id)
    return ids


def numbering(rows: Sequence[OutboxRow], *, now: float, window: float) -> Steps[Sequence[Number]]:
    """Note intents and take numbers, for rows that are added by `appending_numbered`."""
    found: Any = (yield LINEAGE, ()).scalar()
    lineage, given = int(found), []
    for row in rows:
        earlier = yield from _earlier(row, now, window)
        if earlier is None:
            given.append(Number(row.event_id, True, (yield from _next_number(row)), lineage))
        else:
            given.append(Number(earlier, False, None, lineage))
    return given


def appending_numbered(rows: Sequence[OutboxRow], *, shards: int, now: float) -> Steps[Sequence[str]]:
    """Add rows that have their number and their lineage."""
    for row in rows:
        yield ADD_NUMBERED, (*_columns(row, row.sequence, shards, now), row.lineage)
    return [row.event_id for row in rows]


def _earlier(row: OutboxRow, now: float, window: float) -> Steps[str | None]:
    """The event that stands for the intent of a row already; None where it is fresh."""
    if row.idempotency_key is None:
        return None
    intent = (row.tenant, row.topic, row.idempotency_key)
    if (yield REMEMBER, (*intent, row.event_id, now + window, now)):
        return None
    return str((yield REMEMBERED, intent).scalar())


def _next_number(row: OutboxRow) -> Steps[int | None]:
    if row.key is None or not row.numbered:
        return None
    number: Any = (yield NEXT_NUMBER, (row.topic, row.tenant, row.key)).scalar()
    return int(number)


def _columns(row: OutboxRow, sequence: int | None, shards: int, now: float) -> tuple[object, ...]:
    shard, headers = shard_of_row(row, shards), packed(row.headers)
    return (shard, row.topic, row.tenant, row.key, sequence, row.event_id, headers, row.body, now)
