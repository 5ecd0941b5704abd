"""A guest is erased: bookings, rooms and money stay, and nobody can tell any more whose they were.

A stay that goes on goes on: what is said of it has a placeholder for the guest."""

from __future__ import annotations

from msgspec.structs import replace

from melmastoon.facts.iam import SubjectErased
from melmastoon.facts.reservation import reservation
from melmastoon.reservation import bookings
from posthouse import ErasureReceipt, Event, Tx
from posthouse.trust.secrets import ERASED


@reservation.on(SubjectErased, consumer="erasure")
async def forget_guest(event: Event[ErasureReceipt], tx: Tx) -> None:
    for booking_id in await bookings.of_guest(tx, event.data.subject):
        booking = await bookings.take(tx, booking_id)
        words = ERASED if booking.special_requests else ""
        await bookings.save(tx, booking, replace(booking, guest=booking.guest.erased(), special_requests=words))
