"""maintenance-service: what is broken, and until when. Tickets of one room are said in order: its last one brings it back."""

from __future__ import annotations

from typing import Annotated

import msgspec

from melmastoon.facts.house import service
from posthouse import Payload

maintenance = service("maintenance", owner="maintenance")


@maintenance.event("ticket.opened.v1", key="room_id", retention="warm", idempotency="required")
class TicketOpened(Payload):
    """Something in a room wants repair. `out_of_order`: nobody can sleep there until it is done."""

    ticket_id: str
    property_id: str
    room_id: str
    summary: str
    out_of_order: bool = True


@maintenance.event("ticket.closed.v1", key="room_id", retention="warm", idempotency="required")
class TicketClosed(Payload):
    """It is repaired, with these parts and this much work. `room_back`: nothing else keeps the room out of order now."""

    ticket_id: str
    property_id: str
    room_id: str
    parts: Annotated[tuple[str, ...], msgspec.Meta(max_length=50)]
    labour_minutes: int
    room_back: bool = True
