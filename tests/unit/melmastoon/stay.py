"""Facts about stays, with as few words as a test needs. Bookings are of two nights in February from the first on; the clock of
the harness stands in January."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Literal

from melmastoon.facts.house import Guest, Purpose, Rail
from melmastoon.facts.inventory import AllocationCommitted, AllocationReallocated
from melmastoon.facts.payment import CashReconciled, IntentCaptured, IntentCreated, IntentFailed, IntentRefunded
from melmastoon.facts.pricing import DeltaApplied
from melmastoon.facts.property import RoomAdded
from melmastoon.facts.reservation import (
    BookingCancelled,
    BookingConfirmed,
    BookingDatesChanged,
    BookingHeld,
    CancelReason,
    CheckedIn,
    CheckedOut,
    CheckInStarted,
    CheckOutStarted,
    NoShow,
)
from posthouse import Service
from posthouse.store import Rows

GUEST = Guest(guest_id="g1", name="Zarina", email="zarina@example.org", phone="+93700000000")


async def rows(service: Service, sql: str, *values: str) -> Rows:
    """What is in a service's own tables."""
    async with service.transaction("t1") as tx:
        return await tx.execute(sql, values)


def day(number: int) -> date:
    return date(2027, 2, 1) + timedelta(days=number - 1)


def room(room_id: str = "r1", room_type: str = "double") -> RoomAdded:
    return RoomAdded(room_id=room_id, property_id="p1", room_type=room_type, number=room_id)


def held(
    booking_id: str = "b1", *, first: int = 1, last: int = 3, rail: Rail = "card", cents: int = 20_000
) -> BookingHeld:
    return BookingHeld(
        booking_id=booking_id,
        property_id="p1",
        room_type="double",
        check_in=day(first),
        check_out=day(last),
        guest=GUEST,
        rail=rail,
        amount_cents=cents,
        currency="USD",
        refundable_cents=cents,
    )


def committed(booking_id: str = "b1", *, room_id: str = "r1") -> AllocationCommitted:
    return AllocationCommitted(
        booking_id=booking_id,
        allocation_id=f"alc-{booking_id}",
        property_id="p1",
        room_id=room_id,
        check_in=day(1),
        check_out=day(3),
    )


def confirmed(booking_id: str = "b1", *, cash: bool = False, room_id: str = "r1") -> BookingConfirmed:
    return BookingConfirmed(
        booking_id=booking_id,
        property_id="p1",
        room_type="double",
        room_id=room_id,
        check_in=day(1),
        check_out=day(3),
        guest=GUEST,
        amount_cents=20_000,
        currency="USD",
        cash_pending=cash,
    )


def cancelled(booking_id: str = "b1", *, reason: CancelReason = "guest", refund: int = 20_000) -> BookingCancelled:
    return BookingCancelled(
        booking_id=booking_id, property_id="p1", guest=GUEST, reason=reason, refund_cents=refund, currency="USD"
    )


def no_show(booking_id: str = "b1") -> NoShow:
    return NoShow(booking_id=booking_id, property_id="p1", room_id="r1")


def dates_changed(
    booking_id: str = "b1",
    *,
    first: int,
    last: int,
    change_id: str = "c1",
    attempt: int = 1,
    missing: tuple[Literal["rooms", "price", "key"], ...] = (),
) -> BookingDatesChanged:
    return BookingDatesChanged(
        booking_id=booking_id,
        change_id=change_id,
        property_id="p1",
        room_type="double",
        old_check_in=day(1),
        old_check_out=day(3),
        check_in=day(first),
        check_out=day(last),
        attempt=attempt,
        missing=missing,
    )


def reallocated(
    booking_id: str = "b1", *, first: int, last: int, change_id: str = "c1", room_id: str = "r1"
) -> AllocationReallocated:
    return AllocationReallocated(
        booking_id=booking_id,
        change_id=change_id,
        allocation_id=f"alc-{booking_id}",
        property_id="p1",
        old_room_id="r1",
        room_id=room_id,
        check_in=day(first),
        check_out=day(last),
    )


def delta(cents: int, booking_id: str = "b1", *, change_id: str = "c1") -> DeltaApplied:
    return DeltaApplied(booking_id=booking_id, change_id=change_id, delta_cents=cents, currency="USD")


def check_in_started(
    booking_id: str = "b1", *, attempt: int = 1, missing: tuple[Literal["folio", "key", "welcome"], ...] = ()
) -> CheckInStarted:
    return CheckInStarted(
        booking_id=booking_id,
        property_id="p1",
        room_id="r1",
        check_in=day(1),
        check_out=day(3),
        guest=GUEST,
        attempt=attempt,
        missing=missing,
    )


def checked_in(booking_id: str = "b1") -> CheckedIn:
    return CheckedIn(booking_id=booking_id, property_id="p1", room_id="r1", check_in=day(1), check_out=day(3))


def check_out_started(
    booking_id: str = "b1", *, attempt: int = 1, asks: Literal["folio", "key"] = "folio"
) -> CheckOutStarted:
    return CheckOutStarted(
        booking_id=booking_id, property_id="p1", room_id="r1", guest=GUEST, attempt=attempt, asks=asks
    )


def checked_out(booking_id: str = "b1") -> CheckedOut:
    return CheckedOut(booking_id=booking_id, property_id="p1", room_id="r1", guest=GUEST)


def created(purpose: Purpose, reference: str, cents: int, *, rail: Rail = "card") -> IntentCreated:
    return IntentCreated(
        booking_id="b1",
        intent_id=f"int-b1-{purpose}-{reference}",
        purpose=purpose,
        reference=reference,
        rail=rail,
        amount_cents=cents,
        currency="USD",
    )


def captured(
    purpose: Purpose = "stay", reference: str = "b1", cents: int = 20_000, *, rail: Rail = "card"
) -> IntentCaptured:
    return IntentCaptured(
        booking_id="b1",
        intent_id=f"int-b1-{purpose}-{reference}",
        purpose=purpose,
        reference=reference,
        rail=rail,
        amount_cents=cents,
        currency="USD",
    )


def failed(purpose: Purpose, reference: str, cents: int, *, refund: bool = False) -> IntentFailed:
    return IntentFailed(
        booking_id="b1",
        intent_id=f"int-b1-{purpose}-{reference}",
        purpose=purpose,
        reference=reference,
        amount_cents=cents,
        currency="USD",
        reason="declined",
        refund=refund,
    )


def refunded(refund_id: str, cents: int) -> IntentRefunded:
    return IntentRefunded(
        booking_id="b1", intent_id="int-b1-stay-b1", refund_id=refund_id, amount_cents=cents, currency="USD"
    )


def reconciled(cents: int = 20_000, *, purpose: Purpose = "stay", reference: str = "b1") -> CashReconciled:
    return CashReconciled(
        booking_id="b1",
        intent_id=f"int-b1-{purpose}-{reference}",
        amount_cents=cents,
        currency="USD",
        staff_id="s1",
        purpose=purpose,
    )
