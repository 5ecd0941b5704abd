"""The date-change saga, every path of D §8.5."""

from __future__ import annotations

from datetime import date
from itertools import permutations

import pytest
from msgspec.structs import replace

from melmastoon.facts.reservation import BookingCancelled, BookingDatesChanged, BookingModified
from melmastoon.reservation import desk, reservation
from posthouse import Reject
from posthouse.app import app_of
from tests.unit.melmastoon.reservation.house import (
    ARRIVAL,
    DEPARTURE,
    GUEST,
    LATER,
    LATER_STILL,
    PARTS,
    House,
    counted,
    delta,
    key_revoked,
    key_updated,
    open_house,
    oversold,
    reallocated,
)

NO_KEY = replace(key_updated("c1"), credential_id="")
ANSWERS = {"rooms": reallocated(), "price": delta(10_000), "key": key_updated("c1")}
KEPT = BookingModified(booking_id="b1", guest=GUEST, change="dates_kept", note="dates unavailable, original kept")


def wanted(attempt: int = 1, *missing: str) -> BookingDatesChanged:
    return BookingDatesChanged(
        booking_id="b1",
        change_id="c1",
        property_id="p1",
        room_type="double",
        old_check_in=ARRIVAL,
        old_check_out=DEPARTURE,
        check_in=LATER,
        check_out=LATER_STILL,
        attempt=attempt,
        missing=missing,  # type: ignore[arg-type]  # a test names parts that there are
    )


async def window(house: House) -> tuple[str, str, date, date]:
    booking = await house.booking()
    return booking.status, booking.room_id, booking.check_in, booking.check_out


@pytest.mark.parametrize("order", list(permutations(["rooms", "price", "no key"])), ids=" ".join)
async def test_a_change_is_done_when_rooms_price_and_key_are_answered_in_any_order(order: tuple[str, ...]) -> None:
    async with open_house() as house:
        await house.confirmed()
        assert await house.change_dates()
        assert await house.said(BookingDatesChanged) == [wanted()]
        assert await window(house) == ("dates_changing", "r1", ARRIVAL, DEPARTURE)
        await house.hears(*((ANSWERS | {"no key": NO_KEY})[part] for part in order))
        assert await window(house) == ("confirmed", "r2", LATER, LATER_STILL)
        assert (await house.booking()).amount_cents == 40_000
        view = await house.saga("date_change", "c1")
        assert (view.row.status, view.row.deadlines) == ("completed", {})


@pytest.mark.parametrize("order", list(permutations(ANSWERS)), ids=" ".join)
async def test_with_a_key_a_change_is_done_when_the_key_fits_too_in_any_order(order: tuple[str, ...]) -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(PARTS["key"])
        await house.change_dates()
        for part in order:
            assert await house.saga_status("date_change", "c1") == "running"
            await house.hears(ANSWERS[part])
        assert await window(house) == ("confirmed", "r2", LATER, LATER_STILL)
        assert await house.saga_status("date_change", "c1") == "completed"


async def test_a_change_without_a_free_room_reverts_by_itself_and_the_guest_is_told() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(PARTS["key"])
        await house.change_dates()
        await house.hears(oversold("c1"))
        assert await window(house) == ("confirmed", "r1", ARRIVAL, DEPARTURE)
        assert await house.said(BookingModified) == [KEPT]
        assert await house.said(BookingCancelled) == []
        view = await house.saga("date_change", "c1")
        assert (view.row.status, view.row.reason, view.row.deadlines) == ("compensated", "no_room", {})


async def test_a_booking_whose_cash_is_pending_changes_and_reverts_to_just_that() -> None:
    async with open_house() as house:
        await house.confirmed_cash_pending()
        await house.change_dates("c1")
        await house.hears(oversold("c1"))
        assert (await house.booking()).status == "confirmed_cash_pending"
        await house.change_dates("c2")
        await house.hears(reallocated("c2"), delta(10_000, "c2"))
        booking = await house.booking()
        assert (booking.status, booking.amount_cents) == ("confirmed_cash_pending", 40_000)


async def test_cash_that_is_counted_during_a_change_is_not_pending_afterwards() -> None:
    async with open_house() as house:
        await house.confirmed_cash_pending()
        await house.change_dates()
        await house.hears(counted())
        assert (await house.booking()).status == "dates_changing"
        await house.hears(reallocated(), delta(0))
        assert (await house.booking()).status == "confirmed"


async def test_a_cheaper_window_lowers_the_price_and_what_can_be_refunded() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await house.hears(reallocated(), delta(-12_000), NO_KEY)
        booking = await house.booking()
        assert (booking.amount_cents, booking.refundable_cents) == (18_000, 18_000)
        assert await house.saga_status("date_change", "c1") == "completed"


async def test_a_dearer_window_does_not_raise_what_can_be_refunded() -> None:
    async with open_house() as house:
        await house.confirmed(refundable=20_000)
        await house.change_dates()
        await house.hears(reallocated(), delta(10_000))
        booking = await house.booking()
        assert (booking.amount_cents, booking.refundable_cents) == (40_000, 20_000)


async def test_at_exactly_30_seconds_a_change_is_partial_and_names_what_is_missing() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(PARTS["key"])
        await house.change_dates()
        await house.waits(29.999)
        assert await house.saga_status("date_change", "c1") == "running"
        await house.waits(0.001)
        view = await house.saga("date_change", "c1")
        assert (view.row.status, view.row.reason) == ("partial", "missing: rooms, price, key")
        assert await window(house) == ("dates_changing", "r1", ARRIVAL, DEPARTURE)
        assert (await house.card()).missing == "rooms, price, key"


async def test_once_the_nights_are_swapped_the_new_window_holds_even_if_the_key_is_missing() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(PARTS["key"])
        await house.change_dates()
        await house.hears(reallocated(), delta(0))
        await house.waits(30.0)
        card = await house.card()
        assert (card.booking.status, card.missing) == ("confirmed", "key")
        assert await house.check_in(today=LATER)


async def test_one_click_asks_again_for_what_is_missing_alone() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(PARTS["key"])
        await house.change_dates()
        await house.hears(reallocated())
        await house.waits(30.0)
        await desk.retry_date_change("t1", "c1", by="s1")
        await house.harness.settled()
        assert await house.said(BookingDatesChanged) == [wanted(), wanted(2, "price", "key")]
        assert (await house.card()).missing == ""
        await house.hears(delta(10_000), key_updated("c1"))
        assert await window(house) == ("confirmed", "r2", LATER, LATER_STILL)
        assert await house.saga_status("date_change", "c1") == "completed"


async def test_a_retry_has_30_seconds_of_its_own_and_may_be_partial_again() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await house.waits(30.0)
        await desk.retry_date_change("t1", "c1")
        await house.waits(30.0)
        assert await house.saga_status("date_change", "c1") == "partial"
        await desk.retry_date_change("t1", "c1")
        await house.harness.settled()
        assert (await house.said(BookingDatesChanged))[-1] == wanted(3, "rooms", "price", "key")


async def test_late_answers_complete_a_partial_change_without_a_click() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await house.waits(45.0)
        await house.hears(reallocated())
        card = await house.card()
        assert (card.booking.status, card.missing) == ("confirmed", "price, key")
        await house.hears(delta(10_000), NO_KEY)
        assert (await house.card()).missing == ""
        assert await house.saga_status("date_change", "c1") == "completed"


async def test_a_partial_change_without_a_free_room_still_reverts_by_itself() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await house.waits(45.0)
        await house.hears(oversold("c1"))
        assert await window(house) == ("confirmed", "r1", ARRIVAL, DEPARTURE)
        assert (await house.card()).missing == ""
        assert await house.said(BookingModified) == [KEPT]


async def test_a_key_that_was_revoked_meanwhile_needs_no_fitting_after_a_click() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(PARTS["key"])
        await house.change_dates()
        await house.hears(reallocated(), delta(0))
        await house.waits(30.0)
        await house.hears(key_revoked())
        await desk.retry_date_change("t1", "c1")
        await house.hears(NO_KEY)
        assert await house.saga_status("date_change", "c1") == "completed"
        assert (await house.card()).missing == ""


async def test_a_booking_that_was_cancelled_meanwhile_wants_neither_price_nor_key() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await house.hears(reallocated())
        assert await house.cancel()
        await house.waits(30.0)
        view = await house.saga("date_change", "c1")
        assert (view.row.status, view.row.note) == ("completed", "the booking is cancelled")
        assert (await house.card()).missing == ""


async def test_a_click_on_a_partial_change_of_a_cancelled_booking_ends_it() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await house.hears(reallocated())
        await house.waits(30.0)
        assert await house.cancel()
        await desk.retry_date_change("t1", "c1")
        assert await house.saga_status("date_change", "c1") == "completed"
        assert len(await house.said(BookingDatesChanged)) == 1
        assert (await house.card()).missing == ""


async def test_a_change_that_is_called_off_keeps_the_dates() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await desk.call_off_date_change("t1", "c1", by="s1")
        await house.harness.settled()
        assert await window(house) == ("confirmed", "r1", ARRIVAL, DEPARTURE)
        (kept,) = await house.said(BookingModified)
        assert isinstance(kept, BookingModified)
        assert (kept.change, kept.note) == ("dates_kept", "called off")


async def test_nights_that_were_swapped_after_the_change_was_called_off_hold_all_the_same() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await desk.call_off_date_change("t1", "c1")
        await house.hears(reallocated())
        assert await window(house) == ("confirmed", "r2", LATER, LATER_STILL)
        assert await house.saga_status("date_change", "c1") == "cancelled"


async def test_a_price_that_comes_after_the_change_was_called_off_is_the_price_of_nights_that_were_swapped() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await house.hears(reallocated())
        await desk.call_off_date_change("t1", "c1")
        await house.hears(delta(10_000))
        assert (await house.booking()).amount_cents == 40_000
        assert await house.saga_status("date_change", "c1") == "cancelled"


async def test_a_change_that_is_called_off_after_the_nights_were_swapped_stays_swapped() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await house.hears(reallocated())
        await house.waits(30.0)
        await desk.call_off_date_change("t1", "c1")
        await house.harness.settled()
        assert await window(house) == ("confirmed", "r2", LATER, LATER_STILL)
        assert await house.said(BookingModified) == []
        assert (await house.card()).missing == ""


async def test_calling_off_an_older_change_leaves_the_one_that_runs_alone() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates("c1")
        await house.hears(reallocated("c1"))
        await house.waits(30.0)
        assert (await house.card()).missing == "price, key"
        await house.change_dates("c2", to=(ARRIVAL, DEPARTURE))
        assert (await house.card()).missing == ""
        await desk.call_off_date_change("t1", "c1")
        assert (await house.booking()).status == "dates_changing"
        await house.hears(oversold("c2"))
        assert await window(house) == ("confirmed", "r2", LATER, LATER_STILL)


async def test_nights_that_an_older_change_swapped_after_all_leave_the_one_that_runs_alone() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates("c1")
        await desk.call_off_date_change("t1", "c1")
        await house.change_dates("c2", to=(date(2027, 4, 1), date(2027, 4, 3)))
        await house.hears(reallocated("c1"))
        assert await window(house) == ("dates_changing", "r2", LATER, LATER_STILL)
        await house.hears(oversold("c2"))
        assert await window(house) == ("confirmed", "r2", LATER, LATER_STILL)


async def test_a_booking_can_be_changed_again_and_again() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates("c1")
        await house.hears(reallocated("c1"), delta(10_000, "c1"))
        assert await house.change_dates("c2", to=(ARRIVAL, DEPARTURE))
        (_, second) = await house.said(BookingDatesChanged)
        assert isinstance(second, BookingDatesChanged)
        assert (second.old_check_in, second.check_in) == (LATER, ARRIVAL)


async def test_a_change_that_is_asked_for_twice_begins_once() -> None:
    async with open_house() as house:
        await house.confirmed()
        assert await house.change_dates()
        assert not await house.change_dates()
        await house.hears(reallocated(), delta(10_000))
        assert not await house.change_dates()
        assert await house.said(BookingDatesChanged) == [wanted()]
        assert (await house.booking()).amount_cents == 40_000


async def test_one_change_at_a_time() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates("c1")
        with pytest.raises(Reject, match="booking b1 cannot become dates_changing: it is dates_changing"):
            await house.change_dates("c2", to=(date(2027, 4, 1), date(2027, 4, 3)))


async def test_a_change_to_the_same_dates_is_refused() -> None:
    async with open_house() as house:
        await house.confirmed()
        with pytest.raises(Reject, match="booking b1 is from 2027-03-10 until 2027-03-13 already"):
            await house.change_dates(to=(ARRIVAL, DEPARTURE))


async def test_a_change_to_a_window_without_a_night_is_refused() -> None:
    async with open_house() as house:
        await house.confirmed()
        with pytest.raises(Reject, match="a stay from 2027-03-20 until 2027-03-20 has no night"):
            await house.change_dates(to=(LATER, LATER))


async def test_nobody_checks_in_or_cancels_while_the_dates_change() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        with pytest.raises(Reject, match="cannot become check_in_started: it is dates_changing"):
            await house.check_in()
        with pytest.raises(Reject, match="cannot become cancelled: it is dates_changing"):
            await house.cancel()


async def test_a_change_whose_price_was_seen_to_by_hand_is_done_but_nights_are_not_swapped_by_hand() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.change_dates()
        await house.waits(30.0)
        with pytest.raises(Reject, match="the nights of booking b1 are not swapped"):
            await app_of(reservation).sagas.resume("date_change", "c1", tenant="t1", by="s1")
        await house.hears(reallocated())
        await app_of(reservation).sagas.resume("date_change", "c1", tenant="t1", by="s1")
        await house.harness.settled()
        card = await house.card()
        assert (card.booking.status, card.missing) == ("confirmed", "")
        assert await house.saga_status("date_change", "c1") == "completed"


async def test_a_guest_who_is_in_can_stay_longer_and_is_in_again() -> None:
    async with open_house() as house:
        await house.checked_in()
        assert await house.extend(LATER)
        assert (await house.booking()).status == "dates_changing"
        (change,) = await house.said(BookingDatesChanged)
        assert isinstance(change, BookingDatesChanged)
        assert (change.old_check_out, change.check_in, change.check_out) == (DEPARTURE, ARRIVAL, LATER)
        swapped = replace(reallocated(room_id="r1"), check_in=ARRIVAL, check_out=LATER)
        await house.hears(swapped, delta(70_000), key_updated("c1"))
        assert await window(house) == ("checked_in", "r1", ARRIVAL, LATER)
        assert await house.saga_status("date_change", "c1") == "completed"
        assert await house.check_out()


async def test_a_guest_who_cannot_stay_longer_is_in_as_before() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.extend(LATER)
        await house.hears(oversold("c1"))
        assert await window(house) == ("checked_in", "r1", ARRIVAL, DEPARTURE)
        assert await house.said(BookingModified) == [KEPT]


@pytest.mark.parametrize("to", [(LATER, LATER_STILL), (ARRIVAL, date(2027, 3, 12))], ids=["other dates", "shorter"])
async def test_a_guest_who_is_in_can_have_no_other_dates_than_a_later_departure(to: tuple[date, date]) -> None:
    async with open_house() as house:
        await house.checked_in()
        with pytest.raises(
            Reject, match="the guest of booking b1 is in: the stay can be made longer, and nothing else"
        ):
            await house.change_dates(to=to)
