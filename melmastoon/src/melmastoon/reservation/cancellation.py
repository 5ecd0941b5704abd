"""The cancellation saga (D §8.2): a choreography. The booking is cancelled in one step; everybody else does their part,
independently of each other, and nothing un-cancels it.

| failure | compensation | the booking |
|---|---|---|
| the refund fails | none: `intent.failed(refund)`, an alert to finance, a row in its queue, and a flag on the board | cancelled |
| nothing is given back by policy | none: the cancellation stands in the audit chain, with its 0, and is announced | cancelled |
| the lock vendor fails | the desk revokes by hand; no door obeys the key meanwhile | cancelled |
| the message bounces | none | cancelled |
"""

from __future__ import annotations

from datetime import date

from msgspec.structs import replace

from melmastoon.facts.billing import RefundPosted
from melmastoon.facts.inventory import AllocationReleased
from melmastoon.facts.lock_integration import KeyRevoked, VendorErred
from melmastoon.facts.notification import MessageDispatched
from melmastoon.facts.payment import IntentFailed, IntentRefunded
from melmastoon.facts.reservation import BookingCancelled, reservation
from melmastoon.reservation import bookings
from melmastoon.reservation.bookings import Booking
from posthouse import Reject, Tx

reservation.flow(
    "cancellation",
    starts=BookingCancelled,
    then=(AllocationReleased, MessageDispatched),
    may=(IntentRefunded, IntentFailed, RefundPosted, KeyRevoked, VendorErred),
    description="The nights of a booking are for sale again, money goes back by policy, the key ends, the guest is told.",
)


def refund_due(booking: Booking, today: date) -> int:
    """The policy: until the day before arrival what the terms give back, from then on nothing. Promised cash was never
    taken."""
    if booking.status == "confirmed_cash_pending" or today >= booking.check_in:
        return 0
    return booking.refundable_cents


async def cancel(tx: Tx, booking_id: str, *, today: date) -> bool:
    """A guest cancels; `today` is the day at the property. False, and no effect, when it is cancelled already. Raises
    Reject for a booking that cannot be cancelled: one that is still being booked is given up with `desk.abandon`."""
    booking = await bookings.take(tx, booking_id)
    if booking.status == "cancelled":
        return False
    if booking.status == "held":
        raise Reject(
            f"booking {booking_id} is still being booked: it can be abandoned, and cancelled once it is confirmed"
        )
    await bookings.save(tx, booking, replace(booking, status="cancelled", reason="guest"))
    tx.publish(
        BookingCancelled(
            booking_id=booking.booking_id,
            property_id=booking.property_id,
            guest=booking.guest,
            reason="guest",
            refund_cents=refund_due(booking, today),
            currency=booking.currency,
        ),
        idempotency_key=f"reservation:cancel:{booking_id}",
    )
    return True
