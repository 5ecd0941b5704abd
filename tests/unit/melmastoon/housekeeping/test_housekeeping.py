"""housekeeping-service: whether a room is ready, and who sees to it."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace

from melmastoon.facts.housekeeping import (
    RoomStatus,
    RoomStatusChanged,
    TaskAssigned,
    TaskCompleted,
    TaskCreated,
)
from melmastoon.facts.maintenance import TicketClosed, TicketOpened
from melmastoon.facts.staff import Duty, ShiftClosed, ShiftOpened
from melmastoon.housekeeping import housekeeping
from melmastoon.housekeeping.commands import complete_task, put_back, schedule_task, take_off
from melmastoon.housekeeping.rooms import BECOMES, Happening, becomes
from melmastoon.housekeeping.tasks import least_busy
from posthouse import Reject
from posthouse.testing import Harness
from tests.unit.melmastoon.stay import check_out_started, checked_in, reallocated, room


def opened(staff_id: str, *, property_id: str = "p1", duty: Duty = "housekeeping", number: int = 1) -> ShiftOpened:
    return ShiftOpened(staff_id=staff_id, shift_id=f"{staff_id}-{number}", property_id=property_id, duty=duty)


def closed(staff_id: str, *, property_id: str = "p1", number: int = 1) -> ShiftClosed:
    return ShiftClosed(
        staff_id=staff_id, shift_id=f"{staff_id}-{number}", property_id=property_id, duty="housekeeping", minutes=480
    )


def broke(ticket_id: str = "k1", *, out_of_order: bool = True) -> TicketOpened:
    return TicketOpened(
        ticket_id=ticket_id, property_id="p1", room_id="r1", summary="no water", out_of_order=out_of_order
    )


def repaired(ticket_id: str = "k1", *, room_back: bool = True) -> TicketClosed:
    return TicketClosed(
        ticket_id=ticket_id, property_id="p1", room_id="r1", parts=(), labour_minutes=30, room_back=room_back
    )


async def statuses(h: Harness) -> list[str]:
    return [f"{e.data.before} {e.data.after}" for e in await h.published(RoomStatusChanged)]


async def by_room(h: Harness) -> dict[str, list[str]]:
    """What became of each room, in order."""
    found: dict[str, list[str]] = {}
    for event in await h.published(RoomStatusChanged):
        found.setdefault(event.data.room_id, []).append(event.data.after)
    return found


async def assigned(h: Harness) -> list[tuple[str, str]]:
    return [(e.data.task_id, e.data.staff_id) for e in await h.published(TaskAssigned)]


async def test_a_room_is_occupied_then_dirty_then_clean_again() -> None:
    async with Harness(housekeeping) as h:
        await h.publish(room())
        await h.publish(opened("s1"))
        await h.settled()
        await h.publish(checked_in())
        await h.publish(check_out_started())
        await h.publish(check_out_started(attempt=2))
        await h.settled()
        (task,) = await h.published(TaskCreated)
        assert (task.data.task_id, task.data.kind, task.data.booking_id) == ("tsk-b1", "turnover", "b1")
        assert await assigned(h) == [("tsk-b1", "s1")]
        async with housekeeping.transaction("t1") as tx:
            assert await complete_task(tx, "tsk-b1", staff_id="s1")
        async with housekeeping.transaction("t1") as tx:
            assert not await complete_task(tx, "tsk-b1", staff_id="s2")
        await h.settled()
        (done,) = await h.published(TaskCompleted)
        assert (done.data.room_id, done.data.staff_id) == ("r1", "s1")
        assert await statuses(h) == ["clean occupied", "occupied dirty", "dirty clean"]
        await h.assert_replay_safe()


@pytest.mark.parametrize("first", ["the guest", "the move"])
async def test_a_guest_who_stays_longer_in_another_room_leaves_the_old_one_dirty(first: str) -> None:
    async with Harness(housekeeping) as h:
        come, moved = checked_in(), reallocated(first=1, last=5, room_id="r2")
        await h.publish(room("r1"))
        await h.publish(room("r2"))
        await h.settled()
        if first == "the guest":
            await h.publish(come)
            await h.settled()
        h.clock.advance(60)
        await h.publish(moved)
        await h.settled()
        if first == "the move":
            h.clock.advance(-60)
            await h.publish(come)  # said before the guest moved, and heard of later
            await h.settled()
            h.clock.advance(60)
        (task,) = await h.published(TaskCreated)
        assert (task.data.task_id, task.data.room_id, task.data.kind) == ("tsk-b1-r1", "r1", "turnover")
        assert await by_room(h) == {"r1": ["occupied", "dirty"], "r2": ["occupied"]}
        await h.publish(replace(check_out_started(), room_id="r2"))
        await h.settled()
        assert await by_room(h) == {"r1": ["occupied", "dirty"], "r2": ["occupied", "dirty"]}
        await h.assert_replay_safe()


async def test_a_guest_who_leaves_from_a_room_that_nobody_heard_of_leaves_both_dirty() -> None:
    async with Harness(housekeeping) as h:
        await h.publish(checked_in())
        await h.publish(replace(check_out_started(), room_id="r2"))
        await h.settled()
        await h.publish(reallocated(first=1, last=5, room_id="r2"))
        await h.settled()
        assert await by_room(h) == {"r1": ["occupied", "dirty"], "r2": ["occupied", "dirty"]}
        assert len(await h.published(TaskCreated)) == 2


async def test_rooms_that_were_swapped_before_the_guest_came_are_no_move() -> None:
    async with Harness(housekeeping) as h:
        await h.publish(reallocated(first=2, last=5, room_id="r2"))
        await h.settled()
        h.clock.advance(60)
        await h.publish(checked_in())
        await h.settled()
        assert await by_room(h) == {"r1": ["occupied"]}
        assert await h.published(TaskCreated) == []


@pytest.mark.parametrize("first", ["work", "staff"])
async def test_work_finds_somebody_whichever_of_the_two_comes_first(first: str) -> None:
    async with Harness(housekeeping) as h:
        facts: list[object] = [check_out_started(), opened("s1")]
        for fact in facts if first == "work" else reversed(facts):
            assert await assigned(h) == []
            await h.publish(fact)
            await h.settled()
        assert await assigned(h) == [("tsk-b1", "s1")]


async def test_work_goes_to_whoever_has_the_least_in_the_house_and_cleans() -> None:
    async with Harness(housekeeping) as h:
        await h.publish(opened("s1"))
        await h.publish(opened("s2"))
        await h.publish(opened("s3", duty="front_desk"))
        await h.publish(opened("s4", property_id="p2"))
        await h.settled()
        for number in range(4):
            await h.publish(check_out_started(f"b{number}"))
            await h.settled()
        assert [staff for _, staff in await assigned(h)] == ["s1", "s2", "s1", "s2"]


async def test_who_goes_home_leaves_their_work_to_others() -> None:
    async with Harness(housekeeping) as h:
        await h.publish(opened("s1"))
        await h.publish(check_out_started())
        await h.settled()
        await h.publish(closed("s1"))
        await h.settled()
        await h.publish(opened("s2"))
        await h.settled()
        assert await assigned(h) == [("tsk-b1", "s1"), ("tsk-b1", "s2")]
        async with housekeeping.transaction("t1") as tx:
            await complete_task(tx, "tsk-b1", staff_id="s2")
        await h.publish(closed("s2"))
        await h.publish(opened("s3"))
        await h.settled()
        assert len(await assigned(h)) == 2


async def test_what_is_left_behind_is_shared_by_those_who_stay() -> None:
    async with Harness(housekeeping) as h:
        await h.publish(opened("s1"))
        await h.settled()
        for number in range(2):
            await h.publish(check_out_started(f"b{number}"))
        await h.settled()
        assert [staff for _, staff in await assigned(h)] == ["s1", "s1"]
        await h.publish(opened("s2"))
        await h.publish(opened("s3"))
        await h.settled()
        await h.publish(closed("s1"))
        await h.settled()
        assert sorted(dict(await assigned(h)).values()) == ["s2", "s3"]


async def test_a_guest_who_left_does_not_make_the_room_dirty_again_by_another_attempt() -> None:
    async with Harness(housekeeping) as h:
        await h.publish(check_out_started())
        await h.settled()
        async with housekeeping.transaction("t1") as tx:
            await complete_task(tx, "tsk-b1", staff_id="s1")
        await h.publish(check_out_started(attempt=2))
        await h.settled()
        assert await statuses(h) == ["clean dirty", "dirty clean"]


async def test_a_task_that_there_is_not_cannot_be_completed() -> None:
    async with Harness(housekeeping):
        with pytest.raises(Reject, match="no task tsk-9"):
            async with housekeeping.transaction("t1") as tx:
                await complete_task(tx, "tsk-9", staff_id="s1")


async def test_work_can_be_planned_once() -> None:
    async with Harness(housekeeping) as h:
        async with housekeeping.transaction("t1") as tx:
            assert await schedule_task(tx, "spring-r1", property_id="p1", room_id="r1")
            assert not await schedule_task(tx, "spring-r1", property_id="p1", room_id="r1")
        await h.settled()
        assert [(e.data.task_id, e.data.kind) for e in await h.published(TaskCreated)] == [("spring-r1", "scheduled")]
        assert await statuses(h) == []


async def test_a_broken_room_is_out_of_order_until_its_last_repair_and_comes_back_dirty() -> None:
    async with Harness(housekeeping) as h:
        await h.publish(broke("k0", out_of_order=False))
        await h.publish(repaired("k0", room_back=False))
        await h.publish(broke("k1"))
        await h.publish(broke("k2"))
        await h.publish(repaired("k1", room_back=False))
        await h.settled()
        assert await statuses(h) == ["clean out_of_order"]
        await h.publish(check_out_started())
        await h.settled()
        async with housekeeping.transaction("t1") as tx:
            await complete_task(tx, "tsk-b1", staff_id="s1")
        assert await statuses(h) == ["clean out_of_order"]
        await h.publish(repaired("k2"))
        await h.settled()
        assert await statuses(h) == ["clean out_of_order", "out_of_order dirty"]
        assert [e.data.task_id for e in await h.published(TaskCreated)] == ["tsk-b1", "tsk-k2"]
        async with housekeeping.transaction("t1") as tx:
            await complete_task(tx, "tsk-k2", staff_id="s1")
        await h.settled()
        assert (await statuses(h))[-1] == "dirty clean"


async def test_a_room_is_taken_off_and_put_back() -> None:
    async with Harness(housekeeping) as h:
        async with housekeeping.transaction("t1") as tx:
            await take_off(tx, property_id="p1", room_id="r1")
        async with housekeeping.transaction("t1") as tx:
            await put_back(tx, property_id="p1", room_id="r1")
        await h.settled()
        assert await statuses(h) == ["clean out_of_service", "out_of_service dirty"]


def test_the_table_of_states_knows_every_happening_and_nothing_else() -> None:
    assert set(BECOMES) == set(get_args(Happening))
    states = set(get_args(RoomStatus))
    for before in BECOMES.values():
        assert set(before) | set(before.values()) <= states


def test_nothing_but_a_repair_ends_a_repair() -> None:
    for happening in get_args(Happening):
        assert (becomes("out_of_order", happening) == "out_of_order") == (happening != "repaired")


def test_the_first_by_name_is_chosen_among_equals_and_nobody_where_nobody_is() -> None:
    assert least_busy(["b", "a"], {}) == "a"
    assert least_busy(["b", "a"], {"a": 1}) == "b"
    assert least_busy([], {}) is None
