"""What analytics-service can be asked to do."""

from __future__ import annotations

from datetime import date

from melmastoon.analytics.snapshots import lock, of_day
from melmastoon.facts.analytics import SnapshotComputed
from posthouse import Tx


async def compute_snapshot(tx: Tx, day: date) -> SnapshotComputed | None:
    """The figures of a day as they are now. They are said as well, once for each state that they had; None when nothing
    happened on that day."""
    await lock(tx)
    snapshot = await of_day(tx, day.isoformat())
    if snapshot is not None:
        tx.publish(snapshot, idempotency_key=f"analytics:snapshot:{snapshot.snapshot_id}:{snapshot.revision}")
    return snapshot
