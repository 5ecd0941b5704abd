"""The check-in saga, every path of D §8.3."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import combinations, permutations

import pytest

from melmastoon.facts.lock_integration import KeyIssued
from melmastoon.facts.reservation import BookingModified, CheckedIn, CheckInStarted
from melmastoon.reservation import desk, reservation
from posthouse import Reject
from posthouse.app import app_of
from posthouse.errors import DeskError
from tests.unit.melmastoon.reservation.house import (
    ARRIVAL,
    DEPARTURE,
    GUEST,
    PARTS,
    counted,
    dispatched,
    key_updated,
    open_house,
    vendor_erred,
)

IN = CheckedIn(booking_id="b1", property_id="p1", room_id="r1", check_in=ARRIVAL, check_out=DEPARTURE)
SUBSETS = [parts for count in range(3) for parts in combinations(PARTS, count)]


def started(attempt: int = 1, *missing: str) -> CheckInStarted:
    return CheckInStarted(
        booking_id="b1",
        property_id="p1",
        room_id="r1",
        check_in=ARRIVAL,
        check_out=DEPARTURE,
        guest=GUEST,
        attempt=attempt,
        missing=missing,  # type: ignore[arg-type]  # a test names parts that there are
    )


@pytest.mark.parametrize("order", list(permutations(PARTS)), ids=" ".join)
async def test_a_guest_is_in_when_folio_key_and_welcome_have_come_in_any_order(order: tuple[str, ...]) -> None:
    async with open_house() as house:
        await house.confirmed()
        assert await house.check_in()
        assert await house.said(CheckInStarted) == [started()]
        for part in order:
            card = await house.card()
            assert (card.booking.status, card.wants_attention) == ("check_in_started", False)
            assert await house.said(CheckedIn) == []
            await house.hears(PARTS[part])
        assert (await house.booking()).status == "checked_in"
        assert await house.said(CheckedIn) == [IN]
        view = await house.saga("check_in")
        assert (view.row.status, view.row.deadlines) == ("completed", {})


async def test_a_key_that_was_issued_before_is_made_to_fit_and_counts() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(PARTS["key"])  # issued at the confirmation: no answer to a check-in
        await house.check_in()
        await house.hears(PARTS["folio"], PARTS["welcome"])
        assert (await house.booking()).status == "check_in_started"
        await house.hears(key_updated())
        assert (await house.booking()).status == "checked_in"


async def test_a_message_that_is_no_welcome_does_not_count() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.hears(PARTS["folio"], PARTS["key"], dispatched("confirmation"))
        assert (await house.booking()).status == "check_in_started"


@pytest.mark.parametrize("came", SUBSETS, ids=lambda came: " ".join(came) or "nothing")
async def test_at_exactly_30_seconds_the_check_in_is_partial_and_names_what_is_missing(came: tuple[str, ...]) -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.hears(*(PARTS[part] for part in came))
        await house.waits(29.999)
        assert (await house.booking()).status == "check_in_started"
        await house.waits(0.001)
        missing = ", ".join(part for part in PARTS if part not in came)
        card = await house.card()
        assert (card.booking.status, card.missing, card.wants_attention) == ("check_in_partial", missing, True)
        view = await house.saga("check_in")
        assert (view.row.status, view.row.reason) == ("partial", f"missing: {missing}")
        assert await house.said(CheckedIn) == []
        note = f"missing: {missing}"
        assert await house.said(BookingModified) == [
            BookingModified(booking_id="b1", guest=GUEST, change="check_in_partial", note=note)
        ]


async def test_one_click_asks_again_for_what_is_missing_alone() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.hears(PARTS["folio"])
        await house.waits(30.0)
        await desk.retry_check_in("t1", "b1", by="s1")
        await house.harness.settled()
        assert await house.said(CheckInStarted) == [started(), started(2, "key", "welcome")]
        card = await house.card()
        assert (card.booking.status, card.missing) == ("check_in_started", "")
        await house.hears(PARTS["key"], PARTS["welcome"])
        assert (await house.booking()).status == "checked_in"
        assert await house.said(CheckedIn) == [IN]


async def test_a_retry_has_30_seconds_of_its_own_and_may_be_partial_again() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.waits(30.0)
        await desk.retry_check_in("t1", "b1")
        await house.hears(PARTS["folio"], PARTS["welcome"])
        await house.waits(29.999)
        assert (await house.booking()).status == "check_in_started"
        await house.waits(0.001)
        assert (await house.card()).missing == "key"
        await desk.retry_check_in("t1", "b1")
        await house.harness.settled()
        assert (await house.said(CheckInStarted))[-1] == started(3, "key")


async def test_a_late_answer_completes_a_partial_check_in_without_a_click() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.hears(PARTS["folio"])
        await house.waits(45.0)
        await house.hears(PARTS["welcome"])
        card = await house.card()
        assert (card.booking.status, card.missing) == ("check_in_partial", "key")
        await house.hears(PARTS["key"])
        card = await house.card()
        assert (card.booking.status, card.missing, card.wants_attention) == ("checked_in", "", False)
        assert await house.said(CheckedIn) == [IN]
        assert await house.saga_status("check_in") == "completed"


async def test_a_key_that_is_cut_by_hand_completes_a_partial_check_in() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.hears(PARTS["folio"], PARTS["welcome"], vendor_erred("issue"))
        await house.waits(30.0)
        assert (await house.card()).by_hand == "issue the key by hand: gateway offline"
        by_hand = PARTS["key"]
        assert isinstance(by_hand, KeyIssued)
        await house.hears(
            KeyIssued(
                booking_id="b1",
                credential_id="key-b1",
                property_id="p1",
                room_id="r1",
                check_in=ARRIVAL,
                check_out=DEPARTURE,
                vendor="ttlock",
                manual=True,
            )
        )
        card = await house.card()
        assert (card.booking.status, card.key, card.key_by_hand, card.by_hand) == ("checked_in", "issued", True, "")


async def test_there_is_nothing_to_retry_in_a_check_in_that_runs() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        with pytest.raises(DeskError, match="check_in b1 is running: there is nothing to retry"):
            await desk.retry_check_in("t1", "b1")


async def test_pending_cash_is_counted_before_the_guest_checks_in() -> None:
    async with open_house() as house:
        await house.confirmed_cash_pending()
        with pytest.raises(Reject, match="booking b1 cannot be checked in: its cash is pending; count it first"):
            await house.check_in()
        await house.hears(counted())
        assert await house.check_in()
        await house.hears(*PARTS.values())
        assert (await house.booking()).status == "checked_in"


async def test_a_check_in_that_is_asked_for_twice_begins_once() -> None:
    async with open_house() as house:
        await house.confirmed()
        assert await house.check_in()
        assert not await house.check_in()
        await house.hears(*PARTS.values())
        assert not await house.check_in()
        assert await house.said(CheckInStarted) == [started()]
        assert (await house.booking()).status == "checked_in"


@pytest.mark.parametrize("day", [date(2027, 3, 9), DEPARTURE])
async def test_nobody_checks_in_outside_the_window(day: date) -> None:
    async with open_house() as house:
        await house.confirmed()
        with pytest.raises(Reject, match=f"cannot be checked in on {day}: it is from 2027-03-10 until 2027-03-13"):
            await house.check_in(today=day)
        assert await house.said(CheckInStarted) == []


async def test_a_cancelled_booking_cannot_be_checked_in() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.cancel()
        with pytest.raises(Reject, match="cannot become check_in_started: it is cancelled, and nothing follows that"):
            await house.check_in()


async def test_a_check_in_that_is_called_off_leaves_a_booking_that_can_be_cancelled() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.waits(30.0)
        await desk.call_off_check_in("t1", "b1", by="s1")
        card = await house.card()
        assert (card.booking.status, card.missing) == ("confirmed", "")
        await house.hears(*PARTS.values())  # too late
        assert (await house.booking()).status == "confirmed"
        assert await house.cancel()


async def test_a_check_in_that_was_called_off_begins_again_and_asks_for_everything() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.hears(PARTS["folio"])
        await desk.call_off_check_in("t1", "b1", by="s1")
        assert await house.check_in(today=ARRIVAL + timedelta(days=1))
        assert await house.said(CheckInStarted) == [started(), started(2)]
        await house.hears(PARTS["key"], PARTS["welcome"])
        assert (await house.booking()).status == "check_in_started"
        await house.hears(PARTS["folio"])
        assert (await house.booking()).status == "checked_in"
        assert await house.said(CheckedIn) == [IN]
        assert not await house.check_in()


async def test_duplicates_of_every_answer_change_nothing() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.hears(*PARTS.values(), *PARTS.values())  # said twice, as facts of their own
        assert await house.said(CheckedIn) == [IN]
        assert (await house.booking()).status == "checked_in"


async def test_what_the_desk_saw_to_by_hand_lets_the_guest_in() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.check_in()
        await house.hears(PARTS["folio"], PARTS["key"])
        await house.waits(30.0)
        await app_of(reservation).sagas.resume("check_in", "b1", tenant="t1", by="s1", note="welcomed in person")
        await house.harness.settled()
        card = await house.card()
        assert (card.booking.status, card.missing, card.wants_attention) == ("checked_in", "", False)
        assert await house.said(CheckedIn) == [IN]
        assert await house.saga_status("check_in") == "completed"
