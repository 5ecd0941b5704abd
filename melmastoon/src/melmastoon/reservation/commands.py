"""What the booking site and the front desk ask for; an HTTP endpoint would call these in a transaction of the service.

Each is one intent, named by the id that it is given: asked again it answers False and changes nothing. What the booking's
status does not allow raises Reject with the reason. `today` is the day at the property."""

from __future__ import annotations

from datetime import date

from msgspec.structs import replace

from melmastoon.facts.house import Guest
from melmastoon.facts.reservation import BookingHeld, BookingModified, NoShow, reservation
from melmastoon.reservation import bookings
from melmastoon.reservation.bookings import Booking
from melmastoon.reservation.cancellation import cancel
from melmastoon.reservation.sagas import BookingSaga, CheckInSaga, CheckOutSaga, DateChangeSaga
from melmastoon.reservation.status import OVER
from melmastoon.tables import run
from posthouse import Reject, Tx

__all__ = [
    "cancel",
    "change_dates",
    "change_guest",
    "check_in",
    "check_out",
    "extend_stay",
    "hold",
    "no_show",
    "note_requests",
]

# A request that is granted now; the same one twice is the same one.
GRANT = "INSERT INTO booking_requests (tenant, request_id, booking_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


async def hold(tx: Tx, wanted: BookingHeld) -> bool:
    """A guest pressed Pay. The booking saga begins."""
    _check_window(wanted.booking_id, wanted.check_in, wanted.check_out)
    if not 0 <= wanted.refundable_cents <= wanted.amount_cents:
        raise Reject(f"booking {wanted.booking_id}: between 0 and {wanted.amount_cents} cents can be refundable")
    booking = Booking(
        booking_id=wanted.booking_id,
        property_id=wanted.property_id,
        room_type=wanted.room_type,
        check_in=wanted.check_in,
        check_out=wanted.check_out,
        guest=wanted.guest,
        rail=wanted.rail,
        amount_cents=wanted.amount_cents,
        refundable_cents=wanted.refundable_cents,
        currency=wanted.currency,
    )
    saga = BookingSaga(booking_id=wanted.booking_id)
    return await bookings.add(tx, booking) and bool(await reservation.start_saga(tx, saga))


async def check_in(tx: Tx, booking_id: str, *, today: date) -> bool:
    """The guest stands at the desk. The check-in saga begins, or begins again after it was called off."""
    booking = await bookings.read(tx, booking_id)
    if booking.status == "confirmed_cash_pending":
        raise Reject(f"booking {booking_id} cannot be checked in: its cash is pending; count it first")
    if booking.status == "confirmed" and not booking.check_in <= today < booking.check_out:
        window = f"from {booking.check_in} until {booking.check_out}"
        raise Reject(f"booking {booking_id} cannot be checked in on {today}: it is {window}")
    return bool(await reservation.start_saga(tx, CheckInSaga(booking_id=booking_id)))


async def check_out(tx: Tx, booking_id: str) -> bool:
    """The guest leaves. The check-out saga begins."""
    return bool(await reservation.start_saga(tx, CheckOutSaga(booking_id=booking_id)))


async def change_dates(tx: Tx, booking_id: str, *, change_id: str, check_in: date, check_out: date) -> bool:
    """The guest wants other nights. The date-change saga begins, under the id of the change."""
    _check_window(booking_id, check_in, check_out)
    change = DateChangeSaga(change_id=change_id, booking_id=booking_id, check_in=check_in, check_out=check_out)
    return bool(await reservation.start_saga(tx, change))


async def extend_stay(tx: Tx, booking_id: str, *, change_id: str, check_out: date) -> bool:
    """A guest who is in wants to stay longer: a change of dates that keeps the arrival. In the same room if it is free."""
    booking = await bookings.read(tx, booking_id)
    return await change_dates(tx, booking_id, change_id=change_id, check_in=booking.check_in, check_out=check_out)


async def no_show(tx: Tx, booking_id: str, *, today: date) -> bool:
    """The night audit gives up waiting, from the day after arrival on. Rooms and keys follow; there is no refund."""
    booking = await bookings.take(tx, booking_id)
    if booking.status == "no_show":
        return False
    booking.check_becomes("no_show")
    if today <= booking.check_in:
        raise Reject(f"booking {booking_id} is no no-show on {today}: the guest may still arrive on {booking.check_in}")
    await bookings.save(tx, booking, replace(booking, status="no_show"))
    tx.publish(
        NoShow(booking_id=booking_id, property_id=booking.property_id, room_id=booking.room_id),
        idempotency_key=f"reservation:no_show:{booking_id}",
    )
    return True


async def change_guest(tx: Tx, booking_id: str, *, request_id: str, guest: Guest) -> bool:
    """Another name, or another address."""
    booking = await _open(tx, booking_id)
    if not await _granted(tx, booking_id, request_id):
        return False
    await bookings.save(tx, booking, replace(booking, guest=guest))
    tx.publish(
        BookingModified(booking_id=booking_id, guest=guest, change="guest"),
        idempotency_key=f"reservation:modify:{request_id}",
    )
    return True


async def note_requests(tx: Tx, booking_id: str, *, request_id: str, words: str) -> bool:
    """A cot, a quiet room: what the guest asks for, in words."""
    booking = await _open(tx, booking_id)
    if not await _granted(tx, booking_id, request_id):
        return False
    await bookings.save(tx, booking, replace(booking, special_requests=words))
    tx.publish(
        BookingModified(booking_id=booking_id, guest=booking.guest, change="special_requests", note=words),
        idempotency_key=f"reservation:modify:{request_id}",
    )
    return True


async def _open(tx: Tx, booking_id: str) -> Booking:
    booking = await bookings.take(tx, booking_id)
    if booking.status in OVER:
        raise Reject(f"booking {booking_id} cannot be modified: it is {booking.status}")
    return booking


async def _granted(tx: Tx, booking_id: str, request_id: str) -> bool:
    return (await run(tx, GRANT, tx.tenant, request_id, booking_id)).rowcount == 1


def _check_window(booking_id: str, check_in: date, check_out: date) -> None:
    if check_out <= check_in:
        raise Reject(f"booking {booking_id}: a stay from {check_in} until {check_out} has no night")
