"""What is asked of reservation: one intent is one effect, however often it is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from msgspec.structs import replace

from melmastoon.facts.house import Guest
from melmastoon.facts.reservation import BookingHeld, BookingModified
from melmastoon.reservation import reservation
from melmastoon.reservation.commands import change_guest, hold, note_requests
from posthouse import Reject
from posthouse.app import app_of
from posthouse.testing import Harness
from tests.unit.melmastoon.reservation.house import (
    DEPARTURE,
    GUEST,
    PARTS,
    House,
    captured,
    committed,
    delta,
    folio_closed,
    key_revoked,
    open_house,
    reallocated,
    wanted,
)

OTHER = Guest(guest_id="g2", name="Omar", email="omar@example.org", phone="+93700000002", locale="fa")


async def test_a_booking_that_is_held_twice_is_held_once() -> None:
    async with open_house() as house:
        assert await house.hold()
        assert not await house.hold()
        await house.hears(committed(), captured())
        assert not await house.hold()
        assert await house.said(BookingHeld) == [wanted()]
        assert (await house.booking()).status == "confirmed"


async def test_two_tenants_may_have_a_booking_of_the_same_id() -> None:
    async with open_house() as house:
        assert await house.hold()
        async with reservation.transaction("t2") as tx:
            assert await hold(tx, wanted())
        await house.hears(committed(), captured())
        assert (await house.booking()).status == "confirmed"
        await house.waits(30.0)  # nothing of t1 was heard for t2
        assert (await app_of(reservation).sagas.show("booking", "b1", tenant="t2")).row.status == "compensated"


async def test_a_booking_without_a_night_is_refused() -> None:
    async with open_house() as house:
        with pytest.raises(Reject, match="booking b1: a stay from 2027-03-13 until 2027-03-13 has no night"):
            async with reservation.transaction("t1") as tx:
                await hold(tx, replace(wanted(), check_in=DEPARTURE))
        assert await house.said(BookingHeld) == []


@pytest.mark.parametrize("refundable", [-1, 30_001])
async def test_more_than_the_price_is_never_refundable(refundable: int) -> None:
    async with open_house() as house:
        with pytest.raises(Reject, match="booking b1: between 0 and 30000 cents can be refundable"):
            await house.hold(refundable=refundable)


async def test_a_transaction_that_fails_leaves_neither_booking_nor_saga() -> None:
    async with open_house() as house:
        with suppress(RuntimeError):
            async with reservation.transaction("t1") as tx:
                assert await hold(tx, wanted())
                raise RuntimeError("the site fell over")
        assert await house.said(BookingHeld) == []
        assert [row async for row in app_of(reservation).sagas.find()] == []
        assert await house.hold()


async def test_the_guest_of_a_booking_is_changed_once_per_request() -> None:
    async with open_house() as house:
        await house.confirmed()
        for request_id, guest, granted in (("q1", OTHER, True), ("q2", GUEST, True), ("q1", OTHER, False)):
            async with reservation.transaction("t1") as tx:
                assert await change_guest(tx, "b1", request_id=request_id, guest=guest) is granted
        await house.harness.settled()
        assert (await house.booking()).guest == GUEST
        assert await house.said(BookingModified) == [
            BookingModified(booking_id="b1", guest=OTHER, change="guest"),
            BookingModified(booking_id="b1", guest=GUEST, change="guest"),
        ]


async def test_special_requests_are_noted_once_per_request() -> None:
    async with open_house() as house:
        await house.confirmed()
        for granted in (True, False):
            async with reservation.transaction("t1") as tx:
                assert await note_requests(tx, "b1", request_id="q1", words="a cot") is granted
        await house.harness.settled()
        assert (await house.booking()).special_requests == "a cot"
        assert await house.said(BookingModified) == [
            BookingModified(booking_id="b1", guest=GUEST, change="special_requests", note="a cot")
        ]


async def test_a_booking_that_is_over_is_modified_no_more() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.cancel()
        with pytest.raises(Reject, match="booking b1 cannot be modified: it is cancelled"):
            async with reservation.transaction("t1") as tx:
                await change_guest(tx, "b1", request_id="q1", guest=OTHER)


async def _whole_stay(house: House, hears: Callable[..., Awaitable[None]]) -> None:
    await house.hold()
    await hears(committed(), captured(), PARTS["key"])
    await house.change_dates()
    await hears(reallocated(), delta(10_000))
    await house.check_in(today=(await house.booking()).check_in)
    await hears(*PARTS.values())
    await house.check_out()
    await hears(key_revoked(), folio_closed())


async def test_a_whole_stay_with_every_frame_delivered_twice_is_the_same_stay() -> None:
    async with Harness(reservation) as harness:
        house = House(harness)

        async def twice(*facts: object) -> None:
            for fact in facts:
                await house.hears(fact)
                for stored in [list(log)[-1] for log in harness.broker.log.topics.values() if log]:
                    await harness.broker.publish([stored.frame])  # the last of every topic again, our own included
                await harness.settled()

        await _whole_stay(house, twice)
        assert (await house.booking()).status == "checked_out"
        assert await harness.held(reservation) == []
        sagas = {(row.saga, row.status) async for row in app_of(reservation).sagas.find()}
    async with Harness(reservation) as harness:
        house = House(harness)
        await _whole_stay(house, house.hears)
        assert {(row.saga, row.status) async for row in app_of(reservation).sagas.find()} == sagas
        booking = await house.booking()
        assert (booking.status, booking.amount_cents, booking.missing) == ("checked_out", 40_000, "")
