"""The check-in saga (D §8.3): folio, key and welcome within 30 seconds, in any order; then checked in.

| failure | compensation | the booking |
|---|---|---|
| folio, key or welcome is missing after 30 s | none: partial, naming what is missing; the front desk is alerted | check_in_partial |
| the desk clicks once | `ask_again`: asks for what is missing, 30 s more | check_in_started |
| the answer comes late | the saga completes | checked_in |
| the desk saw to it by hand (operator's resume) | `done_by_hand` | checked_in |
| the lock vendor fails | the desk cuts the key by hand, which is an answer | check_in_partial until then |
| the desk calls it off (operator's cancel) | `send_back`; it may begin again | confirmed |
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from melmastoon.facts.billing import FolioOpened
from melmastoon.facts.lock_integration import KeyIssued, KeyUpdated
from melmastoon.facts.notification import MessageDispatched
from melmastoon.facts.reservation import BookingModified, CheckedIn, CheckInPart, CheckInStarted, reservation
from melmastoon.pace import seconds
from melmastoon.reservation import bookings
from posthouse import Event, Saga, Turn, deadline, join, partial_resume, partial_retry, starts, step, undo


@reservation.saga("check_in", correlate="booking_id", again=("cancelled",), operator="front desk")
class CheckInSaga(Saga):
    """Open the folio, hand over a key, welcome the guest."""

    booking_id: str

    @starts
    async def arrive(self, turn: Turn) -> None:
        """The guest stands at the desk: everybody has 30 seconds."""
        await self._ask(turn, missing=())

    @undo(arrive)
    async def send_back(self, turn: Turn) -> None:
        """The guest did not come in after all: the booking can be checked in later, be cancelled, or become a no-show."""
        booking = await bookings.take(turn.tx, self.booking_id)
        await bookings.save(turn.tx, booking, replace(booking, status="confirmed", missing=""))

    @step(FolioOpened)
    async def folio(self, event: Event[FolioOpened], turn: Turn) -> None:
        await self._note(turn)

    @step(KeyIssued, KeyUpdated, early="ignore")
    async def key(self, event: Event[KeyIssued | KeyUpdated], turn: Turn) -> None:
        """Issued now, or issued before and made to fit. Most keys are issued before anybody checks in."""
        await self._note(turn)

    @step(MessageDispatched, correlate="welcomes")
    async def welcome(self, event: Event[MessageDispatched], turn: Turn) -> None:
        await self._note(turn)

    @join(folio, key, welcome)
    async def let_in(self, turn: Turn) -> None:
        await self._check_in(turn)
        turn.complete()

    @deadline(seconds(30))
    async def not_ready(self, turn: Turn) -> None:
        """Never checked in by halves: somebody is alerted, the desk sees what is missing, and clicks once."""
        booking = await bookings.take(turn.tx, self.booking_id)
        missing = ", ".join(turn.missing(self.let_in))
        await bookings.save(turn.tx, booking, replace(booking, status="check_in_partial", missing=missing))
        note = f"missing: {missing}"
        turn.publish(
            BookingModified(booking_id=booking.booking_id, guest=booking.guest, change="check_in_partial", note=note),
            idempotency_key=f"reservation:check_in_partial:{self.booking_id}:{booking.check_ins}",
        )
        turn.partial(note)

    @partial_retry
    async def ask_again(self, turn: Turn) -> None:
        await self._ask(turn, missing=tuple(cast("list[CheckInPart]", turn.missing(self.let_in))))

    @partial_resume
    async def done_by_hand(self, turn: Turn) -> None:
        """The desk has seen to what was missing in some other way."""
        await self._check_in(turn)

    async def _ask(self, turn: Turn, missing: tuple[CheckInPart, ...]) -> None:
        before = await bookings.take(turn.tx, self.booking_id)
        asked = replace(before, status="check_in_started", missing="", check_ins=before.check_ins + 1)
        booking = await bookings.save(turn.tx, before, asked)
        turn.publish(
            CheckInStarted(
                booking_id=booking.booking_id,
                property_id=booking.property_id,
                room_id=booking.room_id,
                check_in=booking.check_in,
                check_out=booking.check_out,
                guest=booking.guest,
                attempt=booking.check_ins,
                missing=missing,
            ),
            idempotency_key=f"reservation:check_in:{self.booking_id}:{booking.check_ins}",
        )
        turn.set(self.not_ready)

    async def _note(self, turn: Turn) -> None:
        """One answer more: a partial check-in shows what is missing still."""
        booking = await bookings.take(turn.tx, self.booking_id)
        if booking.status == "check_in_partial":
            missing = ", ".join(turn.missing(self.let_in))
            await bookings.save(turn.tx, booking, replace(booking, missing=missing))

    async def _check_in(self, turn: Turn) -> None:
        booking = await bookings.take(turn.tx, self.booking_id)
        await bookings.save(turn.tx, booking, replace(booking, status="checked_in", missing=""))
        turn.publish(
            CheckedIn(
                booking_id=booking.booking_id,
                property_id=booking.property_id,
                room_id=booking.room_id,
                check_in=booking.check_in,
                check_out=booking.check_out,
            ),
            idempotency_key=f"reservation:checked_in:{self.booking_id}",
        )
