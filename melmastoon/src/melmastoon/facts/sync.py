"""sync-service: how desktops catch up after the line was down."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

sync = service("sync", owner="desktop")


@sync.event("cursor.advanced.v1", key="device_id", retention="hot", idempotency="required")
class CursorAdvanced(Payload):
    """A desktop has applied everything up to here."""

    device_id: str
    cursor: int
    pulled: int


@sync.event("conflict.recorded.v1", key="conflict_id", retention="warm", idempotency="required")
class ConflictRecorded(Payload):
    """What a desktop did while it was offline does not fit what happened meanwhile; the server's state stands."""

    conflict_id: str
    device_id: str
    thing: Literal["booking", "room", "folio"]
    thing_id: str
    wanted: str
    based_on: int
    """The cursor that the desktop had seen."""
    changed_at: int
    """The later change that it had not."""
