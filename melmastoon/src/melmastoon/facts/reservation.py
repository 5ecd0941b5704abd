"""reservation-service: the life of a booking. It owns the five sagas."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

import msgspec

from melmastoon.facts.house import Guest, Rail, service
from posthouse import Payload, Personal

reservation = service("reservation", owner="reservations")

CancelReason = Literal["guest", "hold_expired", "payment_failed", "no_room", "operator"]
ChangePart = Literal["rooms", "price", "key"]
"""What a change of dates is made of."""
CheckInPart = Literal["folio", "key", "welcome"]
"""What a check-in is made of."""


@reservation.event("booking.held.v1", key="booking_id", retention="warm", idempotency="required")
class BookingHeld(Payload):
    """A guest pressed Pay: a room of this type is wanted for these nights, at this price."""

    booking_id: str
    property_id: str
    room_type: str
    check_in: date
    check_out: date
    guest: Guest
    rail: Rail
    amount_cents: int
    currency: str
    refundable_cents: int
    """What a guest who cancels gets back at most."""


@reservation.event("booking.confirmed.v1", key="booking_id", retention="warm", idempotency="required")
class BookingConfirmed(Payload):
    """The room is committed, and paid for unless cash is to come on arrival."""

    booking_id: str
    property_id: str
    room_type: str
    room_id: str
    check_in: date
    check_out: date
    guest: Guest
    amount_cents: int
    currency: str
    cash_pending: bool


@reservation.event("booking.cancelled.v1", key="booking_id", retention="warm", idempotency="required")
class BookingCancelled(Payload):
    """The booking will not happen. `refund_cents` is what the policy gives back of what was taken."""

    booking_id: str
    property_id: str
    guest: Guest
    reason: CancelReason
    refund_cents: int
    currency: str


@reservation.event(
    "booking.modified.v1", key="booking_id", retention="warm", about="guest.guest_id", idempotency="required"
)
class BookingModified(Payload):
    """Something other than the dates changed; or a change of dates was undone and the original ones were kept; or a check-in
    rests with a part undone, which `note` names."""

    booking_id: str
    guest: Guest
    change: Literal["guest", "special_requests", "dates_kept", "check_in_partial"]
    note: Annotated[str, Personal("requests")] = ""


@reservation.event("booking.dates_changed.v1", key="booking_id", retention="warm", idempotency="required")
class BookingDatesChanged(Payload):
    """A new window is wanted. It holds once inventory has swapped the nights; otherwise the old one stays. `missing` names
    what a retry still wants; empty: everything."""

    booking_id: str
    change_id: str
    property_id: str
    room_type: str
    old_check_in: date
    old_check_out: date
    check_in: date
    check_out: date
    attempt: int = 1
    missing: Annotated[tuple[ChangePart, ...], msgspec.Meta(max_length=3)] = ()


@reservation.event("booking.check_in_started.v1", key="booking_id", retention="warm", idempotency="required")
class CheckInStarted(Payload):
    """The guest stands at the desk. `missing` names what a retry still wants; empty: everything."""

    booking_id: str
    property_id: str
    room_id: str
    check_in: date
    check_out: date
    guest: Guest
    attempt: int = 1
    missing: Annotated[tuple[CheckInPart, ...], msgspec.Meta(max_length=3)] = ()


@reservation.event("booking.checked_in.v1", key="booking_id", retention="warm", idempotency="required")
class CheckedIn(Payload):
    """Folio open, key issued, guest welcomed."""

    booking_id: str
    property_id: str
    room_id: str
    check_in: date
    check_out: date


@reservation.event("booking.check_out_started.v1", key="booking_id", retention="warm", idempotency="required")
class CheckOutStarted(Payload):
    """The guest leaves. The folio is asked for first. Once it is closed, or cannot be, this is said again for the key, which
    ends whatever became of the money."""

    booking_id: str
    property_id: str
    room_id: str
    guest: Guest
    attempt: int = 1
    asks: Literal["folio", "key"] = "folio"


@reservation.event("booking.checked_out.v1", key="booking_id", retention="warm", idempotency="required")
class CheckedOut(Payload):
    """Folio closed and key revoked."""

    booking_id: str
    property_id: str
    room_id: str
    guest: Guest


@reservation.event("booking.no_show.v1", key="booking_id", retention="warm", not_past=True, idempotency="required")
class NoShow(Payload):
    """The guest never came; the window for it has passed."""

    booking_id: str
    property_id: str
    room_id: str
