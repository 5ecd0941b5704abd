"""The check-out saga (D §8.4): the folio is settled, then the key ends; then checked out. It orchestrates those two alone, in
this order: housekeeping and notification hear the same facts and do their part by themselves.

The key ends whatever becomes of the folio: when it is closed, when the balance is declined, and after 30 seconds without a
word. Receipt and survey go out at that moment, to every guest.

| failure | compensation | the booking |
|---|---|---|
| the balance is declined | none: the key is revoked, then partial; the folio stays open | checked_out_balance_pending |
| the desk clicks once | `ask_again`: billing issues another invoice | check_out_started |
| the balance is settled some other way | `folio.closed` comes late, and the saga completes | checked_out |
| the desk settled it by hand (operator's resume) | `done_by_hand`, once the key is revoked | checked_out |
| the lock vendor fails | the desk revokes by hand, which is an answer; no door obeys the key meanwhile | check_out_started |
| the folio is not settled within 30 s (cash is short) | as if declined; billing goes on by itself | checked_out_balance_pending |
| the key is not revoked within 30 s | none: partial, naming what is missing; the lock goes on trying | check_out_started |

There is no way back: a key that was revoked and money that was taken are facts.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from melmastoon.facts.billing import FolioClosed, InvoiceVoided
from melmastoon.facts.lock_integration import KeyRevoked
from melmastoon.facts.reservation import CheckedOut, CheckOutStarted, reservation
from melmastoon.pace import seconds
from melmastoon.reservation import board, bookings
from melmastoon.reservation.bookings import Booking
from posthouse import Event, Reject, Saga, Turn, deadline, on, partial_resume, partial_retry, starts

Part = Literal["key", "folio"]


@reservation.saga("check_out", correlate="booking_id")
class CheckOutSaga(Saga):
    """Settle the folio, then revoke the key whatever became of the money."""

    booking_id: str
    attempt: int = 1
    missing: tuple[Part, ...] = ("key", "folio")
    declined: str = ""
    """Why the balance could not be taken."""
    overdue: bool = False
    """30 seconds have passed."""
    key_asked: bool = False
    """What can be done about the folio is done, and the key is to end."""

    @starts
    async def leave(self, turn: Turn) -> None:
        """The guest hands in the key; one that was lost and revoked before is not waited for."""
        await self._note_key(turn)
        await self._ask(turn)

    @on(KeyRevoked, early="ignore")
    async def key_revoked(self, event: Event[KeyRevoked], turn: Turn) -> None:
        await self._have("key", turn)

    @on(FolioClosed, early="ignore")
    async def folio_closed(self, event: Event[FolioClosed], turn: Turn) -> None:
        """Nothing was open, or it was taken."""
        self.declined = ""
        await self._have("folio", turn)

    @on(InvoiceVoided, early="ignore")
    async def balance_declined(self, event: Event[InvoiceVoided], turn: Turn) -> None:
        """The folio stays open. Nobody is kept from leaving for it."""
        self.declined = event.data.reason
        await self._settle(turn)

    @deadline(seconds(30))
    async def not_done(self, turn: Turn) -> None:
        """Said for the desk to see; who has not answered goes on trying. No key waits for a folio any longer."""
        self.overdue = True
        await self._note_key(turn)
        await self._settle(turn)

    @partial_retry
    async def ask_again(self, turn: Turn) -> None:
        """30 seconds more. A declined balance is asked for once more; where none was declined, the money may be on its way,
        and nobody is asked twice."""
        if not self.declined:
            await self._wait(turn)
            return
        self.attempt += 1
        self.declined = ""
        await self._ask(turn)

    @partial_resume
    async def done_by_hand(self, turn: Turn) -> None:
        """Somebody settled it with the guest. A key that is not revoked is not settled: no guest leaves with one."""
        if "key" in self.missing:
            raise Reject(f"the key of booking {self.booking_id} is not revoked yet: revoke it by hand first")
        await self._let_go(await bookings.take(turn.tx, self.booking_id), turn)

    async def _let_go(self, booking: Booking, turn: Turn) -> None:
        await bookings.save(turn.tx, booking, replace(booking, status="checked_out", missing=""))
        turn.publish(
            CheckedOut(
                booking_id=booking.booking_id,
                property_id=booking.property_id,
                room_id=booking.room_id,
                guest=booking.guest,
            ),
            idempotency_key=f"reservation:checked_out:{self.booking_id}",
        )

    async def _ask(self, turn: Turn) -> None:
        self._say(await self._wait(turn), turn, "folio")

    def _say(self, booking: Booking, turn: Turn, asks: Part) -> None:
        turn.publish(
            CheckOutStarted(
                booking_id=booking.booking_id,
                property_id=booking.property_id,
                room_id=booking.room_id,
                guest=booking.guest,
                attempt=self.attempt,
                asks=asks,
            ),
            idempotency_key=f"reservation:check_out:{self.booking_id}:{self.attempt}:{asks}",
        )

    async def _wait(self, turn: Turn) -> Booking:
        booking = await bookings.take(turn.tx, self.booking_id)
        self.overdue = False
        turn.set(self.not_done)
        return await bookings.save(turn.tx, booking, replace(booking, status="check_out_started", missing=""))

    async def _note_key(self, turn: Turn) -> None:
        """A key is revoked once; that may have been heard of before the check-out began."""
        if await board.key_is_over(turn.tx, self.booking_id):
            self.missing = tuple(part for part in self.missing if part != "key")

    async def _have(self, part: Part, turn: Turn) -> None:
        self.missing = tuple(other for other in self.missing if other != part)
        await self._settle(turn)

    async def _settle(self, turn: Turn) -> None:
        """Both done: out. The key alone, and the balance declined or overdue: out, with a balance."""
        booking = await bookings.take(turn.tx, self.booking_id)
        if not self.key_asked and ("folio" not in self.missing or self.declined or self.overdue):
            self.key_asked = True
            self._say(booking, turn, "key")
            turn.set(self.not_done)
        if not self.missing:
            await self._let_go(booking, turn)
            turn.complete()
        elif "key" not in self.missing and (self.declined or self.overdue):
            pending = replace(booking, status="checked_out_balance_pending", missing="balance")
            await bookings.save(turn.tx, booking, pending)
            turn.clear(self.not_done)
            turn.partial(f"balance pending: {self.declined or 'not settled yet'}")
        elif self.overdue:
            missing = ", ".join(self.missing)
            await bookings.save(turn.tx, booking, replace(booking, missing=missing))
            turn.clear(self.not_done)
            turn.partial(f"missing: {missing}")
