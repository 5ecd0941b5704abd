"""audit-service: what was said, in a chain that cannot be changed unseen."""

from __future__ import annotations

from datetime import date

from melmastoon.facts.house import service
from posthouse import Payload

audit = service("audit", owner="compliance")


@audit.event("entry.appended.v1", key="entry_id", retention="cold", idempotency="required")
class EntryAppended(Payload):
    """A fact that the law wants kept, or an operator's note, stands in the tenant's chain at this position."""

    entry_id: str
    """The id of the fact, or of the note."""
    about: str
    """The subject of the fact; `note` for a note."""
    position: int
    entry_hash: str


@audit.event("merkle.anchored.v1", key="anchor_id", retention="cold", idempotency="required")
class MerkleAnchored(Payload):
    """A day of a tenant's chain is closed. Who keeps the root can prove any entry of it."""

    anchor_id: str
    day: date
    first_position: int
    entries: int
    root: str
    previous_root: str
    """Of the day that was closed before; empty for the first."""
