"""The booking saga, every path of D §8.1."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from melmastoon.facts.house import Rail
from melmastoon.facts.reservation import BookingCancelled, BookingConfirmed, BookingHeld
from melmastoon.reservation import desk, reservation
from posthouse.app import app_of
from posthouse.errors import DeskError
from tests.unit.melmastoon.reservation.house import (
    GUEST,
    captured,
    committed,
    counted,
    failed,
    open_house,
    oversold,
    released,
    wanted,
)


def cancelled(reason: str) -> BookingCancelled:
    return BookingCancelled(
        booking_id="b1",
        property_id="p1",
        guest=GUEST,
        reason=reason,  # type: ignore[arg-type]  # a test names one that there is
        refund_cents=30_000,
        currency="USD",
    )


async def test_a_booking_with_a_room_and_the_money_is_confirmed() -> None:
    async with open_house() as house:
        assert await house.hold()
        assert await house.said(BookingHeld) == [wanted()]
        await house.hears(committed())
        assert (await house.booking()).status == "held"
        await house.hears(captured())
        booking = await house.booking()
        assert (booking.status, booking.room_id) == ("confirmed", "r1")
        (confirmed,) = await house.said(BookingConfirmed)
        assert isinstance(confirmed, BookingConfirmed)
        assert (confirmed.room_id, confirmed.amount_cents, confirmed.cash_pending) == ("r1", 30_000, False)
        assert await house.saga_status("booking") == "completed"


@pytest.mark.parametrize("rail", ["card", "paypal", "mfs"])
async def test_every_rail_that_takes_money_confirms(rail: Rail) -> None:
    async with open_house() as house:
        await house.hold(rail=rail)
        await house.hears(committed(), captured(rail))
        assert (await house.booking()).status == "confirmed"


async def test_money_that_is_heard_of_before_the_room_waits_for_it() -> None:
    async with open_house() as house:
        await house.hold()
        await house.hears(captured())
        assert (await house.booking()).status == "held"
        await house.waits(60.0)
        await house.hears(committed())
        assert (await house.booking()).status == "confirmed"
        assert len(await house.said(BookingConfirmed)) == 1


async def test_the_hold_expires_at_exactly_30_seconds_without_a_room() -> None:
    async with open_house() as house:
        await house.hold()
        await house.waits(29.999)
        assert (await house.booking()).status == "held"
        await house.waits(0.001)
        booking = await house.booking()
        assert (booking.status, booking.reason) == ("cancelled", "hold_expired")
        assert await house.said(BookingCancelled) == [cancelled("hold_expired")]
        assert await house.saga_status("booking") == "compensated"


async def test_a_room_that_is_committed_after_the_hold_expired_is_released_again() -> None:
    async with open_house() as house:
        await house.hold()
        await house.waits(30.0)
        await house.hears(committed(), released())
        assert (await house.booking()).status == "cancelled"
        assert len(await house.said(BookingCancelled)) == 1
        saga = await house.saga("booking")
        assert [turn.late for turn in saga.history[-2:]] == [True, False]
        assert (saga.row.status, saga.history[-2].undone) == ("compensated", ("release_room",))


async def test_a_room_in_time_stops_the_hold_from_expiring_at_30_seconds() -> None:
    async with open_house() as house:
        await house.hold()
        await house.waits(29.0)
        await house.hears(committed())
        await house.waits(500.0)
        assert (await house.booking()).status == "held"


async def test_without_a_room_the_booking_is_cancelled_at_once() -> None:
    async with open_house() as house:
        await house.hold()
        await house.hears(oversold())
        assert await house.said(BookingCancelled) == [cancelled("no_room")]
        assert await house.saga_status("booking") == "compensated"
        assert (await house.saga("booking")).row.deadlines == {}


async def test_a_failed_payment_cancels_the_booking_and_waits_for_the_room_to_be_released() -> None:
    async with open_house() as house:
        await house.hold()
        await house.hears(committed(), failed())
        assert await house.said(BookingCancelled) == [cancelled("payment_failed")]
        assert await house.saga_status("booking") == "compensating"
        await house.hears(released())
        assert await house.saga_status("booking") == "compensated"
        assert (await house.booking()).reason == "payment_failed"
        assert len(await house.said(BookingCancelled)) == 1


async def test_a_failed_payment_that_is_heard_of_before_the_room_cancels_too() -> None:
    async with open_house() as house:
        await house.hold()
        await house.hears(failed(), committed(), released())
        assert await house.said(BookingCancelled) == [cancelled("payment_failed")]
        assert await house.saga_status("booking") == "compensated"


async def test_a_payment_that_never_answers_ends_the_hold_after_ten_minutes() -> None:
    async with open_house() as house:
        await house.hold()
        await house.hears(committed())
        await house.waits(599.999)
        assert (await house.booking()).status == "held"
        await house.waits(0.001)
        assert await house.said(BookingCancelled) == [cancelled("hold_expired")]
        await house.hears(released())
        assert await house.saga_status("booking") == "compensated"


async def test_money_that_is_captured_after_the_cancellation_confirms_nothing() -> None:
    async with open_house() as house:
        await house.hold()
        await house.hears(committed())
        await house.waits(600.0)
        await house.hears(captured(), released(), captured())
        assert (await house.booking()).status == "cancelled"
        assert await house.said(BookingConfirmed) == []
        assert await house.said(BookingCancelled) == [cancelled("hold_expired")]
        assert await house.saga_status("booking") == "compensated"


async def test_a_room_that_is_not_released_within_60_seconds_is_for_an_operator() -> None:
    async with open_house() as house:
        await house.hold()
        await house.hears(committed(), failed())
        await house.waits(59.999)
        assert await house.saga_status("booking") == "compensating"
        await house.waits(0.001)
        assert await house.saga_status("booking") == "compensation_failed"
        await app_of(reservation).sagas.retry("booking", "b1", tenant="t1")
        await house.hears(released())
        assert await house.saga_status("booking") == "compensated"
        assert len(await house.said(BookingCancelled)) == 1


async def test_cash_on_arrival_confirms_with_cash_pending() -> None:
    async with open_house() as house:
        await house.confirmed_cash_pending()
        assert (await house.booking()).status == "confirmed_cash_pending"
        (confirmed,) = await house.said(BookingConfirmed)
        assert isinstance(confirmed, BookingConfirmed)
        assert confirmed.cash_pending


async def test_cash_that_is_counted_makes_the_booking_confirmed() -> None:
    async with open_house() as house:
        await house.confirmed_cash_pending()
        await house.hears(counted())
        assert (await house.booking()).status == "confirmed"


async def test_cash_that_is_counted_for_something_else_leaves_the_stay_pending() -> None:
    async with open_house() as house:
        await house.confirmed_cash_pending()
        await house.hears(replace(counted(), purpose="delta"))
        assert (await house.booking()).status == "confirmed_cash_pending"


async def test_cash_that_is_counted_before_the_promise_is_heard_of_is_not_pending() -> None:
    async with open_house() as house:
        await house.hold(rail="cash_pending")
        await house.hears(committed(), counted(), captured("cash_pending"))
        assert (await house.booking()).status == "confirmed"
        (confirmed,) = await house.said(BookingConfirmed)
        assert isinstance(confirmed, BookingConfirmed)
        assert not confirmed.cash_pending


async def test_a_guest_who_abandons_the_payment_page_gets_everything_back() -> None:
    async with open_house() as house:
        await house.hold()
        await house.hears(committed())
        await desk.abandon("t1", "b1")
        await house.hears(released())
        assert await house.said(BookingCancelled) == [cancelled("guest")]
        assert await house.saga_status("booking") == "cancelled"


async def test_a_confirmed_booking_cannot_be_abandoned() -> None:
    async with open_house() as house:
        await house.confirmed()
        with pytest.raises(DeskError, match="booking b1 is completed"):
            await desk.abandon("t1", "b1")
        assert (await house.booking()).status == "confirmed"


async def test_an_operator_who_cancels_a_booking_saga_is_named_as_the_reason() -> None:
    async with open_house() as house:
        await house.hold()
        await app_of(reservation).sagas.cancel("booking", "b1", "the guest rang and wept", tenant="t1")
        await house.harness.settled()
        assert await house.said(BookingCancelled) == [cancelled("operator")]
        assert (await house.saga("booking")).row.reason == "the guest rang and wept"


async def test_bookings_do_not_mind_each_other() -> None:
    async with open_house() as house:
        await house.hold("b1")
        await house.waits(20.0)
        await house.hold("b2")
        await house.waits(10.0)
        assert (await house.booking("b1")).status == "cancelled"
        assert (await house.booking("b2")).status == "held"
