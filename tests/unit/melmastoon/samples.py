"""Facts of a stay, as its owners would say them."""

from __future__ import annotations

from datetime import date
from typing import Literal

from melmastoon.facts.house import Guest, Rail
from melmastoon.facts.inventory import AllocationCommitted, AllocationReallocated, AllocationReleased
from melmastoon.facts.payment import IntentCaptured
from melmastoon.facts.reservation import (
    BookingCancelled,
    BookingConfirmed,
    BookingHeld,
    CheckedOut,
    CheckInStarted,
)

ARRIVAL = date(2027, 2, 1)
DEPARTURE = date(2027, 2, 4)


def guest(locale: str = "en", *, email: str = "zala@example.org", phone: str = "+93700000001") -> Guest:
    return Guest(guest_id="g1", name="Zala", email=email, phone=phone, locale=locale)


def held(booking_id: str = "b1", *, who: Guest | None = None) -> BookingHeld:
    return BookingHeld(
        booking_id=booking_id,
        property_id="p1",
        room_type="double",
        check_in=ARRIVAL,
        check_out=DEPARTURE,
        guest=who or guest(),
        rail="card",
        amount_cents=30_000,
        currency="USD",
        refundable_cents=20_000,
    )


def confirmed(
    booking_id: str = "b1", *, who: Guest | None = None, check_in: date = ARRIVAL, check_out: date = DEPARTURE
) -> BookingConfirmed:
    return BookingConfirmed(
        booking_id=booking_id,
        property_id="p1",
        room_type="double",
        room_id="p1-1",
        check_in=check_in,
        check_out=check_out,
        guest=who or guest(),
        amount_cents=30_000,
        currency="USD",
        cash_pending=False,
    )


def cancelled(booking_id: str = "b1", *, refund_cents: int = 20_000) -> BookingCancelled:
    return BookingCancelled(
        booking_id=booking_id,
        property_id="p1",
        guest=guest(),
        reason="guest",
        refund_cents=refund_cents,
        currency="USD",
    )


def check_in_started(
    booking_id: str = "b1",
    *,
    attempt: int = 1,
    missing: tuple[Literal["folio", "key", "welcome"], ...] = (),
    who: Guest | None = None,
) -> CheckInStarted:
    return CheckInStarted(
        booking_id=booking_id,
        property_id="p1",
        room_id="p1-1",
        check_in=ARRIVAL,
        check_out=DEPARTURE,
        guest=who or guest(),
        attempt=attempt,
        missing=missing,
    )


def checked_out(booking_id: str = "b1") -> CheckedOut:
    return CheckedOut(booking_id=booking_id, property_id="p1", room_id="p1-1", guest=guest())


def captured(booking_id: str = "b1", *, rail: Rail = "card", amount_cents: int = 30_000) -> IntentCaptured:
    return IntentCaptured(
        booking_id=booking_id,
        intent_id=f"int-{booking_id}-stay",
        purpose="stay",
        reference=booking_id,
        rail=rail,
        amount_cents=amount_cents,
        currency="USD",
    )


def committed(booking_id: str = "b1", *, room_id: str = "p1-1", check_out: date = DEPARTURE) -> AllocationCommitted:
    return AllocationCommitted(
        booking_id=booking_id,
        allocation_id=f"all-{booking_id}",
        property_id="p1",
        room_id=room_id,
        check_in=ARRIVAL,
        check_out=check_out,
    )


def reallocated(booking_id: str = "b1", *, check_in: date, check_out: date) -> AllocationReallocated:
    return AllocationReallocated(
        booking_id=booking_id,
        change_id=f"chg-{booking_id}",
        allocation_id=f"all-{booking_id}",
        property_id="p1",
        old_room_id="p1-1",
        room_id="p1-1",
        check_in=check_in,
        check_out=check_out,
    )


def released(booking_id: str = "b1") -> AllocationReleased:
    return AllocationReleased(
        booking_id=booking_id,
        allocation_id=f"all-{booking_id}",
        property_id="p1",
        room_id="p1-1",
        reason="cancelled",
    )
