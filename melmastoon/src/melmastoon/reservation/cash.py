"""Cash on arrival: what was promised is counted at the desk, and the booking is as good as any other."""

from __future__ import annotations

from msgspec.structs import replace

from melmastoon.facts.payment import CashReconciled
from melmastoon.facts.reservation import reservation
from melmastoon.reservation import bookings
from posthouse import Event, Tx


@reservation.on(CashReconciled, reads=["booking_id", "purpose"])
async def counted(event: Event[CashReconciled], tx: Tx) -> None:
    """Whatever the booking is in the middle of, cash is no longer pending; one that is still held is confirmed as paid."""
    if event.data.purpose != "stay":
        return
    booking = await bookings.take(tx, event.data.booking_id)
    after = replace(booking, cash_counted=True)
    if booking.status == "confirmed_cash_pending":
        after = replace(after, status="confirmed")
    if booking.status_before == "confirmed_cash_pending":
        after = replace(after, status_before="confirmed")
    await bookings.save(tx, booking, after)
