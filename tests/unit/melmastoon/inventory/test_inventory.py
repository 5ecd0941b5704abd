"""inventory-service: which room is whose on which night."""

from __future__ import annotations

import pytest

from melmastoon.facts.inventory import (
    AllocationCommitted,
    AllocationReallocated,
    AllocationReleased,
    OversellBlocked,
    StopSellActivated,
    StopSellCleared,
)
from melmastoon.facts.property import RoomArchived
from melmastoon.inventory import inventory
from melmastoon.inventory.commands import activate_stop_sell, clear_stop_sell
from posthouse.testing import Harness
from tests.unit.melmastoon.stay import (
    cancelled,
    checked_out,
    dates_changed,
    day,
    held,
    no_show,
    room,
    rows,
)

NIGHTS = "SELECT room_id, night, booking_id FROM nights ORDER BY room_id, night"


async def nights() -> list[str]:
    """`room night booking`, nights as days of February."""
    return [f"{r} {str(night)[-2:]} {booking}" for r, night, booking in await rows(inventory, NIGHTS)]


async def test_a_held_booking_gets_the_first_room_that_is_free_for_all_its_nights() -> None:
    async with Harness(inventory) as h:
        for room_id in ("r2", "r1"):
            await h.publish(room(room_id))
        await h.settled()
        await h.publish(held("b1", first=2, last=3))
        await h.settled()
        await h.publish(held("b2", first=1, last=3))
        await h.settled()
        assert [(e.data.booking_id, e.data.room_id) for e in await h.published(AllocationCommitted)] == [
            ("b1", "r1"),
            ("b2", "r2"),
        ]
        assert await nights() == ["r1 02 b1", "r2 01 b2", "r2 02 b2"]
        await h.assert_replay_safe()


async def test_of_two_bookings_for_the_last_room_one_wins_and_the_other_is_blocked() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1"))
        await h.publish(held("b2", first=2, last=4))
        await h.settled()
        (won,) = await h.published(AllocationCommitted)
        (lost,) = await h.published(OversellBlocked)
        assert {won.data.booking_id, lost.data.booking_id} == {"b1", "b2"}
        assert lost.data.change_id == ""
        assert len(await nights()) == 2


async def test_a_guest_may_come_on_the_day_on_which_another_leaves() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1", first=1, last=3))
        await h.publish(held("b2", first=3, last=4))
        await h.settled()
        assert len(await h.published(AllocationCommitted)) == 2
        assert await h.published(OversellBlocked) == []


async def test_a_booking_that_is_heard_of_before_the_first_room_of_its_type_gets_it_when_it_comes() -> None:
    async with Harness(inventory) as h:
        await h.publish(room("s1", room_type="single"))
        await h.publish(held("b1"))
        await h.settled()
        assert await h.published(AllocationCommitted) == []
        assert await h.published(OversellBlocked) == []
        await h.publish(room())
        await h.settled()
        (committed,) = await h.published(AllocationCommitted)
        assert committed.data.room_id == "r1"


async def test_a_booking_that_was_cancelled_while_it_waited_gets_no_room() -> None:
    async with Harness(inventory) as h:
        await h.publish(held("b1"))
        await h.publish(cancelled("b1", reason="hold_expired"))
        await h.settled()
        await h.publish(room())
        await h.settled()
        assert await nights() == []
        assert await h.published(AllocationCommitted) == []
        (released,) = await h.published(AllocationReleased)
        assert (released.data.reason, released.data.room_id) == ("hold_expired", "")
        await h.advance(600)
        assert len(await h.published(AllocationReleased)) == 1


@pytest.mark.parametrize("room_comes", [True, False], ids=["a room comes too late", "no room comes"])
async def test_a_hold_that_gets_no_room_for_ten_minutes_expires_by_itself_and_is_released_once(
    room_comes: bool,
) -> None:
    async with Harness(inventory) as h:
        await h.publish(held("b1"))
        await h.settled()
        await h.advance(599.999)
        assert await h.published(AllocationReleased) == []
        await h.advance(0.001)
        (released,) = await h.published(AllocationReleased)
        assert (released.data.booking_id, released.data.reason) == ("b1", "hold_expired")
        if room_comes:
            await h.publish(room())
            await h.settled()
        await h.publish(cancelled("b1", reason="hold_expired"))
        await h.settled()
        assert await nights() == []
        assert await h.published(AllocationCommitted) == []
        assert len(await h.published(AllocationReleased)) == 1


async def test_a_booking_that_no_room_was_free_for_is_released_when_it_is_cancelled() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1"))
        await h.publish(held("b2"))
        await h.settled()
        await h.publish(cancelled("b2", reason="no_room"))
        await h.settled()
        (released,) = await h.published(AllocationReleased)
        assert (released.data.booking_id, released.data.reason, released.data.room_id) == ("b2", "cancelled", "")


async def test_an_archived_room_is_not_sold_and_those_who_have_it_keep_it() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1"))
        await h.settled()
        await h.publish(RoomArchived(room_id="r1", property_id="p1", room_type="double", reason="renovation"))
        await h.settled()
        await h.publish(held("b2", first=5, last=6))
        await h.publish(dates_changed("b1", first=2, last=4))
        await h.settled()
        assert [e.data.booking_id for e in await h.published(OversellBlocked)] == ["b2"]
        assert await nights() == ["r1 02 b1", "r1 03 b1"]


async def test_a_cancelled_booking_gives_its_own_nights_back_and_nobody_elses() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1", first=1, last=3))
        await h.publish(held("b2", first=3, last=5))
        await h.settled()
        await h.publish(cancelled("b1"))
        await h.publish(cancelled("b1"))
        await h.settled()
        assert await nights() == ["r1 03 b2", "r1 04 b2"]
        (released,) = await h.published(AllocationReleased)
        assert (released.data.reason, released.data.room_id) == ("cancelled", "r1")
        await h.publish(held("b3", first=1, last=3))
        await h.settled()
        assert len(await h.published(AllocationCommitted)) == 3


async def test_a_no_show_gives_the_nights_back() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1"))
        await h.publish(no_show("b1"))
        await h.settled()
        (released,) = await h.published(AllocationReleased)
        assert released.data.reason == "no_show"
        assert await nights() == []


async def test_a_guest_who_leaves_early_gives_back_the_nights_that_are_left() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1", first=1, last=4))
        await h.settled()
        await h.advance(18 * 86_400)  # from the 15th of January to the 2nd of February
        await h.publish(checked_out("b1"))
        await h.settled()
        (released,) = await h.published(AllocationReleased)
        assert released.data.reason == "checked_out_early"
        assert await nights() == ["r1 01 b1"]


async def test_a_guest_who_leaves_in_time_gives_nothing_back() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1"))
        await h.settled()
        await h.advance(19 * 86_400)
        await h.publish(checked_out("b1"))
        await h.publish(cancelled("b1"))
        await h.settled()
        assert await h.published(AllocationReleased) == []
        assert await nights() == ["r1 01 b1", "r1 02 b1"]


async def test_a_change_of_dates_swaps_the_nights_and_keeps_the_room_if_it_is_free() -> None:
    async with Harness(inventory) as h:
        await h.publish(room("r1"))
        await h.publish(room("r2"))
        await h.settled()
        await h.publish(held("b0", first=1, last=3))
        await h.settled()
        await h.publish(held("b1", first=2, last=4))
        await h.settled()
        await h.publish(cancelled("b0"))
        await h.settled()
        await h.publish(dates_changed("b1", first=3, last=6))
        await h.settled()
        (swap,) = await h.published(AllocationReallocated)
        assert (swap.data.old_room_id, swap.data.room_id) == ("r2", "r2")
        assert (swap.data.check_in, swap.data.check_out) == (day(3), day(6))
        assert await nights() == ["r2 03 b1", "r2 04 b1", "r2 05 b1"]
        await h.assert_replay_safe()


async def test_a_change_of_dates_moves_to_another_room_where_its_own_is_taken() -> None:
    async with Harness(inventory) as h:
        await h.publish(room("r1"))
        await h.publish(room("r2"))
        await h.settled()
        await h.publish(held("b1", first=1, last=3))
        await h.publish(held("b2", first=3, last=5))
        await h.settled()
        await h.publish(dates_changed("b1", first=2, last=4))
        await h.settled()
        (swap,) = await h.published(AllocationReallocated)
        assert (swap.data.old_room_id, swap.data.room_id) == ("r1", "r2")
        assert await nights() == ["r1 03 b2", "r1 04 b2", "r2 02 b1", "r2 03 b1"]


async def test_a_swap_that_fails_leaves_everything_as_it_was() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1", first=1, last=3))
        await h.publish(held("b2", first=4, last=6))
        await h.settled()
        before = await nights()
        await h.publish(dates_changed("b1", first=3, last=5))
        await h.settled()
        (blocked,) = await h.published(OversellBlocked)
        assert (blocked.data.booking_id, blocked.data.change_id) == ("b1", "c1")
        assert await h.published(AllocationReallocated) == []
        assert await nights() == before
        await h.publish(dates_changed("b1", first=2, last=4, change_id="c2"))
        await h.settled()
        assert [e.data.change_id for e in await h.published(AllocationReallocated)] == ["c2"]


async def test_a_second_attempt_of_a_change_that_was_made_makes_nothing_new() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1"))
        await h.publish(dates_changed("b1", first=2, last=4))
        await h.publish(dates_changed("b1", first=2, last=4, attempt=2, missing=("key",)))
        await h.settled()
        assert len(await h.published(AllocationReallocated)) == 1


async def test_a_late_retry_of_an_older_change_does_not_undo_a_newer_one() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1"))
        await h.publish(dates_changed("b1", first=2, last=4, change_id="c1"))
        await h.publish(dates_changed("b1", first=3, last=5, change_id="c2"))
        await h.publish(dates_changed("b1", first=2, last=4, change_id="c1", attempt=2, missing=("key",)))
        await h.settled()
        assert await nights() == ["r1 03 b1", "r1 04 b1"]


async def test_a_change_of_dates_of_a_cancelled_booking_takes_no_room() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1"))
        await h.publish(cancelled("b1"))
        await h.publish(dates_changed("b1", first=2, last=4))
        await h.settled()
        assert await nights() == []
        assert [e.data.change_id for e in await h.published(OversellBlocked)] == ["c1"]


async def test_a_stop_sell_blocks_new_bookings_until_it_is_cleared() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        async with inventory.transaction("t1") as tx:
            assert await activate_stop_sell(tx, "p1", "double", day(2))
            assert not await activate_stop_sell(tx, "p1", "double", day(2))
        await h.publish(held("b1"))
        await h.publish(held("b2", first=3, last=4))
        await h.settled()
        assert [e.data.booking_id for e in await h.published(OversellBlocked)] == ["b1"]
        assert [e.data.booking_id for e in await h.published(AllocationCommitted)] == ["b2"]
        async with inventory.transaction("t1") as tx:
            assert await clear_stop_sell(tx, "p1", "double", day(2))
            assert not await clear_stop_sell(tx, "p1", "double", day(2))
        await h.publish(held("b3"))
        await h.settled()
        assert [e.data.booking_id for e in await h.published(AllocationCommitted)] == ["b2", "b3"]
        assert [(e.data.room_type, e.data.night) for e in await h.published(StopSellActivated)] == [("double", day(2))]
        assert [(e.data.room_type, e.data.night) for e in await h.published(StopSellCleared)] == [("double", day(2))]


async def test_a_stop_sell_blocks_a_change_into_its_night_and_not_one_that_keeps_it() -> None:
    async with Harness(inventory) as h:
        await h.publish(room())
        await h.settled()
        await h.publish(held("b1"))
        await h.settled()
        async with inventory.transaction("t1") as tx:
            await activate_stop_sell(tx, "p1", "double", day(2))
            await activate_stop_sell(tx, "p1", "double", day(4))
        await h.publish(dates_changed("b1", first=2, last=4, change_id="c1"))
        await h.publish(dates_changed("b1", first=3, last=5, change_id="c2"))
        await h.settled()
        assert [e.data.change_id for e in await h.published(AllocationReallocated)] == ["c1"]
        assert [e.data.change_id for e in await h.published(OversellBlocked)] == ["c2"]


async def test_tenants_with_the_same_names_have_rooms_of_their_own() -> None:
    async with Harness(inventory) as h:
        for tenant in ("t1", "t2"):
            await h.publish(room(), tenant=tenant)
        await h.settled()
        for tenant in ("t1", "t2"):
            await h.publish(held("b1"), tenant=tenant)
        await h.settled()
        assert sorted(e.tenant for e in await h.published(AllocationCommitted)) == ["t1", "t2"]
        await h.publish(cancelled("b1"), tenant="t2")
        await h.settled()
        assert [
            (str(t), str(b)) for t, b in await rows(inventory, "SELECT DISTINCT tenant, booking_id FROM nights")
        ] == [("t1", "b1")]
