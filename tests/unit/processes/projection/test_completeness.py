"""A read model is complete or says that it is not; its numbers are never given twice; readers never go back in time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from posthouse.app import app_of
from posthouse.broker import Progress
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock
from posthouse.errors import RebuildStopped
from posthouse.processes import Plan
from posthouse.processes.projection.clearing import clear
from posthouse.processes.projection.judging import found
from posthouse.processes.projection.rebuilding import is_as_far
from posthouse.testing import Harness, rehost
from posthouse.watch.status import drained
from tests.unit.processes.projection.listings import Hotel


def progress(*behind: int) -> Progress:
    return Progress(stored=100, pending=sum(behind), truncated=False, behind=behind)


def test_one_topic_ahead_does_not_make_up_for_another_behind() -> None:
    theirs = {"a": progress(9), "b": progress(1)}
    assert not is_as_far({"a": progress(0), "b": progress(5)}, theirs)
    assert is_as_far({"a": progress(5), "b": progress(1)}, theirs)


def test_one_partition_ahead_does_not_make_up_for_another_behind() -> None:
    theirs = {"a": progress(9, 1)}
    assert not is_as_far({"a": progress(0, 5)}, theirs)
    assert is_as_far({"a": progress(9, 1)}, theirs)
    assert not is_as_far({"a": progress(0, 5)}, {})
    assert is_as_far({"a": progress(0, 0)}, {})


def test_brokers_that_do_not_tell_of_partitions_are_compared_by_topic() -> None:
    mine, theirs = Progress(stored=9, pending=3, truncated=True), Progress(stored=9, pending=2, truncated=True)
    assert not is_as_far({"a": mine}, {"a": theirs})
    assert is_as_far({"a": theirs}, {"a": mine})


def test_a_model_is_whole_when_nothing_had_happened_or_the_log_has_it() -> None:
    empty, some = {"a": Progress(stored=0, pending=0, truncated=False)}, {"a": progress(0)}
    cut = {"a": msgspec.structs.replace(progress(0), truncated=True)}
    assert found(empty, start="latest", keeps=True, happened=0, unsent=0) == "whole"
    assert found(some, start="earliest", keeps=True, happened=100, unsent=0) == "whole"
    assert found(empty, start="earliest", keeps=True, happened=3, unsent=3) == "whole"
    assert found(some, start="latest", keeps=True, happened=0, unsent=0) == "partial"
    assert found(cut, start="earliest", keeps=True, happened=0, unsent=0) == "partial"
    assert found(empty, start="earliest", keeps=True, happened=3, unsent=0) == "partial"
    assert found(some, start="earliest", keeps=False, happened=3, unsent=0) == "partial"


async def test_a_model_that_is_added_later_says_that_its_history_is_missing_until_it_is_rebuilt(tmp_path: Path) -> None:
    clock = ManualClock()
    broker, url = MemoryBroker(clock=clock), f"sqlite:///{tmp_path / 'rooms.db'}"
    older = Hotel(reads=False)
    rehost(older.service, store=url, broker=broker, clock=clock)
    async with older.service.running():
        await older.list_room("r1", 10, 20)
        await drained(older.service)
    hotel = Hotel()
    rehost(
        hotel.service, store=url, broker=MemoryBroker(clock=clock), clock=clock
    )  # another log, which has nothing of it
    async with hotel.service.running():
        await hotel.list_room("r2", 10)
        async with asyncio.timeout(20.0):
            while await hotel.rows() != [("t1", "r2", 10, 1)]:  # noqa: ASYNC110 - the relay's and the consumer's doing
                await asyncio.sleep(0.01)
        (status,) = await app_of(hotel.service).projections.status()
        assert status.live is not None
        assert status.live.freshness.lag == 0.0
        assert status.live.freshness.partial
        assert not status.live.freshness.within
        await app_of(hotel.service).projections.rebuild("listings")
        (status,) = await app_of(hotel.service).projections.status()
        assert status.live is not None
        assert status.live.freshness.within
        assert await hotel.rows() == [("t1", "r1", 20, 2), ("t1", "r2", 10, 1)]


async def test_what_is_said_while_a_model_is_judged_does_not_make_up_for_what_is_missing(tmp_path: Path) -> None:
    clock = ManualClock()
    url = f"sqlite:///{tmp_path / 'rooms.db'}"
    older = Hotel(reads=False)
    rehost(older.service, store=url, broker=MemoryBroker(clock=clock), clock=clock)
    async with older.service.running():
        await older.list_room("r1", 10, 20)
        await drained(older.service)
    hotel = Hotel()

    class Busy(MemoryBroker):
        """Another log, which lacks that; more is said, and sent, while it is asked for the first time."""

        said = False

        async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
            if group.startswith("rooms.listings") and not self.said:
                self.said = True
                await hotel.list_room("r2", 10, 20, 30)
                async with asyncio.timeout(20.0):
                    while sum(one.stored for one in (await super().progress(group, topics)).values()) < 3:  # noqa: ASYNC110 - the relay is
                        await asyncio.sleep(0.01)
            return await super().progress(group, topics)

    busy = Busy(clock=clock)
    rehost(hotel.service, store=url, broker=busy, clock=clock)
    async with hotel.service.running():
        async with asyncio.timeout(20.0):
            while await hotel.rows() != [("t1", "r2", 30, 3)]:  # noqa: ASYNC110 - the relay's and the consumer's doing
                await asyncio.sleep(0.01)
        assert busy.said
        [live] = await app_of(hotel.service).store.projections.generations()
        assert live.history == "partial"


async def test_the_number_of_a_generation_that_was_given_up_is_not_given_again() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        hotel.poison = "r1"
        for number in (2, 3):
            with pytest.raises(RebuildStopped):
                await app_of(hotel.service).projections.rebuild("listings")
            assert (await app_of(hotel.service).projections.drop("listings")).number == number
        hotel.poison = ""
        assert (await app_of(hotel.service).projections.rebuild("listings")).generation == 4


async def test_clearing_that_comes_late_leaves_what_is_live() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        (live,) = await app_of(hotel.service).store.projections.generations()
        stale = msgspec.structs.replace(live, state="retired", drop_at=0.0)
        await clear(app_of(hotel.service).projections.wiring, hotel.listings, stale)
        assert await hotel.rows() == [("t1", "r1", 10, 1)]
        assert ("rooms.listings", "rooms.room") in harness.broker.log.readers


async def test_a_rebuild_does_not_go_on_when_the_log_was_cut_before_its_place(tmp_path: Path) -> None:
    hotel, clock = Hotel(), ManualClock()
    broker = EmbeddedBroker(tmp_path / "log.db", clock=clock)
    before = rehost(hotel.service, store="sqlite://", broker=broker, clock=clock)
    async with hotel.service.running():
        for number in range(8):
            await hotel.list_room(f"r{number}", 10, 20)
        await drained(hotel.service)
        hotel.poison = "r3"
        begun = asyncio.ensure_future(app_of(hotel.service).projections.rebuild("listings", Plan(source="log")))
        async with asyncio.timeout(20.0):
            while "following" not in [
                row.phase for row in app_of(hotel.service).projections.known if row.state == "building"
            ]:
                await asyncio.sleep(0.01)
                await app_of(hotel.service).projections.learn()
        begun.cancel()
        await asyncio.wait([begun])
        _cut_behind_our_back(tmp_path / "log.db")
        hotel.poison = ""
        with pytest.raises(RebuildStopped, match=r"dropped events of rooms.room that generation 2 had not read"):
            await app_of(hotel.service).projections.rebuild("listings", Plan(source="log"))
        assert await hotel.live() == 1
    hotel.service.hosted_by(before)


def _cut_behind_our_back(path: Path) -> None:
    with sqlite3.connect(path) as log:
        log.execute("DELETE FROM frames")
        log.execute("UPDATE heads SET pruned = stored")
        log.execute("UPDATE cursors SET acked = 0 WHERE grp LIKE '%.g2'")
