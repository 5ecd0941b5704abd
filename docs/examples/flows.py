"""A cancellation as a choreography: declared, followed through the handlers, and traced as it happened."""

import asyncio

from posthouse import Event, Payload, Service, Tx
from posthouse.governance.exports.flows import expected
from posthouse.governance.listing import catalogue_of
from posthouse.testing import Harness
from posthouse.tracing import trace

bookings = Service("bookings", namespace="hotel")
rooms = Service("rooms", namespace="hotel")
money = Service("money", namespace="hotel")


@bookings.event("booking.cancelled.v1", key="booking_id")
class BookingCancelled(Payload):
    booking_id: str


@rooms.event("allocation.released.v1", key="booking_id")
class AllocationReleased(Payload):
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
async def pay_back(event: Event[AllocationReleased], tx: Tx) -> RefundPaid | FeeCharged:
    return RefundPaid(booking_id=event.data.booking_id)


bookings.flow(
    "cancellation",
    starts=BookingCancelled,
    then=(AllocationReleased, RefundPaid),
    may=(FeeCharged,),
    description="The room is free again, and the money is on its way back.",
)


async def main() -> None:
    services = (bookings, rooms, money)
    document = catalogue_of(services)
    for flow in (expected(document, entry) for entry in document.flows):
        print(flow.entry.name, "holds:", flow.holds, "through", *(step.name.split(".")[-1] for step in flow.steps))
    async with Harness(*services) as harness:
        await harness.publish(BookingCancelled(booking_id="b1"), correlation="request-17")
        await harness.settled()
        found = await trace(services, "request-17")
        for branch in found.branches:
            heard = [f"{one.consumer} {one.state}" for one in found.heard.get(branch.spot.event.id, [])]
            print("   " * branch.depth + branch.spot.event.type, *heard)


if __name__ == "__main__":
    asyncio.run(main())
