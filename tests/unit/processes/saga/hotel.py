"""A booking, as the tests tell it: hold the room, commit it, take the money, confirm."""

from __future__ import annotations

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.processes import Saga, SagaView, Turn, deadline, late, on, partial_retry, starts, step, undo
from posthouse.testing import Harness

reservation = Service("reservation", namespace="hotel")
inventory = Service("inventory", namespace="hotel")
payment = Service("payment", namespace="hotel")


@inventory.event("allocation.committed.v1", key="allocation_id")
class AllocationCommitted(Payload):
    allocation_id: str
    booking_id: str


@inventory.event("allocation.released.v1", key="allocation_id")
class AllocationReleased(Payload):
    allocation_id: str
    booking_id: str


@payment.event("intent.failed.v1", key="booking")
class IntentFailed(Payload):
    booking: str


@payment.event("intent.captured.v1", key="booking_id")
class IntentCaptured(Payload):
    booking_id: str
    cents: int = 0


@payment.event("review.opened.v1", key="booking_id")
class ReviewOpened(Payload):
    booking_id: str


@reservation.event("booking.held.v1", key="booking_id")
class BookingHeld(Payload):
    booking_id: str


@reservation.event("booking.confirmed.v1", key="booking_id")
class BookingConfirmed(Payload):
    booking_id: str


@reservation.event("booking.cancelled.v1", key="booking_id")
class BookingCancelled(Payload):
    booking_id: str
    reason: str


@reservation.event("refund.requested.v1", key="booking_id")
class RefundRequested(Payload):
    booking_id: str
    cents: int


class Weather:
    """What a test lets go wrong: undos that fail so many times."""

    drop_hold_fails = 0
    release_fails = 0


POLICY = Policy(max_attempts=3, first_delay=10.0, last_delay=10.0)


@reservation.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS booking (id TEXT PRIMARY KEY, state TEXT)")


@reservation.saga("booking", correlate="booking_id", policy=POLICY)
class BookingSaga(Saga):
    """Hold the room, commit it, take the money, confirm."""

    booking_id: str
    allocation_id: str = ""
    tries: int = 0

    @starts
    def hold(self, turn: Turn) -> None:
        turn.publish(BookingHeld(booking_id=self.booking_id))
        turn.set(self.hold_expired)

    @undo(hold)
    async def drop_hold(self, turn: Turn) -> None:
        self.tries += 1
        await turn.execute("INSERT OR REPLACE INTO booking VALUES (?, ?)", (self.booking_id, f"dropped: {turn.reason}"))
        turn.publish(BookingCancelled(booking_id=self.booking_id, reason=turn.reason))
        if Weather.drop_hold_fails:
            Weather.drop_hold_fails -= 1
            raise RuntimeError("the hold would not drop")

    @deadline(30.0)
    def hold_expired(self, turn: Turn) -> None:
        turn.compensate("hold_expired")

    @step(AllocationCommitted)
    def room_committed(self, event: Event[AllocationCommitted], turn: Turn) -> None:
        self.allocation_id = event.data.allocation_id
        turn.clear(self.hold_expired)

    @undo(room_committed, until=AllocationReleased, within=60.0)
    def release_room(self, event: Event[AllocationCommitted], turn: Turn) -> None:
        if Weather.release_fails:
            Weather.release_fails -= 1
            raise RuntimeError("the room would not be released")

    @on(IntentFailed, correlate="booking")
    def payment_failed(self, event: Event[IntentFailed], turn: Turn) -> None:
        turn.compensate("payment_failed")

    @step(IntentCaptured)
    async def paid(self, event: Event[IntentCaptured], turn: Turn) -> None:
        await turn.execute("INSERT OR REPLACE INTO booking VALUES (?, 'paid')", (self.booking_id,))
        turn.publish(BookingConfirmed(booking_id=self.booking_id))
        turn.complete("all is well")

    @late(IntentCaptured)
    def paid_too_late(self, event: Event[IntentCaptured], turn: Turn) -> None:
        turn.publish(RefundRequested(booking_id=self.booking_id, cents=event.data.cents))

    @on(ReviewOpened, early="ignore")
    def reviewed(self, event: Event[ReviewOpened], turn: Turn) -> None:
        turn.partial("under review")

    @partial_retry
    def look_again(self, turn: Turn) -> None:
        self.tries += 100


async def start(id: str = "b1", tenant: str = "t1") -> bool:
    """Start a booking."""
    async with reservation.transaction(tenant) as tx:
        return bool(await reservation.start_saga(tx, BookingSaga(booking_id=id)))


async def shown(id: str = "b1") -> SagaView:
    """A booking with its history."""
    return await app_of(reservation).sagas.show("booking", id, tenant="t1")


async def status(id: str = "b1") -> str:
    """How a booking stands."""
    return (await shown(id)).row.status


async def booked(id: str = "b1") -> object:
    """What the table of bookings says."""
    async with reservation.transaction("t1") as tx:
        rows = await tx.execute("SELECT state FROM booking WHERE id = ?", (id,))
    return rows[0][0] if rows else None


async def said(harness: Harness, event: type[object]) -> int:
    """How often a fact reached the broker."""
    return len(await harness.published(event))
