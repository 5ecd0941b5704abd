"""The date-change saga (D §8.5): new nights, new price, and a key that fits them. A guest who is in may stay longer by it.

| failure | compensation | the booking |
|---|---|---|
| no room for the new window | `unavailable` → `keep_dates`: original kept, and the guest is told | as before |
| the nights are not swapped within 30 s | none: partial, naming rooms; inventory swaps all or nothing | dates_changing |
| price or key are missing after 30 s | none: partial, naming them; the new window holds already | as before, new dates |
| the desk clicks once | `ask_again`: asks for what is missing, 30 s more | unchanged |
| the answer comes late | the saga completes | as before, new dates |
| price or key were seen to by hand (operator's resume) | `done_by_hand` | as before, new dates |
| the desk calls it off (operator's cancel) | `keep_dates`, unless the nights are swapped | as before |
| inventory swaps or pricing charges after that | `swapped_after_all`, `priced_after_all`: what they did holds | as before, new dates |
| the difference cannot be paid | none here: it stays open until check-out | as before, new dates |
"""

from __future__ import annotations

from datetime import date
from typing import cast

from msgspec.structs import replace

from melmastoon.facts.inventory import AllocationReallocated, OversellBlocked
from melmastoon.facts.lock_integration import KeyUpdated
from melmastoon.facts.pricing import DeltaApplied
from melmastoon.facts.reservation import BookingDatesChanged, BookingModified, ChangePart, reservation
from melmastoon.pace import seconds
from melmastoon.reservation import bookings
from melmastoon.reservation.bookings import Booking
from melmastoon.reservation.status import OVER
from posthouse import (
    Event,
    Reject,
    Saga,
    Turn,
    deadline,
    join,
    late,
    on,
    partial_resume,
    partial_retry,
    starts,
    step,
    undo,
)


@reservation.saga("date_change", correlate="change_id", index=("booking_id",), operator="front desk")
class DateChangeSaga(Saga):
    """Swap the nights, apply the difference, make the key fit."""

    change_id: str
    booking_id: str
    check_in: date
    check_out: date
    old_check_in: date | None = None
    old_check_out: date | None = None
    attempt: int = 1
    swapped: bool = False
    """The new window holds."""

    @starts
    async def want_new_dates(self, turn: Turn) -> None:
        """Everybody has 30 seconds."""
        booking = await bookings.take(turn.tx, self.booking_id)
        booking.check_becomes("dates_changing")
        if (booking.check_in, booking.check_out) == (self.check_in, self.check_out):
            raise Reject(f"booking {self.booking_id} is from {self.check_in} until {self.check_out} already")
        if booking.status == "checked_in" and (self.check_in != booking.check_in or self.check_out < booking.check_out):
            raise Reject(f"the guest of booking {self.booking_id} is in: the stay can be made longer, and nothing else")
        self.old_check_in, self.old_check_out = booking.check_in, booking.check_out
        changing = replace(booking, status="dates_changing", status_before=booking.status, change_id=self.change_id)
        await bookings.save(turn.tx, booking, replace(changing, change_missing=""))
        self._ask(booking, turn, missing=())

    @undo(want_new_dates)
    async def keep_dates(self, turn: Turn) -> None:
        """Dates unavailable, original kept. Once the nights are swapped, there is nothing to keep."""
        booking = await bookings.take(turn.tx, self.booking_id)
        await bookings.save(turn.tx, booking, replace(self._settled(booking), change_missing=""))
        if self.swapped:
            return
        turn.publish(
            BookingModified(
                booking_id=booking.booking_id,
                guest=booking.guest,
                change="dates_kept",
                note="dates unavailable, original kept" if turn.reason == "no_room" else turn.reason,
            ),
            idempotency_key=f"reservation:dates_kept:{self.change_id}",
        )

    @on(OversellBlocked)
    def unavailable(self, event: Event[OversellBlocked], turn: Turn) -> None:
        turn.compensate("no_room")

    @step(AllocationReallocated)
    async def rooms(self, event: Event[AllocationReallocated], turn: Turn) -> None:
        """From here on the new window holds: the guest may check in, or cancel."""
        await self._swap(event.data, turn)
        await self._note(turn)

    @late(AllocationReallocated)
    async def swapped_after_all(self, event: Event[AllocationReallocated], turn: Turn) -> None:
        """The desk had called it off, and inventory had not heard of that."""
        await self._swap(event.data, turn)

    @step(DeltaApplied)
    async def price(self, event: Event[DeltaApplied], turn: Turn) -> None:
        await self._charge(event.data, turn)
        await self._note(turn)

    @late(DeltaApplied)
    async def priced_after_all(self, event: Event[DeltaApplied], turn: Turn) -> None:
        """The desk had called it off when the nights were swapped already: what they cost is what is paid."""
        await self._charge(event.data, turn)

    @step(KeyUpdated)
    async def key(self, event: Event[KeyUpdated], turn: Turn) -> None:
        """It opens in the new window, or there is none that could."""
        await self._note(turn)

    @join(rooms, price, key)
    def changed(self, turn: Turn) -> None:
        turn.complete()

    @deadline(seconds(30))
    async def not_done(self, turn: Turn) -> None:
        """The desk sees what is missing. A booking that is over by now wants neither price nor key."""
        booking = await bookings.take(turn.tx, self.booking_id)
        if booking.status in OVER:
            turn.complete(f"the booking is {booking.status}")
            return
        missing = ", ".join(turn.missing(self.changed))
        await bookings.save(turn.tx, booking, replace(booking, change_missing=missing))
        turn.partial(f"missing: {missing}")

    @partial_retry
    async def ask_again(self, turn: Turn) -> None:
        booking = await bookings.take(turn.tx, self.booking_id)
        await bookings.save(turn.tx, booking, replace(booking, change_missing=""))
        if booking.status in OVER:
            turn.complete(f"the booking is {booking.status}")
            return
        self.attempt += 1
        self._ask(booking, turn, missing=tuple(cast("list[ChangePart]", turn.missing(self.changed))))

    @partial_resume
    async def done_by_hand(self, turn: Turn) -> None:
        """Price or key were seen to by people. Nights are not swapped by hand."""
        if not self.swapped:
            raise Reject(f"the nights of booking {self.booking_id} are not swapped: retry the change, or call it off")
        booking = await bookings.take(turn.tx, self.booking_id)
        await bookings.save(turn.tx, booking, replace(booking, change_missing=""))

    def _ask(self, booking: Booking, turn: Turn, missing: tuple[ChangePart, ...]) -> None:
        turn.publish(
            BookingDatesChanged(
                booking_id=booking.booking_id,
                change_id=self.change_id,
                property_id=booking.property_id,
                room_type=booking.room_type,
                old_check_in=self.old_check_in or booking.check_in,
                old_check_out=self.old_check_out or booking.check_out,
                check_in=self.check_in,
                check_out=self.check_out,
                attempt=self.attempt,
                missing=missing,
            ),
            idempotency_key=f"reservation:change_dates:{self.change_id}:{self.attempt}",
        )
        turn.set(self.not_done)

    def _settled(self, booking: Booking) -> Booking:
        """Back to what it was before this change; one that moved on meanwhile stays where it is."""
        if booking.change_id != self.change_id or booking.status_before is None:
            return booking
        return replace(booking, status=booking.status_before, status_before=None, change_id="")

    async def _swap(self, swap: AllocationReallocated, turn: Turn) -> None:
        self.swapped = True
        booking = await bookings.take(turn.tx, self.booking_id)
        moved = replace(booking, room_id=swap.room_id, check_in=swap.check_in, check_out=swap.check_out)
        await bookings.save(turn.tx, booking, self._settled(moved))

    async def _charge(self, delta: DeltaApplied, turn: Turn) -> None:
        booking = await bookings.take(turn.tx, self.booking_id)
        amount = booking.amount_cents + delta.delta_cents
        refundable = min(booking.refundable_cents, amount)
        await bookings.save(turn.tx, booking, replace(booking, amount_cents=amount, refundable_cents=refundable))

    async def _note(self, turn: Turn) -> None:
        """One answer more: a partial change shows what is missing still."""
        booking = await bookings.take(turn.tx, self.booking_id)
        if booking.change_missing:
            missing = ", ".join(turn.missing(self.changed))
            await bookings.save(turn.tx, booking, replace(booking, change_missing=missing))
