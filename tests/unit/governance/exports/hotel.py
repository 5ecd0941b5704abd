"""A hotel of three services, whose cancellation is a choreography."""

from __future__ import annotations

from posthouse import Event, Payload, Service, Tx

bookings = Service("bookings", namespace="hotel")
rooms = Service("rooms", namespace="hotel")
money = Service("money", namespace="hotel")


@bookings.event("booking.cancelled.v1", key="booking_id")
class BookingCancelled(Payload):
    """A guest, or time, has cancelled a booking."""

    booking_id: str


@rooms.event("allocation.released.v1", key="booking_id")
class AllocationReleased(Payload):
    booking_id: str


@rooms.event("cleaning.planned.v1", key="booking_id")
class CleaningPlanned(Payload):
    booking_id: str


@money.event("refund.paid.v1", key="booking_id")
class RefundPaid(Payload):
    booking_id: str


@money.event("fee.charged.v1", key="booking_id")
class FeeCharged(Payload):
    booking_id: str


@rooms.on(BookingCancelled)
async def release(event: Event[BookingCancelled], tx: Tx) -> AllocationReleased:
    return AllocationReleased(booking_id=event.data.booking_id)


@money.on(AllocationReleased)
async def settle(event: Event[AllocationReleased], tx: Tx) -> RefundPaid | FeeCharged:
    return RefundPaid(booking_id=event.data.booking_id)


bookings.flow(
    "cancellation",
    starts=BookingCancelled,
    then=(AllocationReleased, RefundPaid),
    may=(FeeCharged,),
    description="The room is free again and the money is back.",
)
