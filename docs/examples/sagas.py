"""A booking as a saga: hold the room, commit it, take the money, confirm; and undo it all when the money does not come."""

import asyncio

from posthouse import Event, Payload, Saga, Service, Turn, app_of, deadline, join, on, starts, step, undo
from posthouse.testing import Harness

reservation = Service("reservation", namespace="hotel")
inventory = Service("inventory", namespace="hotel")
payment = Service("payment", namespace="hotel")


@inventory.event("allocation.committed.v1", key="booking_id")
class AllocationCommitted(Payload):
    booking_id: str
    allocation_id: str


@inventory.event("allocation.released.v1", key="booking_id")
class AllocationReleased(Payload):
    booking_id: str


@payment.event("intent.captured.v1", key="booking_id")
class IntentCaptured(Payload):
    booking_id: str
    intent_id: str


@payment.event("intent.refunded.v1", key="booking_id")
class IntentRefunded(Payload):
    booking_id: str
    intent_id: str


@payment.event("intent.failed.v1", key="booking_id")
class IntentFailed(Payload):
    booking_id: str


@reservation.event("booking.held.v1", key="booking_id")
class BookingHeld(Payload):
    booking_id: str


@reservation.event("release.requested.v1", key="booking_id")
class ReleaseRequested(Payload):
    booking_id: str
    allocation_id: str


@reservation.event("refund.requested.v1", key="booking_id")
class RefundRequested(Payload):
    booking_id: str
    intent_id: str


@reservation.event("booking.confirmed.v1", key="booking_id")
class BookingConfirmed(Payload):
    booking_id: str


@reservation.event("booking.cancelled.v1", key="booking_id")
class BookingCancelled(Payload):
    booking_id: str
    reason: str


@reservation.saga("booking", correlate="booking_id")
class BookingSaga(Saga):
    """Hold the room, commit it, take the money, confirm."""

    booking_id: str
    allocation_id: str = ""
    intent_id: str = ""

    @starts
    def hold(self, turn: Turn) -> None:
        turn.publish(BookingHeld(booking_id=self.booking_id))
        turn.set(self.hold_expired)

    @undo(hold)
    def drop_hold(self, turn: Turn) -> None:
        turn.publish(BookingCancelled(booking_id=self.booking_id, reason=turn.reason))

    @deadline(30.0)
    def hold_expired(self, turn: Turn) -> None:
        turn.compensate("hold_expired")

    @step(AllocationCommitted)
    def room_committed(self, event: Event[AllocationCommitted], turn: Turn) -> None:
        self.allocation_id = event.data.allocation_id

    @undo(room_committed, until=AllocationReleased, within=60.0)
    def release_room(self, event: Event[AllocationCommitted], turn: Turn) -> None:
        turn.publish(ReleaseRequested(booking_id=self.booking_id, allocation_id=event.data.allocation_id))

    @step(IntentCaptured)
    def paid(self, event: Event[IntentCaptured], turn: Turn) -> None:
        self.intent_id = event.data.intent_id

    @undo(paid, until=IntentRefunded, same="intent_id", within=600.0)
    def refund(self, event: Event[IntentCaptured], turn: Turn) -> None:
        turn.publish(RefundRequested(booking_id=self.booking_id, intent_id=event.data.intent_id))

    @on(IntentFailed)
    def payment_failed(self, event: Event[IntentFailed], turn: Turn) -> None:
        turn.compensate("payment_failed")

    @join(room_committed, paid)
    def confirm(self, turn: Turn) -> None:
        turn.publish(BookingConfirmed(booking_id=self.booking_id))
        turn.complete()


async def book(booking_id: str) -> None:
    async with reservation.transaction("t1") as tx:
        await reservation.start_saga(tx, BookingSaga(booking_id=booking_id))


async def main() -> None:
    async with Harness(reservation, inventory, payment) as harness:
        for booking_id in ("paid", "refused", "forgotten"):
            await book(booking_id)
        for booking_id in ("paid", "refused"):
            await harness.publish(AllocationCommitted(booking_id=booking_id, allocation_id="a1"))
        await harness.settled()
        await harness.publish(IntentCaptured(booking_id="paid", intent_id="i1"))
        await harness.publish(IntentFailed(booking_id="refused"))
        await harness.settled()
        await harness.publish(AllocationReleased(booking_id="refused"))
        await harness.advance(30.0)
        async for row in app_of(reservation).sagas.find():
            print(f"{row.id} is {row.status}{row.reason and ': ' + row.reason}")
        view = await app_of(reservation).sagas.show("booking", "refused", tenant="t1")
        for turn in view.history:
            undone = f", undoes by {', '.join(turn.undone)}" if turn.undone else ""
            print(f"{turn.turn} {turn.input.type} → {turn.method}{undone}: {turn.status}")


if __name__ == "__main__":
    asyncio.run(main())
