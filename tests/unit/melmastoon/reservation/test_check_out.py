"""The check-out saga, every path of D §8.4."""

from __future__ import annotations

from typing import Literal

import pytest

from melmastoon.facts.lock_integration import KeySuspended
from melmastoon.facts.reservation import CheckedOut, CheckOutStarted
from melmastoon.reservation import desk, reservation
from posthouse import Reject
from posthouse.app import app_of
from tests.unit.melmastoon.reservation.house import (
    GUEST,
    PARTS,
    folio_closed,
    invoice_voided,
    key_revoked,
    open_house,
    vendor_erred,
)

OUT = CheckedOut(booking_id="b1", property_id="p1", room_id="r1", guest=GUEST)


def started(attempt: int = 1, asks: Literal["folio", "key"] = "folio") -> CheckOutStarted:
    return CheckOutStarted(booking_id="b1", property_id="p1", room_id="r1", guest=GUEST, attempt=attempt, asks=asks)


@pytest.mark.parametrize("key_first", [True, False], ids=["the key first", "the folio first"])
async def test_a_guest_is_out_when_the_key_is_revoked_and_the_folio_closed_in_either_order(key_first: bool) -> None:
    """With nothing open, or with a balance that was captured: the folio closes either way."""
    async with open_house() as house:
        await house.checked_in()
        assert await house.check_out()
        assert await house.said(CheckOutStarted) == [started()]
        first, second = (key_revoked(), folio_closed()) if key_first else (folio_closed(), key_revoked())
        await house.hears(first)
        assert (await house.booking()).status == "check_out_started"
        assert await house.said(CheckedOut) == []
        await house.hears(second)
        assert (await house.booking()).status == "checked_out"
        assert await house.said(CheckedOut) == [OUT]
        view = await house.saga("check_out")
        assert (view.row.status, view.row.deadlines) == ("completed", {})


@pytest.mark.parametrize("word", [folio_closed(), invoice_voided()], ids=["closed", "declined"])
async def test_the_key_is_asked_for_once_it_is_known_what_becomes_of_the_folio(word: object) -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.waits(20.0)
        assert await house.said(CheckOutStarted) == [started()]
        await house.hears(word, word)
        assert await house.said(CheckOutStarted) == [started(), started(1, "key")]
        await house.waits(29.0)  # the key has 30 seconds of its own
        assert await house.saga_status("check_out") == "running"


async def test_a_key_waits_no_longer_than_30_seconds_for_the_folio() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.waits(29.999)
        assert await house.said(CheckOutStarted) == [started()]
        await house.waits(0.001)
        assert await house.said(CheckOutStarted) == [started(), started(1, "key")]
        await house.hears(key_revoked())
        assert (await house.booking()).status == "checked_out_balance_pending"


async def test_a_guest_who_never_had_a_key_is_out_when_that_is_said() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(folio_closed(), key_revoked(credential_id=""))
        assert (await house.booking()).status == "checked_out"


@pytest.mark.parametrize("key_first", [True, False], ids=["the key first", "the decline first"])
async def test_a_declined_balance_is_pending_once_the_key_is_revoked(key_first: bool) -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        first, second = (key_revoked(), invoice_voided()) if key_first else (invoice_voided(), key_revoked())
        await house.hears(first)
        assert (await house.booking()).status == "check_out_started"
        await house.hears(second)
        card = await house.card()
        assert (card.booking.status, card.missing, card.key) == ("checked_out_balance_pending", "balance", "revoked")
        view = await house.saga("check_out")
        assert (view.row.status, view.row.reason) == ("partial", "balance pending: card declined")
        assert view.row.deadlines == {}
        assert await house.said(CheckedOut) == []


async def test_a_declined_balance_is_asked_for_again_with_one_click_and_then_the_guest_is_out() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(key_revoked(), invoice_voided())
        await desk.retry_check_out("t1", "b1", by="s1")
        await house.harness.settled()
        assert await house.said(CheckOutStarted) == [started(), started(1, "key"), started(2)]
        card = await house.card()
        assert (card.booking.status, card.missing) == ("check_out_started", "")
        await house.hears(folio_closed())
        assert (await house.booking()).status == "checked_out"
        assert await house.said(CheckedOut) == [OUT]


async def test_a_balance_that_was_asked_for_again_is_not_asked_for_twice_while_it_is_on_its_way() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(key_revoked(), invoice_voided())
        await desk.retry_check_out("t1", "b1")
        await house.waits(30.0)
        assert (await house.booking()).status == "checked_out_balance_pending"
        await desk.retry_check_out("t1", "b1")
        await house.harness.settled()
        assert await house.said(CheckOutStarted) == [started(), started(1, "key"), started(2)]


async def test_a_declined_balance_that_was_settled_since_is_not_asked_for_again_because_of_the_key() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(invoice_voided(), folio_closed())
        await house.waits(30.0)
        assert (await house.card()).missing == "key"
        await desk.retry_check_out("t1", "b1")
        await house.hears(key_revoked())
        assert await house.said(CheckOutStarted) == [started(), started(1, "key")]
        assert (await house.booking()).status == "checked_out"


async def test_a_balance_may_be_declined_again_and_again() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(key_revoked(), invoice_voided(1))
        for attempt in (2, 3):
            await desk.retry_check_out("t1", "b1")
            await house.hears(invoice_voided(attempt))
            assert (await house.booking()).status == "checked_out_balance_pending"
            assert (await house.said(CheckOutStarted))[-1] == started(attempt)
        assert await house.saga_status("check_out") == "partial"


async def test_a_balance_that_is_settled_some_other_way_ends_the_check_out_without_a_click() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(key_revoked(), invoice_voided())
        await house.waits(86_400.0)
        await house.hears(folio_closed())
        card = await house.card()
        assert (card.booking.status, card.missing) == ("checked_out", "")
        assert await house.saga_status("check_out") == "completed"


async def test_after_30_seconds_the_desk_sees_whether_key_or_folio_are_missing() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(vendor_erred("revoke"))
        await house.waits(29.999)
        assert (await house.card()).missing == ""
        await house.waits(0.001)
        card = await house.card()
        assert (card.booking.status, card.missing) == ("check_out_started", "folio, key")
        assert card.by_hand == "revoke the key by hand: gateway offline"
        await house.hears(folio_closed())
        assert (await house.card()).missing == "key"
        await house.waits(60.0)
        await house.hears(key_revoked())  # by hand
        card = await house.card()
        assert (card.booking.status, card.missing, card.by_hand) == ("checked_out", "", "")
        assert await house.said(CheckedOut) == [OUT]


async def test_a_folio_that_is_not_settled_within_30_seconds_is_a_balance_pending() -> None:
    """Cash that is short, or a vendor that does not answer: nobody is kept from leaving."""
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(key_revoked())
        await house.waits(29.999)
        assert (await house.booking()).status == "check_out_started"
        await house.waits(0.001)
        card = await house.card()
        assert (card.booking.status, card.missing) == ("checked_out_balance_pending", "balance")
        assert (await house.saga("check_out")).row.reason == "balance pending: not settled yet"
        await house.hears(invoice_voided())
        assert (await house.saga("check_out")).row.reason == "balance pending: card declined"
        await house.hears(folio_closed())
        assert (await house.booking()).status == "checked_out"


async def test_a_key_that_is_revoked_late_leaves_the_balance_pending() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.waits(30.0)
        await house.hears(key_revoked())
        card = await house.card()
        assert (card.booking.status, card.missing) == ("checked_out_balance_pending", "balance")


async def test_a_click_on_a_check_out_without_a_declined_balance_asks_nobody_twice() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.waits(30.0)
        await desk.retry_check_out("t1", "b1")
        await house.harness.settled()
        assert await house.said(CheckOutStarted) == [started(), started(1, "key")]
        assert await house.saga_status("check_out") == "running"
        assert (await house.card()).missing == ""
        await house.hears(key_revoked())
        assert (await house.booking()).status == "check_out_started"
        await house.waits(30.0)
        assert (await house.booking()).status == "checked_out_balance_pending"
        await desk.retry_check_out("t1", "b1")
        await house.hears(folio_closed())
        assert (await house.booking()).status == "checked_out"
        assert await house.said(CheckOutStarted) == [started(), started(1, "key")]


async def test_a_balance_that_is_declined_while_the_key_is_overdue_is_pending_when_the_key_is_revoked() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(invoice_voided())
        await house.waits(30.0)
        assert (await house.card()).missing == "folio, key"
        await house.hears(key_revoked())
        card = await house.card()
        assert (card.booking.status, card.missing) == ("checked_out_balance_pending", "balance")


async def test_a_key_that_was_lost_and_revoked_before_the_check_out_is_asked_for_all_the_same() -> None:
    """Whoever is asked answers; what was said before there was a check-out is not remembered."""
    async with open_house() as house:
        await house.checked_in()
        await house.hears(key_revoked())
        await house.check_out()
        await house.hears(folio_closed())
        assert await house.said(CheckOutStarted) == [started(), started(1, "key")]
        await house.hears(key_revoked())
        assert (await house.booking()).status == "checked_out"


async def test_a_suspended_key_is_waited_for_until_it_is_revoked() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.hears(KeySuspended(booking_id="b1", credential_id="key-b1", reason="dispute"))
        await house.check_out()
        await house.hears(folio_closed())
        assert (await house.booking()).status == "check_out_started"
        await house.hears(key_revoked())
        assert (await house.booking()).status == "checked_out"


async def test_a_key_that_was_replaced_after_it_was_lost_is_waited_for() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.hears(key_revoked(), PARTS["key"])
        await house.check_out()
        await house.hears(folio_closed())
        assert (await house.booking()).status == "check_out_started"


async def test_a_check_out_that_is_asked_for_twice_begins_once() -> None:
    async with open_house() as house:
        await house.checked_in()
        assert await house.check_out()
        assert not await house.check_out()
        assert await house.said(CheckOutStarted) == [started()]


async def test_a_guest_who_is_not_in_cannot_check_out() -> None:
    async with open_house() as house:
        await house.confirmed()
        with pytest.raises(Reject, match="booking b1 cannot become check_out_started: it is confirmed"):
            await house.check_out()
        assert await house.said(CheckOutStarted) == []


async def test_duplicates_of_every_answer_change_nothing() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(key_revoked(), key_revoked(), folio_closed(), folio_closed(), key_revoked())
        assert await house.said(CheckedOut) == [OUT]
        assert (await house.booking()).status == "checked_out"


async def test_a_balance_that_was_settled_by_hand_lets_the_guest_go_but_no_key_that_still_opens() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(invoice_voided())
        await house.waits(30.0)
        with pytest.raises(Reject, match="the key of booking b1 is not revoked yet"):
            await app_of(reservation).sagas.resume("check_out", "b1", tenant="t1", by="s1")
        await house.hears(key_revoked())
        await app_of(reservation).sagas.resume("check_out", "b1", tenant="t1", by="s1", note="paid in the bar")
        await house.harness.settled()
        assert (await house.booking()).status == "checked_out"
        assert len(await house.said(CheckedOut)) == 1
        assert await house.saga_status("check_out") == "completed"


async def test_a_check_out_that_is_called_off_in_time_leaves_the_guest_in_and_begins_again() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await desk.call_off_check_out("t1", "b1", by="s1")
        await house.harness.settled()
        assert (await house.booking()).status == "checked_in"
        assert await house.check_out()
        assert await house.said(CheckOutStarted) == [started(), started(2)]
        await house.hears(folio_closed(), key_revoked())
        assert (await house.booking()).status == "checked_out"
        assert await house.said(CheckedOut) == [OUT]


@pytest.mark.parametrize("key_first", [True, False], ids=["the key first", "the folio first"])
async def test_there_is_no_way_back_once_the_key_is_to_end_and_the_check_out_ends_as_ever(key_first: bool) -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(invoice_voided())
        await desk.call_off_check_out("t1", "b1", by="s1")
        assert await house.saga_status("check_out") == "compensation_failed"
        assert (await house.booking()).status == "check_out_started"
        await house.hears(key_revoked() if key_first else folio_closed())
        expected = "checked_out_balance_pending" if key_first else "check_out_started"
        assert (await house.booking()).status == expected
        await house.hears(folio_closed() if key_first else key_revoked())
        card = await house.card()
        assert (card.booking.status, card.missing) == ("checked_out", "")
        assert await house.said(CheckedOut) == [OUT]
        assert await house.saga_status("check_out") == "completed"


async def test_a_check_out_that_is_called_off_with_a_balance_pending_ends_when_it_is_paid() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.hears(invoice_voided(), key_revoked())
        await desk.call_off_check_out("t1", "b1", by="s1")
        assert await house.saga_status("check_out") == "cancelled"
        assert (await house.booking()).status == "checked_out_balance_pending"
        await house.hears(folio_closed())
        assert (await house.booking()).status == "checked_out"
        assert await house.said(CheckedOut) == [OUT]


async def test_a_check_out_that_is_called_off_when_the_key_has_ended_leaves_the_balance_alone() -> None:
    async with open_house() as house:
        await house.checked_in()
        await house.check_out()
        await house.waits(30.0)
        await desk.retry_check_out("t1", "b1")
        await house.hears(key_revoked())
        assert (await house.booking()).status == "check_out_started"
        await desk.call_off_check_out("t1", "b1")
        assert (await house.booking()).status == "checked_out_balance_pending"
