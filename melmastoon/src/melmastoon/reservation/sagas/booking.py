"""The booking saga (D §8.1): hold, room, money, confirmed.

| failure | compensation | the booking |
|---|---|---|
| inventory says nothing for 30 s | `hold_expired` → `drop_hold` | cancelled, hold_expired |
| no room is free | `no_room` → `drop_hold` | cancelled, no_room |
| the payment fails | `payment_failed` → `release_room` (waits for `allocation.released`) → `drop_hold` | cancelled, payment_failed |
| the payment says nothing for 10 min | `hold_lapsed` → `release_room` → `drop_hold` | cancelled, hold_expired |
| the guest gives up meanwhile | `desk.abandon` → `release_room` → `drop_hold` | cancelled, guest |
| the room is not released within 60 s | none: compensation_failed, for an operator to retry | cancelled |
| inventory commits a room after all that | `release_room` again: waits for `allocation.released` | cancelled |
| money is captured after all that | payment gives it back, because `booking.cancelled` said so | cancelled |
| cash on arrival | none is needed | confirmed_cash_pending |
| the lock vendor fails, later | none: the key goes to the manual queue, and the board shows it | confirmed |
"""

from __future__ import annotations

from typing import get_args

from msgspec.structs import replace

from melmastoon.facts.inventory import AllocationCommitted, AllocationReleased, OversellBlocked
from melmastoon.facts.payment import IntentCaptured, IntentFailed
from melmastoon.facts.reservation import BookingCancelled, BookingConfirmed, BookingHeld, CancelReason, reservation
from melmastoon.pace import seconds
from melmastoon.reservation import bookings
from melmastoon.reservation.status import Status
from posthouse import Event, Saga, Turn, deadline, join, on, starts, step, undo


@reservation.saga("booking", correlate="booking_id")
class BookingSaga(Saga):
    """Hold a room, have it committed, take the money, confirm."""

    booking_id: str
    room_id: str = ""
    paid_by: str = ""
    """The rail, once the money was taken or promised."""

    @starts
    async def hold(self, turn: Turn) -> None:
        """The guest pressed Pay: inventory has 30 seconds to commit a room, payment ten minutes to take the money."""
        booking = await bookings.read(turn.tx, self.booking_id)
        turn.publish(
            BookingHeld(
                booking_id=booking.booking_id,
                property_id=booking.property_id,
                room_type=booking.room_type,
                check_in=booking.check_in,
                check_out=booking.check_out,
                guest=booking.guest,
                rail=booking.rail,
                amount_cents=booking.amount_cents,
                currency=booking.currency,
                refundable_cents=booking.refundable_cents,
            ),
            idempotency_key=f"reservation:hold:{self.booking_id}",
        )
        turn.set(self.hold_expired)
        turn.set(self.hold_lapsed)

    @undo(hold)
    async def drop_hold(self, turn: Turn) -> None:
        await self._cancel(turn)

    @deadline(seconds(30))
    def hold_expired(self, turn: Turn) -> None:
        """Inventory did not answer."""
        turn.compensate("hold_expired")

    @deadline(seconds(600))
    def hold_lapsed(self, turn: Turn) -> None:
        """Payment did not answer, and no hold lives longer."""
        turn.compensate("hold_expired")

    @step(AllocationCommitted)
    def room_committed(self, event: Event[AllocationCommitted], turn: Turn) -> None:
        self.room_id = event.data.room_id
        turn.clear(self.hold_expired)

    @undo(room_committed, until=AllocationReleased, same="allocation_id", within=seconds(60))
    async def release_room(self, event: Event[AllocationCommitted], turn: Turn) -> None:
        """Inventory releases the room because the booking is cancelled."""
        await self._cancel(turn)

    @on(OversellBlocked)
    def no_room(self, event: Event[OversellBlocked], turn: Turn) -> None:
        turn.compensate("no_room")

    @step(IntentCaptured)
    def paid(self, event: Event[IntentCaptured], turn: Turn) -> None:
        """Taken, or promised in cash. That a room is committed follows, even if inventory is heard later."""
        self.paid_by = event.data.rail
        turn.clear(self.hold_expired)

    @on(IntentFailed)
    def payment_failed(self, event: Event[IntentFailed], turn: Turn) -> None:
        turn.compensate("payment_failed")

    @join(room_committed, paid)
    async def confirm(self, turn: Turn) -> None:
        """Room and money come by different topics, either first."""
        held = await bookings.take(turn.tx, self.booking_id)
        cash_pending = self.paid_by == "cash_pending" and not held.cash_counted
        status: Status = "confirmed_cash_pending" if cash_pending else "confirmed"
        booking = await bookings.save(turn.tx, held, replace(held, status=status, room_id=self.room_id))
        turn.publish(
            BookingConfirmed(
                booking_id=booking.booking_id,
                property_id=booking.property_id,
                room_type=booking.room_type,
                room_id=booking.room_id,
                check_in=booking.check_in,
                check_out=booking.check_out,
                guest=booking.guest,
                amount_cents=booking.amount_cents,
                currency=booking.currency,
                cash_pending=cash_pending,
            ),
            idempotency_key=f"reservation:confirm:{self.booking_id}",
        )
        turn.complete()

    async def _cancel(self, turn: Turn) -> None:
        """Said once, by whichever undo comes first. What was taken, or is taken later, goes back as a whole."""
        held = await bookings.take(turn.tx, self.booking_id)
        if held.status == "cancelled":
            return
        reason = cancel_reason(turn.reason)
        booking = await bookings.save(turn.tx, held, replace(held, status="cancelled", reason=reason))
        turn.publish(
            BookingCancelled(
                booking_id=booking.booking_id,
                property_id=booking.property_id,
                guest=booking.guest,
                reason=reason,
                refund_cents=booking.amount_cents,
                currency=booking.currency,
            ),
            idempotency_key=f"reservation:cancel:{self.booking_id}",
        )


REASONS: dict[str, CancelReason] = {reason: reason for reason in get_args(CancelReason)}


def cancel_reason(words: str) -> CancelReason:
    """The reason as the fact names it. Anything else is what an operator wrote, and stays in the saga's history."""
    return REASONS.get(words, "operator")
