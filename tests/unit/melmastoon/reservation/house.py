"""A house with one booking: reservation runs, and the test speaks for every other service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import date

from melmastoon.facts.billing import FolioClosed, FolioOpened, InvoiceVoided
from melmastoon.facts.house import CURRENCY, Guest, Rail
from melmastoon.facts.inventory import (
    AllocationCommitted,
    AllocationReallocated,
    AllocationReleased,
    OversellBlocked,
)
from melmastoon.facts.lock_integration import KeyIssued, KeyRevoked, KeyUpdated, VendorErred
from melmastoon.facts.notification import MessageDispatched, MessageKind
from melmastoon.facts.payment import CashReconciled, IntentCaptured, IntentFailed, IntentRefunded
from melmastoon.facts.pricing import DeltaApplied
from melmastoon.facts.reservation import BookingHeld
from melmastoon.reservation import reservation
from melmastoon.reservation.board import Card, card
from melmastoon.reservation.bookings import Booking, read
from melmastoon.reservation.commands import cancel, change_dates, check_in, check_out, extend_stay, hold, no_show
from posthouse.app import app_of
from posthouse.processes import SagaView
from posthouse.testing import Harness

ARRIVAL, DEPARTURE = date(2027, 3, 10), date(2027, 3, 13)
LATER, LATER_STILL = date(2027, 3, 20), date(2027, 3, 24)
GUEST = Guest(guest_id="g1", name="Amina", email="amina@example.org", phone="+93700000001", locale="ps")

PARTS = {
    "folio": FolioOpened(folio_id="fol-b1", booking_id="b1", currency=CURRENCY),
    "key": KeyIssued(
        booking_id="b1",
        credential_id="key-b1",
        property_id="p1",
        room_id="r1",
        check_in=ARRIVAL,
        check_out=DEPARTURE,
        vendor="ttlock",
    ),
    "welcome": MessageDispatched(
        message_id="msg-b1-welcome", booking_id="b1", kind="welcome", channel="sms", locale="ps", welcomes="b1"
    ),
}
"""What a check-in waits for, as the others say it."""


def wanted(booking_id: str = "b1", *, rail: Rail = "card", refundable: int = 30_000) -> BookingHeld:
    """Three nights for 300."""
    return BookingHeld(
        booking_id=booking_id,
        property_id="p1",
        room_type="double",
        check_in=ARRIVAL,
        check_out=DEPARTURE,
        guest=GUEST,
        rail=rail,
        amount_cents=30_000,
        currency=CURRENCY,
        refundable_cents=refundable,
    )


class House:
    """Reservation on a clock that the test moves. What the others say is said through here."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness

    async def hears(self, *facts: object) -> None:
        """Others say these, one after the other is applied."""
        for fact in facts:
            await self.harness.publish(fact)
            await self.harness.settled()

    async def waits(self, seconds: float) -> None:
        await self.harness.advance(seconds)

    # What is asked.

    async def hold(self, booking_id: str = "b1", *, rail: Rail = "card", refundable: int = 30_000) -> bool:
        async with reservation.transaction("t1") as tx:
            held = await hold(tx, wanted(booking_id, rail=rail, refundable=refundable))
        await self.harness.settled()
        return held

    async def check_in(self, *, today: date = ARRIVAL) -> bool:
        async with reservation.transaction("t1") as tx:
            started = await check_in(tx, "b1", today=today)
        await self.harness.settled()
        return started

    async def check_out(self) -> bool:
        async with reservation.transaction("t1") as tx:
            started = await check_out(tx, "b1")
        await self.harness.settled()
        return started

    async def cancel(self, *, today: date = date(2027, 3, 1), tenant: str = "t1") -> bool:
        async with reservation.transaction(tenant) as tx:
            cancelled = await cancel(tx, "b1", today=today)
        await self.harness.settled()
        return cancelled

    async def no_show(self, *, today: date = date(2027, 3, 11)) -> bool:
        async with reservation.transaction("t1") as tx:
            noted = await no_show(tx, "b1", today=today)
        await self.harness.settled()
        return noted

    async def change_dates(self, change_id: str = "c1", *, to: tuple[date, date] = (LATER, LATER_STILL)) -> bool:
        async with reservation.transaction("t1") as tx:
            started = await change_dates(tx, "b1", change_id=change_id, check_in=to[0], check_out=to[1])
        await self.harness.settled()
        return started

    async def extend(self, check_out: date, change_id: str = "c1") -> bool:
        async with reservation.transaction("t1") as tx:
            started = await extend_stay(tx, "b1", change_id=change_id, check_out=check_out)
        await self.harness.settled()
        return started

    # How far others have come.

    async def confirmed(self, *, refundable: int = 30_000) -> None:
        """Held, a room, paid by card."""
        await self.hold(refundable=refundable)
        await self.hears(committed(), captured())

    async def confirmed_cash_pending(self) -> None:
        """Held, a room, cash on arrival."""
        await self.hold(rail="cash_pending")
        await self.hears(committed(), captured(rail="cash_pending"))

    async def checked_in(self) -> None:
        """Confirmed, arrived, with folio, key and welcome."""
        await self.confirmed()
        await self.check_in()
        await self.hears(*PARTS.values())

    # What has become of it.

    async def booking(self, booking_id: str = "b1") -> Booking:
        async with reservation.transaction("t1") as tx:
            return await read(tx, booking_id)

    async def card(self) -> Card:
        async with reservation.transaction("t1") as tx:
            return await card(tx, "b1")

    async def saga(self, name: str, id: str = "b1") -> SagaView:
        return await app_of(reservation).sagas.show(name, id, tenant="t1")

    async def saga_status(self, name: str, id: str = "b1") -> str:
        return (await self.saga(name, id)).row.status

    async def said(self, fact: type[object]) -> Sequence[object]:
        """What reservation said of one type, in order."""
        return [event.data for event in await self.harness.published(fact)]


@asynccontextmanager
async def open_house() -> AsyncIterator[House]:
    """Run reservation; at the end nothing may be held, and a second delivery of everything must change nothing."""
    async with Harness(reservation) as harness:
        yield House(harness)
        await harness.settled()
        held = await harness.held(reservation)
        assert held == [], [event.error for event in held]
        await harness.assert_replay_safe()


# What the others say about b1.


def committed() -> AllocationCommitted:
    return AllocationCommitted(
        booking_id="b1",
        allocation_id="alc-b1",
        property_id="p1",
        room_id="r1",
        check_in=ARRIVAL,
        check_out=DEPARTURE,
    )


def released() -> AllocationReleased:
    return AllocationReleased(
        booking_id="b1", allocation_id="alc-b1", property_id="p1", room_id="r1", reason="cancelled"
    )


def oversold(change_id: str = "") -> OversellBlocked:
    window = (LATER, LATER_STILL) if change_id else (ARRIVAL, DEPARTURE)
    return OversellBlocked(
        booking_id="b1",
        change_id=change_id,
        property_id="p1",
        room_type="double",
        check_in=window[0],
        check_out=window[1],
    )


def reallocated(change_id: str = "c1", room_id: str = "r2") -> AllocationReallocated:
    return AllocationReallocated(
        booking_id="b1",
        change_id=change_id,
        allocation_id="alc-b1",
        property_id="p1",
        old_room_id="r1",
        room_id=room_id,
        check_in=LATER,
        check_out=LATER_STILL,
    )


def delta(cents: int, change_id: str = "c1") -> DeltaApplied:
    return DeltaApplied(booking_id="b1", change_id=change_id, delta_cents=cents, currency=CURRENCY)


def captured(rail: Rail = "card") -> IntentCaptured:
    return IntentCaptured(
        booking_id="b1",
        intent_id="int-b1-stay",
        purpose="stay",
        reference="b1",
        rail=rail,
        amount_cents=30_000,
        currency=CURRENCY,
    )


def failed(*, refund: bool = False) -> IntentFailed:
    return IntentFailed(
        booking_id="b1",
        intent_id="int-b1-stay",
        purpose="stay",
        reference="b1",
        amount_cents=30_000,
        currency=CURRENCY,
        reason="declined",
        refund=refund,
    )


def refunded() -> IntentRefunded:
    return IntentRefunded(
        booking_id="b1", intent_id="int-b1-stay", refund_id="ref-b1", amount_cents=30_000, currency=CURRENCY
    )


def counted() -> CashReconciled:
    return CashReconciled(
        booking_id="b1", intent_id="int-b1-stay", amount_cents=30_000, currency=CURRENCY, staff_id="s1"
    )


def key_updated(change_id: str = "") -> KeyUpdated:
    return KeyUpdated(
        booking_id="b1",
        credential_id="key-b1",
        property_id="p1",
        room_id="r2",
        check_in=LATER,
        check_out=LATER_STILL,
        change_id=change_id,
    )


def key_revoked(credential_id: str = "key-b1") -> KeyRevoked:
    return KeyRevoked(booking_id="b1", credential_id=credential_id, reason="checked_out")


def vendor_erred(operation: str = "issue") -> VendorErred:
    assert operation in ("issue", "update", "revoke")
    return VendorErred(
        booking_id="b1",
        property_id="p1",
        vendor="ttlock",
        operation=operation,  # type: ignore[arg-type]  # checked above
        reason="gateway offline",
    )


def dispatched(kind: MessageKind) -> MessageDispatched:
    return MessageDispatched(message_id=f"msg-b1-{kind}", booking_id="b1", kind=kind, channel="email", locale="ps")


def folio_closed() -> FolioClosed:
    return FolioClosed(folio_id="fol-b1", booking_id="b1", charged_cents=30_000, currency=CURRENCY)


def invoice_voided(attempt: int = 1) -> InvoiceVoided:
    return InvoiceVoided(invoice_id=f"inv-b1-{attempt}", folio_id="fol-b1", booking_id="b1", reason="card declined")
