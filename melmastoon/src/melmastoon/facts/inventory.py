"""inventory-service: which room is whose on which night."""

from __future__ import annotations

from datetime import date
from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

inventory = service("inventory", owner="inventory")

ReleaseReason = Literal["cancelled", "hold_expired", "no_show", "checked_out_early"]


@inventory.event("allocation.committed.v1", key="booking_id", retention="warm", idempotency="required")
class AllocationCommitted(Payload):
    """One room is the booking's for every night of its window."""

    booking_id: str
    allocation_id: str
    property_id: str
    room_id: str
    check_in: date
    check_out: date


@inventory.event("allocation.released.v1", key="booking_id", retention="warm", idempotency="required")
class AllocationReleased(Payload):
    """Its nights are for sale again. `room_id` is empty for a hold that never got a room."""

    booking_id: str
    allocation_id: str
    property_id: str
    room_id: str
    reason: ReleaseReason


@inventory.event("allocation.reallocated.v1", key="booking_id", retention="warm", idempotency="required")
class AllocationReallocated(Payload):
    """Old nights given back and new ones taken, in one step."""

    booking_id: str
    change_id: str
    allocation_id: str
    property_id: str
    old_room_id: str
    room_id: str
    check_in: date
    check_out: date


@inventory.event("stop_sell.activated.v1", key="property_id", retention="warm", idempotency="required")
class StopSellActivated(Payload):
    """No more bookings of this room type for this night."""

    property_id: str
    room_type: str
    night: date


@inventory.event("stop_sell.cleared.v1", key="property_id", retention="warm", idempotency="required")
class StopSellCleared(Payload):
    """Bookings of this room type are taken again for this night."""

    property_id: str
    room_type: str
    night: date


@inventory.event("oversell.blocked.v1", key="booking_id", retention="warm", idempotency="required")
class OversellBlocked(Payload):
    """The guard said no: no single room is free for all these nights. `change_id` is empty for a new booking."""

    booking_id: str
    change_id: str
    property_id: str
    room_type: str
    check_in: date
    check_out: date
