"""Melmastoon's sagas, among partners that keep simple books: inventory its rooms, payment its money, the lock its keys."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import date

from melmastoon.facts.billing import FolioClosed, FolioOpened, InvoiceVoided
from melmastoon.facts.inventory import (
    AllocationCommitted,
    AllocationReallocated,
    AllocationReleased,
    OversellBlocked,
)
from melmastoon.facts.lock_integration import KeyIssued, KeyRevoked, KeyUpdated
from melmastoon.facts.notification import MessageDispatched
from melmastoon.facts.payment import IntentCaptured, IntentFailed, IntentRefunded
from melmastoon.facts.pricing import DeltaApplied
from melmastoon.facts.reservation import (
    BookingCancelled,
    BookingConfirmed,
    BookingDatesChanged,
    BookingHeld,
    CheckedIn,
    CheckedOut,
    CheckInStarted,
    CheckOutStarted,
)
from melmastoon.reservation import commands, desk, reservation
from melmastoon.reservation.bookings import Booking, read
from melmastoon.reservation.sagas import BookingSaga, CheckInSaga, CheckOutSaga, DateChangeSaga
from posthouse import Reject, Tx
from posthouse.errors import DeskError
from posthouse.testing import Ending, Harness, Orders, assert_every_order, hears
from tests.unit.melmastoon.reservation import house

DELTA = 5_000


def command(do: Callable[[Tx], Awaitable[object]]) -> Callable[[Harness, str], Awaitable[None]]:
    """One that may be refused."""

    async def run(harness: Harness, tenant: str) -> None:
        with contextlib.suppress(Reject, DeskError):
            async with reservation.transaction(tenant) as tx:
                await do(tx)

    return run


def fact(payload: object) -> Callable[[Harness, str], Awaitable[str]]:
    """Somebody says it."""
    return lambda harness, tenant: harness.publish(payload, tenant=tenant)


def click(verb: Callable[[str, str], Awaitable[None]], id: str = "b1") -> Callable[[Harness, str], Awaitable[None]]:
    """The desk, which may be told that there is nothing to do."""

    async def run(harness: Harness, tenant: str) -> None:
        with contextlib.suppress(DeskError):
            await verb(tenant, id)

    return run


hold = command(lambda tx: commands.hold(tx, house.wanted()))
check_in = command(lambda tx: commands.check_in(tx, "b1", today=house.ARRIVAL))
check_out = command(lambda tx: commands.check_out(tx, "b1"))
cancel = command(lambda tx: commands.cancel(tx, "b1", today=date(2027, 3, 1)))
change_dates = command(
    lambda tx: commands.change_dates(tx, "b1", change_id="c1", check_in=house.LATER, check_out=house.LATER_STILL)
)
CONFIRMED = (hold, fact(house.committed()), fact(house.captured()))
CHECKED_IN = (*CONFIRMED, check_in, *(fact(part) for part in house.PARTS.values()))


async def booking_of(end: Ending) -> Booking:
    async with reservation.transaction(end.tenant) as tx:
        return await read(tx, "b1")


# Booking.


class Inventory:
    """One room, which is free or not."""

    def __init__(self) -> None:
        self.committed = False

    @hears(BookingHeld)
    def commits(self, said: BookingHeld) -> AllocationCommitted:
        self.committed = True
        return house.committed()

    @hears(BookingHeld)
    def has_no_room(self, said: BookingHeld) -> OversellBlocked:
        return house.oversold()

    @hears(BookingHeld)
    def says_nothing(self, said: BookingHeld) -> None: ...

    @hears(BookingCancelled)
    def releases(self, said: BookingCancelled) -> AllocationReleased:
        self.committed = False
        return house.released()


class Payment:
    """Takes the money when the room is committed, and gives it back when the booking is cancelled."""

    def __init__(self) -> None:
        self.taken = 0

    @hears(AllocationCommitted)
    def captures(self, said: AllocationCommitted) -> IntentCaptured:
        self.taken += 30_000
        return house.captured()

    @hears(AllocationCommitted)
    def fails(self, said: AllocationCommitted) -> IntentFailed:
        return house.failed()

    @hears(AllocationCommitted)
    def says_nothing(self, said: AllocationCommitted) -> None: ...

    @hears(BookingCancelled)
    def refunds(self, said: BookingCancelled) -> IntentRefunded | None:
        had, self.taken = self.taken, 0
        return house.refunded() if had else None


async def booked_or_not(end: Ending) -> list[str]:
    booking, room, money = await booking_of(end), end.partner(Inventory).committed, end.partner(Payment).taken
    return list(_booked_or_not(end, booking.status, room=room, money=money))


def _booked_or_not(end: Ending, status: str, *, room: bool, money: int) -> Iterator[str]:
    if status == "confirmed" and not room:
        yield "confirmed without a room"
    if status == "confirmed" and money != 30_000:
        yield "confirmed without the money"
    if status == "cancelled" and money:
        yield "money kept for a cancelled booking"
    if status == "cancelled" and room and end.status != "compensation_failed":
        yield "a room kept for a cancelled booking"
    if status == "held" and end.rows and end.rows[-1].ended:
        yield f"still held, and its saga is {end.status}"
    if len(end.said(BookingConfirmed)) > 1 or len(end.said(BookingCancelled)) > 1:
        yield "confirmed or cancelled twice"


async def play_booking(limit: int, only: str | None = None) -> Orders:
    return await assert_every_order(
        reservation,
        BookingSaga,
        start=hold,
        partners=[Inventory, Payment],
        meanwhile={"the guest cancels": cancel},
        invariants=booked_or_not,
        limit=limit,
        only=only,
    )


# Check-in.


class Billing:
    def __init__(self) -> None:
        self.opened = False

    @hears(CheckInStarted)
    def opens(self, said: CheckInStarted) -> FolioOpened:
        self.opened = True
        return FolioOpened(folio_id="fol-b1", booking_id="b1", currency="USD")

    @hears(CheckInStarted)
    def says_nothing(self, said: CheckInStarted) -> None: ...


class Lock:
    def __init__(self) -> None:
        self.keys = 0

    @hears(CheckInStarted)
    def issues(self, said: CheckInStarted) -> object:
        self.keys += 1
        return house.PARTS["key"]

    @hears(CheckInStarted)
    def fails(self, said: CheckInStarted) -> object:
        return house.vendor_erred()


class Notification:
    def __init__(self) -> None:
        self.sent = False

    @hears(CheckInStarted)
    def welcomes(self, said: CheckInStarted) -> object:
        self.sent = True
        return house.PARTS["welcome"]

    @hears(CheckInStarted)
    def says_nothing(self, said: CheckInStarted) -> None: ...


async def in_or_not(end: Ending) -> list[str]:
    status = (await booking_of(end)).status
    ready = all((end.said(FolioOpened), end.said(KeyIssued), end.said(MessageDispatched)))
    return list(_in_or_not(end, status, ready=ready))


def _in_or_not(end: Ending, status: str, *, ready: bool) -> Iterator[str]:
    if status == "checked_in" and not ready:
        yield "checked in by halves"
    if (status == "checked_in") != bool(end.said(CheckedIn)):
        yield f"{status}, and checked in is said {len(end.said(CheckedIn))} times"
    if len(end.said(CheckedIn)) > 1:
        yield "checked in twice"
    fits = {
        "completed": ("checked_in",),
        "partial": ("check_in_partial",),
        "cancelled": ("confirmed",),
        "compensated": ("confirmed",),
    }
    if status not in fits.get(end.status, (status,)):
        yield f"the booking is {status}, and its check-in {end.status}"


async def play_check_in(limit: int, only: str | None = None) -> Orders:
    return await assert_every_order(
        reservation,
        CheckInSaga,
        before=CONFIRMED,
        start=check_in,
        partners=[Billing, Lock, Notification],
        meanwhile={"the desk asks again": click(desk.retry_check_in), "the guest comes back": check_in},
        invariants=in_or_not,
        limit=limit,
        only=only,
    )


# Check-out.


class Till:
    """Billing, when a guest leaves."""

    def __init__(self) -> None:
        self.closed = False

    @hears(CheckOutStarted)
    def closes(self, said: CheckOutStarted) -> FolioClosed | None:
        if said.asks != "folio":
            return None
        self.closed = True
        return house.folio_closed()

    @hears(CheckOutStarted)
    def is_declined(self, said: CheckOutStarted) -> InvoiceVoided | None:
        return house.invoice_voided(said.attempt) if said.asks == "folio" else None

    @hears(CheckOutStarted)
    def says_nothing(self, said: CheckOutStarted) -> None: ...


class Door:
    """The lock, when a guest leaves."""

    def __init__(self) -> None:
        self.revoked = False

    @hears(CheckOutStarted)
    def revokes(self, said: CheckOutStarted) -> KeyRevoked | None:
        if said.asks != "key":
            return None
        self.revoked = True
        return house.key_revoked()

    @hears(CheckOutStarted)
    def says_nothing(self, said: CheckOutStarted) -> None: ...


async def out_or_not(end: Ending) -> list[str]:
    status = (await booking_of(end)).status
    return list(_out_or_not(end, status, end.partner(Till), end.partner(Door)))


def _out_or_not(end: Ending, status: str, till: Till, door: Door) -> Iterator[str]:
    if status == "checked_out" and not till.closed:
        yield "checked out, and not paid"
    if status in ("checked_out", "checked_out_balance_pending") and not door.revoked:
        yield "gone with a key"
    if len(end.said(CheckedOut)) > 1:
        yield "checked out twice"
    if status == "check_out_started" and (not end.rows or end.rows[-1].ended):
        yield f"leaving for ever: its check-out is {end.status}"


async def play_check_out(limit: int, only: str | None = None) -> Orders:
    return await assert_every_order(
        reservation,
        CheckOutSaga,
        before=CHECKED_IN,
        start=check_out,
        partners=[Till, Door],
        meanwhile={"the desk asks again": click(desk.retry_check_out), "the guest leaves after all": check_out},
        invariants=out_or_not,
        limit=limit,
        only=only,
    )


# Change of dates.


class Calendar:
    """Inventory, when nights are swapped."""

    def __init__(self) -> None:
        self.window = (house.ARRIVAL, house.DEPARTURE)

    @hears(BookingDatesChanged)
    def swaps(self, said: BookingDatesChanged) -> AllocationReallocated | None:
        if said.attempt > 1:
            return None
        self.window = (said.check_in, said.check_out)
        return house.reallocated()

    @hears(BookingDatesChanged)
    def has_no_room(self, said: BookingDatesChanged) -> OversellBlocked | None:
        return house.oversold("c1") if said.attempt == 1 else None

    @hears(BookingDatesChanged)
    def says_nothing(self, said: BookingDatesChanged) -> None: ...


class Pricing:
    def __init__(self) -> None:
        self.charged = 0

    @hears(AllocationReallocated)
    def applies(self, said: AllocationReallocated) -> DeltaApplied:
        self.charged += DELTA
        return house.delta(DELTA)

    @hears(AllocationReallocated)
    def says_nothing(self, said: AllocationReallocated) -> None: ...


class Locksmith:
    """The lock, when a booking has other nights: it answers whether or not there is a key."""

    @hears(AllocationReallocated)
    def fits(self, said: AllocationReallocated) -> KeyUpdated:
        return house.key_updated("c1")

    @hears(AllocationReallocated)
    def says_nothing(self, said: AllocationReallocated) -> None: ...


async def changed_or_not(end: Ending) -> list[str]:
    booking = await booking_of(end)
    return list(_changed_or_not(end, booking, end.partner(Calendar), end.partner(Pricing)))


def _changed_or_not(end: Ending, booking: Booking, calendar: Calendar, pricing: Pricing) -> Iterator[str]:
    settled = not end.rows or end.rows[-1].ended or end.status == "partial"
    if settled and (booking.check_in, booking.check_out) != calendar.window and booking.status != "cancelled":
        yield "the booking has other nights than inventory"
    if settled and booking.amount_cents != 30_000 + pricing.charged:
        yield "the booking has another price than pricing charged"
    if booking.status == "dates_changing" and end.rows and end.rows[-1].ended:
        yield f"changing for ever: its change is {end.status}"


async def play_date_change(limit: int, only: str | None = None) -> Orders:
    return await assert_every_order(
        reservation,
        DateChangeSaga,
        before=CONFIRMED,
        start=change_dates,
        partners=[Calendar, Pricing, Locksmith],
        meanwhile={"the guest cancels": cancel},
        invariants=changed_or_not,
        limit=limit,
        only=only,
    )
