"""analytics-service: how a day went, in figures that may be added up in any order."""

from __future__ import annotations

from datetime import date

from melmastoon.facts.house import service
from posthouse import Payload

analytics = service("analytics", owner="insight")


@analytics.event("snapshot.computed.v1", key="snapshot_id", retention="warm", idempotency="required")
class SnapshotComputed(Payload):
    """The figures of one tenant's day, as far as they are known. `revision` is the number of facts that they count."""

    snapshot_id: str
    day: date
    revision: int
    held: int
    confirmed: int
    cancelled: int
    checked_in: int
    checked_out: int
    no_shows: int
    oversells_blocked: int
    captured_cents: int
    refunded_cents: int
