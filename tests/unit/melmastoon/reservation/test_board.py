"""What the front desk sees."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from melmastoon.facts.lock_integration import KeyIssued, KeySuspended
from melmastoon.reservation import reservation
from melmastoon.reservation.board import Noted, cards
from tests.unit.melmastoon.reservation.house import (
    ARRIVAL,
    DEPARTURE,
    PARTS,
    failed,
    key_revoked,
    key_updated,
    open_house,
    vendor_erred,
)

BY_HAND = KeyIssued(
    booking_id="b1",
    credential_id="key-b1",
    property_id="p1",
    room_id="r1",
    check_in=ARRIVAL,
    check_out=DEPARTURE,
    vendor="ttlock",
    manual=True,
)


async def test_a_lock_vendor_that_fails_leaves_the_booking_confirmed_and_shows_what_to_do_by_hand() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(vendor_erred("issue"))
        card = await house.card()
        assert (card.booking.status, card.key) == ("confirmed", "none")
        assert card.by_hand == "issue the key by hand: gateway offline"
        assert card.wants_attention


async def test_a_key_that_was_cut_by_hand_is_shown_as_such_and_nothing_is_left_to_do() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(vendor_erred("issue"))
        await house.waits(5.0)
        await house.hears(BY_HAND)
        card = await house.card()
        assert (card.key, card.key_by_hand, card.by_hand, card.wants_attention) == ("issued", True, "", False)


async def test_an_error_that_is_heard_of_after_the_key_that_settled_it_is_settled() -> None:
    """Errors and keys come by different topics: the error was said first, and is heard second."""
    async with open_house() as house:
        await house.confirmed()
        await house.hears(BY_HAND, vendor_erred("issue"))  # the clock stands still: not later than the key
        assert (await house.card()).by_hand == ""


@pytest.mark.parametrize(
    ("trouble", "settles"),
    [("issue", ["issued", "revoked"]), ("update", ["updated", "revoked"]), ("revoke", ["revoked"])],
)
def test_each_trouble_is_settled_by_what_does_the_same_or_ends_the_key(trouble: str, settles: list[str]) -> None:
    for fact in ("issued", "updated", "revoked"):
        earlier = Noted(trouble=trouble, trouble_reason="offline", trouble_at="2", **{f"{fact}_at": "1"})  # type: ignore[arg-type]
        later = Noted(trouble=trouble, trouble_reason="offline", trouble_at="2", **{f"{fact}_at": "3"})  # type: ignore[arg-type]
        assert earlier.by_hand == f"{trouble} the key by hand: offline"
        assert (later.by_hand == "") == (fact in settles)


async def test_a_payment_that_failed_is_no_trouble_with_a_refund() -> None:
    async with open_house() as house:
        await house.hold()
        await house.hears(failed())
        assert not (await house.card()).wants_attention


async def test_a_key_is_issued_suspended_updated_and_revoked_on_the_board() -> None:
    async with open_house() as house:
        await house.confirmed()
        assert (await house.card()).key == "none"
        await house.hears(PARTS["key"])
        assert (await house.card()).key == "issued"
        await house.hears(KeySuspended(booking_id="b1", credential_id="key-b1", reason="lost"))
        assert (await house.card()).key == "suspended"
        await house.hears(key_updated())
        assert (await house.card()).key == "issued"
        await house.hears(key_revoked())
        assert (await house.card()).key == "revoked"


async def test_a_key_that_never_was_is_not_shown_as_revoked() -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(key_revoked(credential_id=""))
        assert (await house.card()).key == "none"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([], False),
        ([replace(key_updated(), credential_id="")], False),
        ([PARTS["key"]], True),
        ([PARTS["key"], KeySuspended(booking_id="b1", credential_id="key-b1", reason="lost")], False),
        ([PARTS["key"], key_revoked()], False),
    ],
)
async def test_a_booking_has_a_key_until_it_is_suspended_or_revoked(facts: list[object], expected: bool) -> None:
    async with open_house() as house:
        await house.confirmed()
        await house.hears(*facts)
        assert ((await house.card()).key == "issued") is expected


async def test_the_board_of_a_property_shows_its_bookings_alone() -> None:
    async with open_house() as house:
        await house.hold("b2")
        await house.hold("b1")
        async with reservation.transaction("t1") as tx:
            assert [card.booking.booking_id for card in await cards(tx, "p1")] == ["b1", "b2"]
            assert await cards(tx, "p2") == []
        async with reservation.transaction("t2") as tx:
            assert await cards(tx, "p1") == []
