"""The check-in saga (D §8.3): folio, key and welcome within 30 seconds, in any order; then checked in.

| failure | compensation | the booking |
|---|---|---|
| folio, key or welcome is missing after 30 s | none: partial, naming what is missing; the front desk is alerted | check_in_partial |
| the desk clicks once | `ask_again`: asks for what is missing, 30 s more | check_in_started |
| the answer comes late | the saga completes | checked_in |
| the desk saw to it by hand (operator's resume) | `done_by_hand` | checked_in |
| the lock vendor fails | the desk cuts the key by hand, which is an answer | check_in_partial until then |
| the desk calls it off (operator's cancel) | `send_back` | confirmed |
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from melmastoon.facts.billing import FolioOpened
from melmastoon.facts.lock_integration import KeyIssued, KeyUpdated
from melmastoon.facts.notification import MessageDispatched
from melmastoon.facts.reservation import BookingModified, CheckedIn, CheckInStarted, reservation
from melmastoon.pace import seconds
from melmastoon.reservation import bookings
from melmastoon.reservation.bookings import Booking
from posthouse import Event, Saga, Turn, deadline, on, partial_resume, partial_retry, starts, undo

Part = Literal["folio", "key", "welcome"]


@reservation.saga("check_in", correlate="booking_id")
class CheckInSaga(Saga):
    """Open the folio, hand over a key, welcome the guest."""

    booking_id: str
    attempt: int = 1
    missing: tuple[Part, ...] = ("folio", "key", "welcome")

    @starts
    async def arrive(self, turn: Turn) -> None:
        """The guest stands at the desk: everybody has 30 seconds."""
        await self._ask(turn, missing=())

    @undo(arrive)
    async def send_back(self, turn: Turn) -> None:
        """The guest did not come in after all: the booking can be cancelled, or become a no-show."""
        booking = await bookings.take(turn.tx, self.booking_id)
        await bookings.save(turn.tx, booking, replace(booking, status="confirmed", missing=""))

    @on(FolioOpened, early="ignore")
    async def folio_opened(self, event: Event[FolioOpened], turn: Turn) -> None:
        await self._have("folio", turn)

    @on(KeyIssued, KeyUpdated, early="ignore")
    async def key_ready(self, event: Event[KeyIssued | KeyUpdated], turn: Turn) -> None:
        """Issued now, or issued before and made to fit."""
        await self._have("key", turn)

    @on(MessageDispatched, early="ignore")
    async def guest_welcomed(self, event: Event[MessageDispatched], turn: Turn) -> None:
        if event.data.kind == "welcome":
            await self._have("welcome", turn)

    @deadline(seconds(30))
    async def not_ready(self, turn: Turn) -> None:
        """Never checked in by halves: the desk sees what is missing, and clicks once."""
        booking = await bookings.take(turn.tx, self.booking_id)
        missing = ", ".join(self.missing)
        await bookings.save(turn.tx, booking, replace(booking, status="check_in_partial", missing=missing))
        note = f"missing: {missing}"
        turn.publish(
            BookingModified(booking_id=booking.booking_id, guest=booking.guest, change="check_in_partial", note=note),
            idempotency_key=f"reservation:check_in_partial:{self.booking_id}:{self.attempt}",
        )
        turn.partial(note)

    @partial_retry
    async def ask_again(self, turn: Turn) -> None:
        self.attempt += 1
        await self._ask(turn, missing=self.missing)

    @partial_resume
    async def done_by_hand(self, turn: Turn) -> None:
        """The desk has seen to what was missing in some other way."""
        await self._let_in(await bookings.take(turn.tx, self.booking_id), turn)

    async def _ask(self, turn: Turn, missing: tuple[Part, ...]) -> None:
        booking = await bookings.take(turn.tx, self.booking_id)
        await bookings.save(turn.tx, booking, replace(booking, status="check_in_started", missing=""))
        turn.publish(
            CheckInStarted(
                booking_id=booking.booking_id,
                property_id=booking.property_id,
                room_id=booking.room_id,
                check_in=booking.check_in,
                check_out=booking.check_out,
                guest=booking.guest,
                attempt=self.attempt,
                missing=missing,
            ),
            idempotency_key=f"reservation:check_in:{self.booking_id}:{self.attempt}",
        )
        turn.set(self.not_ready)

    async def _have(self, part: Part, turn: Turn) -> None:
        """One answer more. With the last one the guest is in."""
        self.missing = tuple(other for other in self.missing if other != part)
        booking = await bookings.take(turn.tx, self.booking_id)
        if self.missing:
            missing = ", ".join(self.missing) if booking.status == "check_in_partial" else ""
            await bookings.save(turn.tx, booking, replace(booking, missing=missing))
            return
        await self._let_in(booking, turn)
        turn.complete()

    async def _let_in(self, booking: Booking, turn: Turn) -> None:
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
