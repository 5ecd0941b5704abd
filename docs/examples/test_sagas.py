"""A user's own tests of a saga: without a store, with power cuts, and against stored histories."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sagas import (
    AllocationCommitted,
    AllocationReleased,
    BookingCancelled,
    BookingConfirmed,
    BookingHeld,
    BookingSaga,
    IntentCaptured,
    IntentFailed,
    ReleaseRequested,
    book,
    inventory,
    payment,
    reservation,
)

from posthouse.testing import Harness, assert_survives_crashes, given
from posthouse.testing.histories import assert_replays, dump, histories, load

ROOM = AllocationCommitted(booking_id="b1", allocation_id="a1")


async def test_a_paid_booking_is_confirmed() -> None:
    booking = await given(reservation, BookingSaga(booking_id="b1"), ROOM)
    await booking.when(IntentCaptured(booking_id="b1", intent_id="i1"))
    booking.then(published=[BookingConfirmed(booking_id="b1")], status="completed", deadlines={})


async def test_a_hold_expires_after_30_seconds() -> None:
    booking = await given(reservation, BookingSaga(booking_id="b1"))
    booking.then(published=[BookingHeld(booking_id="b1")], deadlines={"hold_expired": 30.0})
    await booking.advance(30.0)
    booking.then(published=[BookingCancelled(booking_id="b1", reason="hold_expired")], status="compensated")


async def test_a_refused_payment_gives_the_room_back_first() -> None:
    booking = await given(reservation, BookingSaga(booking_id="b1"), ROOM)
    await booking.when(IntentFailed(booking_id="b1"))
    booking.then(published=[ReleaseRequested(booking_id="b1", allocation_id="a1")], status="compensating")
    await booking.when(AllocationReleased(booking_id="b1"))
    booking.then(published=[BookingCancelled(booking_id="b1", reason="payment_failed")], status="compensated")


async def test_a_room_that_is_not_given_back_waits_for_an_operator() -> None:
    booking = await given(reservation, BookingSaga(booking_id="b1"), ROOM, IntentFailed(booking_id="b1"))
    (await booking.advance(60.0)).then(status="compensation_failed")
    (await booking.resume(note="released by phone")).then(status="compensated")


async def a_refused_booking(harness: Harness) -> None:
    await book("b1")
    await harness.publish(ROOM)
    await harness.settled()
    await harness.publish(IntentFailed(booking_id="b1"))
    await harness.settled()
    await harness.publish(AllocationReleased(booking_id="b1"))


async def test_a_power_cut_after_any_step_changes_nothing() -> None:
    crashes = await assert_survives_crashes(a_refused_booking, reservation, inventory, payment)
    assert crashes.runs > 10


async def test_this_release_does_what_the_last_one_did() -> None:
    async with Harness(reservation, inventory, payment) as harness:
        await a_refused_booking(harness)
        await harness.settled()
        stored = dump([view async for view in histories(reservation)])
    await assert_replays(reservation, load(stored))
