"""sync-service: desktops catch up, and what they did meanwhile is taken over or becomes a conflict."""

from __future__ import annotations

import msgspec
import pytest

from melmastoon.facts.billing import FolioOpened
from melmastoon.facts.house import HOME
from melmastoon.facts.housekeeping import RoomStatusChanged
from melmastoon.facts.iam import DeviceBound, DeviceUnbound
from melmastoon.facts.sync import ConflictRecorded, CursorAdvanced
from melmastoon.sync import sync
from melmastoon.sync.commands import Delta, Mutation, pull, push
from posthouse import Reject
from posthouse.testing import Harness
from tests.unit.melmastoon.samples import confirmed, held

BOUND = DeviceBound(device_id="d1", user_id="u1", property_id="p1")
FOLIO = FolioOpened(folio_id="fol-b1", booking_id="b1", currency="USD")
CHECK_IN = Mutation(mutation_id="m1", thing="booking", thing_id="b1", wanted="check_in", based_on=2)


def _dirty(room_id: str, property_id: str) -> RoomStatusChanged:
    return RoomStatusChanged(room_id=room_id, property_id=property_id, before="clean", after="dirty")


async def _said(house: Harness, *facts: object) -> None:
    for fact in facts:
        await house.publish(fact)
        await house.settled()


async def _pull(since: int, device_id: str = "d1", most: int = 500) -> list[Delta]:
    async with sync.transaction("t1") as tx:
        return await pull(tx, device_id, since=since, most=most)


class Desk:
    """What a mutation would do, counted; refuses what it is told to."""

    def __init__(self, *refused: str) -> None:
        self.done: list[str] = []
        self._refused = refused

    async def __call__(self, mutation: Mutation) -> None:
        if mutation.wanted in self._refused:
            raise Reject("not now")
        self.done.append(mutation.mutation_id)


async def test_a_desktop_pulls_what_it_has_not_seen_in_order_and_its_cursor_advances() -> None:
    async with Harness(sync) as house:
        await _said(house, BOUND, held(), confirmed(), FOLIO, _dirty("r1", "p1"))
        first = await _pull(0, most=3)
        assert [(delta.position, delta.thing, delta.thing_id) for delta in first] == [
            (1, "booking", "b1"),
            (2, "booking", "b1"),
            (3, "folio", "fol-b1"),
        ]
        assert first[0].fact == "melmastoon.reservation.booking.held.v1"
        assert '"booking_id":"b1"' in first[0].body
        await house.settled()
        assert await house.published(CursorAdvanced) == [], "nothing was applied yet, as far as the desktop said"
        assert [delta.thing for delta in await _pull(3)] == ["room"]
        assert await _pull(3) != []
        assert await _pull(4) == []
        await house.settled()
        advanced = [(e.data.device_id, e.data.cursor, e.data.pulled) for e in await house.published(CursorAdvanced)]
        assert advanced == [("d1", 3, 3), ("d1", 4, 1)]
        await house.assert_replay_safe()


async def test_a_desktop_that_lost_its_memory_may_pull_everything_again() -> None:
    async with Harness(sync) as house:
        await _said(house, BOUND, held(), confirmed())
        await _pull(2)
        assert [len(await _pull(since)) for since in (1, 0)] == [1, 2]
        await house.settled()
        assert [e.data.cursor for e in await house.published(CursorAdvanced)] == [2], "the cursor never goes back"


async def test_a_desktop_sees_its_own_house_alone() -> None:
    async with Harness(sync) as house:
        await _said(house, BOUND, DeviceBound(device_id="d2", user_id="u1", property_id="p2"), held(), FOLIO)
        await _said(house, _dirty("r1", "p1"), _dirty("r2", "p2"))
        assert [delta.thing_id for delta in await _pull(0)] == ["b1", "fol-b1", "r1"]
        assert [delta.thing_id for delta in await _pull(0, "d2")] == ["r2"]


async def test_what_cannot_be_placed_yet_is_shown_rather_than_lost() -> None:
    async with Harness(sync) as house:
        await _said(house, BOUND, FOLIO)
        assert [delta.thing_id for delta in await _pull(0)] == ["fol-b1"]


async def test_a_device_that_is_not_bound_gets_nothing() -> None:
    async with Harness(sync) as house:
        await _said(house, BOUND, held(), DeviceUnbound(device_id="d1", user_id="u1", reason="lost"))
        for device_id in ("d1", "d9"):
            with pytest.raises(Reject, match=f"{device_id} is not a bound device"):
                await _pull(0, device_id)
            with pytest.raises(Reject, match=f"{device_id} is not a bound device"):
                await push("t1", device_id, CHECK_IN, Desk())


async def test_a_cursor_from_the_future_is_refused() -> None:
    async with Harness(sync) as house:
        await _said(house, BOUND, held())
        with pytest.raises(Reject, match="which has not happened: pull from 0"):
            await _pull(2)


async def test_what_was_done_offline_is_taken_over_once() -> None:
    desk = Desk()
    async with Harness(sync) as house:
        await _said(house, BOUND, held(), confirmed())
        for _ in range(2):
            assert await push("t1", "d1", CHECK_IN, desk) == "applied"
        await house.settled()
        assert await house.published(ConflictRecorded) == []
    assert desk.done == ["m1"]


async def test_what_was_done_offline_says_so_in_its_envelope_and_the_conflict_that_came_of_it_does_not() -> None:
    async def record(mutation: Mutation) -> None:
        async with sync.transaction("t1") as tx:
            tx.publish(CursorAdvanced(device_id="d1", cursor=1, pulled=1), idempotency_key="sync:cursor:d1:1")

    async with Harness(sync) as house:
        await _said(house, BOUND, held(), confirmed())
        assert await push("t1", "d1", CHECK_IN, record) == "applied"
        late = msgspec.structs.replace(CHECK_IN, mutation_id="m2", based_on=0)
        assert await push("t1", "d1", late, record) == "conflict"
        await house.settled()
        (advanced,) = await house.published(CursorAdvanced)
        (conflict,) = await house.published(ConflictRecorded)
    assert advanced.metadata.offline_replay
    assert not conflict.metadata.offline_replay
    assert advanced.metadata.residency == conflict.metadata.residency == HOME


async def test_what_changed_meanwhile_makes_a_conflict_and_the_servers_state_stands() -> None:
    desk = Desk()
    async with Harness(sync) as house:
        await _said(house, BOUND, held(), confirmed(), _dirty("r1", "p1"), confirmed())
        for _ in range(2):
            assert await push("t1", "d1", CHECK_IN, desk) == "conflict"
        await house.settled()
        [conflict] = await house.published(ConflictRecorded)
        assert conflict.data == ConflictRecorded(
            conflict_id="conflict-m1",
            device_id="d1",
            thing="booking",
            thing_id="b1",
            wanted="check_in",
            based_on=2,
            changed_at=4,
        )
    assert desk.done == []


async def test_what_the_server_refuses_is_a_conflict_too() -> None:
    async with Harness(sync) as house:
        await _said(house, BOUND, held(), confirmed())
        assert await push("t1", "d1", CHECK_IN, Desk("check_in")) == "conflict"
        assert await push("t1", "d1", CHECK_IN, Desk()) == "conflict", "its first outcome stands"
        await house.settled()
        assert [(e.data.based_on, e.data.changed_at) for e in await house.published(ConflictRecorded)] == [(2, 2)]
