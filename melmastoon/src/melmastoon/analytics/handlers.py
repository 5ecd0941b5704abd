"""What analytics-service does about facts: it adds them up, in any order, many at a time."""

from __future__ import annotations

from typing import get_args

from melmastoon.analytics.figures import Counted, added_by
from melmastoon.analytics.snapshots import add, finished, lock
from melmastoon.facts.analytics import SnapshotComputed, analytics
from posthouse import Event, Policy, Tx

COUNTED: tuple[type[object], ...] = get_args(Counted)


@analytics.on(*COUNTED, policy=Policy(order="none"), publishes=[SnapshotComputed])
async def count(events: list[Event[Counted]], tx: Tx) -> None:
    """A fact belongs to the day on which it became true, however late it comes. A day that is over is said at once."""
    await lock(tx)
    for event in events:
        await add(tx, event.occurred_at.date().isoformat(), *added_by(event.data))
    for snapshot in await finished(tx):
        tx.publish(snapshot, idempotency_key=f"analytics:snapshot:{snapshot.snapshot_id}:{snapshot.revision}")
