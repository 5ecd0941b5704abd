"""A booking in every order: no money without a room, no room without money, and none that stands still."""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sagas import (
    AllocationCommitted,
    AllocationReleased,
    BookingHeld,
    BookingSaga,
    IntentCaptured,
    IntentFailed,
    IntentRefunded,
    RefundRequested,
    ReleaseRequested,
    reservation,
)

from posthouse.testing import Ending, Harness, Orders, assert_every_order, hears


class Inventory:
    def __init__(self) -> None:
        self.rooms = 0

    @hears(BookingHeld)
    def commits(self, said: BookingHeld) -> AllocationCommitted:
        self.rooms += 1
        return AllocationCommitted(booking_id=said.booking_id, allocation_id="a1")

    @hears(BookingHeld)
    def says_nothing(self, said: BookingHeld) -> None: ...

    @hears(ReleaseRequested)
    def releases(self, said: ReleaseRequested) -> AllocationReleased:
        self.rooms -= 1
        return AllocationReleased(booking_id=said.booking_id)


class Payment:
    def __init__(self) -> None:
        self.taken = 0

    @hears(BookingHeld)
    def captures(self, said: BookingHeld) -> IntentCaptured:
        self.taken += 1
        return IntentCaptured(booking_id=said.booking_id, intent_id="i1")

    @hears(BookingHeld)
    def fails(self, said: BookingHeld) -> IntentFailed:
        return IntentFailed(booking_id=said.booking_id)

    @hears(BookingHeld)
    def says_nothing(self, said: BookingHeld) -> None: ...

    @hears(RefundRequested)
    def refunds(self, said: RefundRequested) -> IntentRefunded:
        self.taken -= 1
        return IntentRefunded(booking_id=said.booking_id, intent_id=said.intent_id)


def both_or_neither(end: Ending) -> Iterator[str]:
    found = (end.partner(Inventory).rooms, end.partner(Payment).taken)
    if end.status == "completed" and found != (1, 1):
        yield f"confirmed with {found[0]} rooms, and paid {found[1]} times"
    if end.status in ("compensated", "cancelled") and found != (0, 0):
        yield f"given up with {found[0]} rooms, and paid {found[1]} times"


async def book(harness: Harness, tenant: str) -> None:
    async with reservation.transaction(tenant) as tx:
        await reservation.start_saga(tx, BookingSaga(booking_id="b1"))


async def play(limit: int) -> Orders:
    return await assert_every_order(
        reservation,
        BookingSaga,
        start=book,
        partners=[Inventory, Payment],
        invariants=both_or_neither,
        limit=limit,
    )


async def test_a_booking_has_a_room_and_is_paid_or_neither() -> None:
    orders = await play(limit=150)
    assert orders.runs == 150
