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
| the desk calls it off (operator's cancel) before the key was asked for | `stay_on`: the guest may leave later | checked_in |
| the desk calls it off after that | `stay_on` refuses: compensation_failed until key or folio have come | as if it had not |

A key that was revoked and money that was taken are facts: no step has an undo.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from melmastoon.facts.billing import FolioClosed, InvoiceVoided
from melmastoon.facts.lock_integration import KeyRevoked
from melmastoon.facts.reservation import CheckedOut, CheckOutStarted, reservation
from melmastoon.pace import seconds
from melmastoon.reservation import bookings
from melmastoon.reservation.bookings import Booking
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


@reservation.saga("check_out", correlate="booking_id", again=("cancelled",), operator="front desk")
class CheckOutSaga(Saga):
    """Settle the folio, then revoke the key whatever became of the money."""

    booking_id: str
    declined: str = ""
    """Why the balance could not be taken."""
    overdue: bool = False
    """30 seconds have passed."""
    key_asked: bool = False
    """What can be done about the folio is done, and the key is to end."""
    closed: bool = False
    """The folio is."""
    revoked: bool = False
    """The key is."""

    @starts
    async def leave(self, turn: Turn) -> None:
        """The guest goes."""
        await self._ask(turn)

    @undo(leave)
    async def stay_on(self, turn: Turn) -> None:
        """Called off: the guest stays, unless the key is to end. With a key that is revoked, the balance is all that is left."""
        booking = await bookings.take(turn.tx, self.booking_id)
        if not self.key_asked:
            await bookings.save(turn.tx, booking, replace(booking, status="checked_in", missing=""))
        elif not self.revoked:
            raise Reject(f"the key of booking {self.booking_id} is to end already: there is no way back")
        else:
            await self._owe(booking, turn)

    @step(FolioClosed)
    async def folio(self, event: Event[FolioClosed], turn: Turn) -> None:
        """Nothing was open, or it was taken."""
        self.declined, self.closed = "", True
        await self._go_on(turn)

    @late(FolioClosed)
    async def paid_after_all(self, event: Event[FolioClosed], turn: Turn) -> None:
        self.closed = True
        await self._end_late(turn)

    @on(InvoiceVoided)
    async def balance_declined(self, event: Event[InvoiceVoided], turn: Turn) -> None:
        """The folio stays open. Nobody is kept from leaving for it."""
        self.declined = event.data.reason
        await self._go_on(turn)

    @step(KeyRevoked, early="ignore")
    async def key(self, event: Event[KeyRevoked], turn: Turn) -> None:
        """Keys also end without any check-out."""
        self.revoked = True
        await self._go_on(turn)

    @late(KeyRevoked)
    async def revoked_after_all(self, event: Event[KeyRevoked], turn: Turn) -> None:
        self.revoked = True
        await self._end_late(turn)

    @join(folio, key)
    async def out(self, turn: Turn) -> None:
        await self._let_go(turn)
        turn.complete()

    @deadline(seconds(30))
    async def not_done(self, turn: Turn) -> None:
        """Said for the desk to see; who has not answered goes on trying. No key waits for a folio any longer."""
        self.overdue = True
        await self._go_on(turn)

    @partial_retry
    async def ask_again(self, turn: Turn) -> None:
        """30 seconds more. A declined balance is asked for once more; where none was declined, the money may be on its way,
        and nobody is asked twice."""
        if not self.declined:
            await self._wait(turn)
            return
        self.declined = ""
        await self._ask(turn)

    @partial_resume
    async def done_by_hand(self, turn: Turn) -> None:
        """Somebody settled it with the guest. A key that is not revoked is not settled: no guest leaves with one."""
        if not self.revoked:
            raise Reject(f"the key of booking {self.booking_id} is not revoked yet: revoke it by hand first")
        await self._let_go(turn)

    async def _ask(self, turn: Turn) -> None:
        before = await self._wait(turn)
        booking = await bookings.save(turn.tx, before, replace(before, check_outs=before.check_outs + 1))
        self._say(booking, turn, "folio")

    async def _wait(self, turn: Turn) -> Booking:
        booking = await bookings.take(turn.tx, self.booking_id)
        self.overdue = False
        turn.set(self.not_done)
        return await bookings.save(turn.tx, booking, replace(booking, status="check_out_started", missing=""))

    def _say(self, booking: Booking, turn: Turn, asks: Literal["folio", "key"]) -> None:
        turn.publish(
            CheckOutStarted(
                booking_id=booking.booking_id,
                property_id=booking.property_id,
                room_id=booking.room_id,
                guest=booking.guest,
                attempt=booking.check_outs,
                asks=asks,
            ),
            idempotency_key=f"reservation:check_out:{self.booking_id}:{booking.check_outs}:{asks}",
        )

    async def _go_on(self, turn: Turn) -> None:
        """Ask for the key once the folio has its word. The key alone, and the balance declined or overdue: out, with a
        balance."""
        booking = await bookings.take(turn.tx, self.booking_id)
        settled = self.closed or bool(self.declined) or self.overdue
        if settled and not self.key_asked:
            self.key_asked = True
            self._say(booking, turn, "key")
            turn.set(self.not_done)
        missing = turn.missing(self.out)
        if missing == ["folio"] and settled:
            await self._owe(booking, turn)
            turn.clear(self.not_done)
            turn.partial(f"balance pending: {self.declined or 'not settled yet'}")
        elif missing and self.overdue:
            words = ", ".join(missing)
            await bookings.save(turn.tx, booking, replace(booking, missing=words))
            turn.clear(self.not_done)
            turn.partial(f"missing: {words}")

    async def _end_late(self, turn: Turn) -> None:
        """It was called off when there was no way back: what comes now ends it as it would have ended."""
        booking = await bookings.take(turn.tx, self.booking_id)
        if not (self.key_asked and self.revoked) or booking.status == "checked_out":
            return
        if self.closed:
            await self._let_go(turn)
            turn.complete()
        else:
            await self._owe(booking, turn)

    async def _owe(self, booking: Booking, turn: Turn) -> None:
        pending = replace(booking, status="checked_out_balance_pending", missing="balance")
        await bookings.save(turn.tx, booking, pending)

    async def _let_go(self, turn: Turn) -> None:
        booking = await bookings.take(turn.tx, self.booking_id)
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
