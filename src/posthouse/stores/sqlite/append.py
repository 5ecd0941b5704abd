"""Append: how rows enter the outbox. Written once, for our own transactions, for joined ones and for timers."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.store import OutboxRow
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

# One row, with the lineage in force.
ADD = """
INSERT INTO posthouse_outbox (shard, topic, tenant, key, sequence, event_id, headers, body, written_at, lineage)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT value FROM posthouse_meta WHERE name = 'lineage'))
"""


def appending(rows: Sequence[OutboxRow], *, shards: int, now: float, window: float) -> Steps[Sequence[str]]:
    """Add rows; the event id that stands for each. `window`: seconds for which an idempotency key is remembered."""
    ids = []
    for row in rows:
        if row.idempotency_key is not None:
            intent = (row.tenant, row.topic, row.idempotency_key)
            fresh = yield REMEMBER, (*intent, row.event_id, now + window, now)
            if not fresh:
                ids.append(str((yield REMEMBERED, intent).scalar()))
                continue
        sequence = None
        if row.key is not None and row.numbered:
            sequence = (yield NEXT_NUMBER, (row.topic, row.tenant, row.key)).scalar()
        shard = shard_of_row(row, shards)
        headers = packed(row.headers)
        yield ADD, (shard, row.topic, row.tenant, row.key, sequence, row.event_id, headers, row.body, now)
        ids.append(row.event_id)
    return ids
