"""The cancellation saga, every path of D §8.2 that is reservation's, and no-shows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from melmastoon.facts.inventory import AllocationReleased
from melmastoon.facts.notification import MessageDispatched
from melmastoon.facts.reservation import BookingCancelled, NoShow
from melmastoon.reservation import reservation
from posthouse import Reject
from tests.unit.melmastoon.reservation.house import (
    ARRIVAL,
    House,
    counted,
    dispatched,
    failed,
    key_revoked,
    open_house,
    refunded,
    released,
)


async def refund(house: House) -> int:
    (cancelled,) = await house.said(BookingCancelled)
    assert isinstance(cancelled, BookingCancelled)
    assert cancelled.reason == "guest"
    return cancelled.refund_cents


async def test_a_guest_who_cancels_before_the_day_of_arrival_gets_back_what_the_terms_say() -> None:
    async with open_house() as house:
        await house.confirmed(refundable=20_000)
        assert await house.cancel(today=ARRIVAL - timedelta(days=1))
        booking = await house.booking()
        assert (booking.status, booking.reason) == ("cancelled", "guest")
        assert await refund(house) == 20_000


async def test_a_guest_who_cancels_on_the_day_of_arrival_gets_nothing_back() -> None:
    async with open_house() as house:
        await house.confirmed()
        assert await house.cancel(today=ARRIVAL)
        assert await refund(house) == 0


async def test_a_booking_that_is_not_refundable_is_cancelled_without_a_refund() -> None:
    async with open_house() as house:
        await house.confirmed(refundable=0)
        assert await house.cancel()
        assert await refund(house) == 0


async def test_promised_cash_is_not_refunded() -> None:
    async with open_house() as house:
        await house.confirmed_cash_pending()
        assert await house.cancel()
        assert await refund(house) == 0


async def test_counted_cash_is_refunded_like_any_other_money() -> None:
    async with open_house() as house:
        await house.confirmed_cash_pending()
        await house.hears(counted())
        assert await house.cancel()
        assert await refund(house) == 30_000


async def test_a_refund_that_fails_leaves_the_booking_cancelled_and_shows_on_the_board() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.cancel()
        await house.hears(released(), key_revoked(), failed(refund=True), dispatched("cancellation"))
        card = await house.card()
        assert card.booking.status == "cancelled"
        assert card.refund_trouble == "declined"
        assert card.wants_attention
        await house.hears(refunded())
        assert not (await house.card()).wants_attention


async def test_a_booking_that_is_still_being_booked_is_abandoned_and_not_cancelled() -> None:
    async with open_house() as house:
        await house.hold()
        with pytest.raises(Reject, match="booking b1 is still being booked: it can be abandoned"):
            await house.cancel()
        assert (await house.booking()).status == "held"
        assert await house.said(BookingCancelled) == []


async def test_a_guest_who_has_checked_in_cannot_cancel() -> None:
    async with open_house() as house:
        await house.checked_in()
        with pytest.raises(Reject, match="booking b1 cannot become cancelled: it is checked_in"):
            await house.cancel()


async def test_a_booking_is_cancelled_once() -> None:
    async with open_house() as house:
        await house.confirmed()
        assert await house.cancel()
        assert not await house.cancel()
        assert len(await house.said(BookingCancelled)) == 1


async def test_nobody_cancels_a_booking_that_there_is_not_or_that_is_another_tenants() -> None:
    async with open_house() as house:
        await house.confirmed()
        with pytest.raises(Reject, match="there is no booking b1 of t2"):
            await house.cancel(tenant="t2")
        assert (await house.booking()).status == "confirmed"


def test_the_flow_is_declared_with_what_has_to_follow() -> None:
    flow = reservation.declared.flows["cancellation"]
    subjects = [event_type.payload.cls for event_type in flow.then]
    assert flow.starts.payload.cls is BookingCancelled
    assert subjects == [AllocationReleased, MessageDispatched]


async def test_a_no_show_is_noted_from_the_day_after_arrival_on() -> None:
    async with open_house() as house:
        await house.confirmed()
        with pytest.raises(Reject, match="the guest may still arrive on 2027-03-10"):
            await house.no_show(today=ARRIVAL)
        assert await house.no_show(today=ARRIVAL + timedelta(days=1))
        assert (await house.booking()).status == "no_show"
        assert await house.said(NoShow) == [NoShow(booking_id="b1", property_id="p1", room_id="r1")]
        assert await house.said(BookingCancelled) == []  # which would carry a refund


async def test_a_no_show_who_promised_cash_is_one_too() -> None:
    async with open_house() as house:
        await house.confirmed_cash_pending()
        assert await house.no_show()
        assert (await house.booking()).status == "no_show"


async def test_a_no_show_is_noted_once() -> None:
    async with open_house() as house:
        await house.confirmed()
        assert await house.no_show()
        assert not await house.no_show()
        assert len(await house.said(NoShow)) == 1


async def test_a_guest_who_is_in_is_no_no_show() -> None:
    async with open_house() as house:
        await house.checked_in()
        with pytest.raises(Reject, match="cannot become no_show: it is checked_in"):
            await house.no_show(today=ARRIVAL)
