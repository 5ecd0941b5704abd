"""A read model is made anew beside the live one, and swapped in."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from posthouse import Event, Policy
from posthouse.app import app_of
from posthouse.broker import Frame, Verdict
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock
from posthouse.errors import BrokerUnavailable, ConfigurationError, RebuildStopped
from posthouse.events import BINARY, decode_any
from posthouse.processes import Model, Plan
from posthouse.processes.projection import Progress, bulk
from posthouse.service import Envelope
from posthouse.store.projections import Generation
from posthouse.testing import Harness, rehost
from posthouse.watch.status import drained
from tests.kit.waiting import eventually
from tests.unit.processes.projection.listings import Hotel

Source = Literal["log", "streams"]
both = pytest.mark.parametrize("source", ["log", "streams"])


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 4)


@both
@pytest.mark.parametrize("lists", [True, False])
async def test_a_rebuilt_model_has_what_the_old_one_had_and_goes_on(source: Source, lists: bool) -> None:
    hotel = Hotel(lists=lists)
    async with Harness(hotel.service) as harness:
        for number in range(5):
            await hotel.list_room(f"r{number}", 10, 20, 30)
        await harness.settled()
        before = await hotel.rows()
        done = await app_of(hotel.service).projections.rebuild("listings", Plan(source=source))
        assert (done.generation, done.replaced, done.source, done.events) == (2, 1, source, 15)
        assert await hotel.live() == 2
        assert await hotel.rows() == before == [("t1", f"r{n}", 30, 3) for n in range(5)]
        await hotel.list_room("r0", 99)
        await harness.settled()
        assert (await hotel.rows())[0] == ("t1", "r0", 99, 4)


async def test_streams_are_the_source_where_they_hold_every_event_and_the_log_is_not_read_again() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10, 20)
        await harness.settled()
        assert (await app_of(hotel.service).projections.rebuild("listings")).source == "streams"
        assert harness.broker.log.readers["rooms.listings.g2", "rooms.room"].started == 2


async def test_a_log_whose_beginning_is_gone_is_refused_unless_a_part_is_enough(tmp_path: Path) -> None:
    hotel, clock = Hotel(), ManualClock()
    broker = EmbeddedBroker(tmp_path / "log.db", clock=clock, retention=60.0)
    before = rehost(hotel.service, store="sqlite://", broker=broker, clock=clock)
    async with hotel.service.running():
        await hotel.list_room("r1", 10)
        await drained(hotel.service)
        clock.advance(61.0)
        assert await broker.prune() == 1
        await hotel.list_room("r2", 10)
        await drained(hotel.service)
        with pytest.raises(
            ConfigurationError, match=r"in part only: .* oldest events of rooms.room; .*--from streams.*--partial"
        ):
            await app_of(hotel.service).projections.rebuild("listings", Plan(source="log"))
        assert await hotel.live() == 1
        await app_of(hotel.service).projections.rebuild("listings", Plan(source="log", partial=True))
        assert await hotel.rows() == [("t1", "r2", 10, 1)]
    hotel.service.hosted_by(before)


async def test_a_rebuild_goes_on_from_where_the_one_before_really_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes over has looked before the other one's last page, and feeds it all the same only once."""
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        for number in range(5):
            await hotel.list_room(f"r{number}", 10, 20)
        await harness.settled()
        hotel.poison = "r1"
        with pytest.raises(RebuildStopped):
            await app_of(hotel.service).projections.rebuild("listings")
        table = app_of(hotel.service).store.projections
        stale = await table.generations()
        hotel.poison = "r4"
        with pytest.raises(RebuildStopped):
            await app_of(hotel.service).projections.rebuild("listings")
        hotel.poison = ""
        looks, look = [stale], table.generations

        async def looked_too_early() -> Sequence[Generation]:
            return looks.pop() if looks else await look()

        monkeypatch.setattr(table, "generations", looked_too_early)
        await app_of(hotel.service).projections.rebuild("listings")
        assert await hotel.rows() == [("t1", f"r{n}", 20, 2) for n in range(5)]


async def test_a_rebuild_that_was_taken_over_stops() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        for number in range(5):
            await hotel.list_room(f"r{number}", 10, 20)
        await harness.settled()

        stealing: list[asyncio.Task[None]] = []

        async def steal() -> None:
            async with app_of(hotel.service).store.begin() as tx:
                await tx.execute("UPDATE posthouse_generation SET owner = 'another' WHERE number = 2")

        def told(_: Progress) -> None:
            stealing.append(asyncio.create_task(steal()))

        with pytest.raises(RebuildStopped, match="is not ours to build any more"):
            await app_of(hotel.service).projections.rebuild("listings", told=told)
        await asyncio.gather(*stealing)
        assert await hotel.live() == 1


async def test_the_live_generation_is_read_and_fed_while_another_is_half_built() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await hotel.list_room("r2", 10)
        await harness.settled()
        hotel.poison = "r2"
        with pytest.raises(RebuildStopped):
            await app_of(hotel.service).projections.rebuild("listings")
        hotel.poison = ""
        await hotel.list_room("r2", 20)
        await harness.settled()
        assert await hotel.live() == 1
        assert await hotel.rows() == [("t1", "r1", 10, 1), ("t1", "r2", 20, 2)]
        await app_of(hotel.service).projections.rebuild("listings")
        assert await hotel.live() == 2
        await harness.settled()
        assert await hotel.rows() == [("t1", "r1", 10, 1), ("t1", "r2", 20, 2)]


async def test_what_is_published_only_after_the_bulk_read_is_not_fed_twice() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        publish = harness.broker.publish
        harness.broker.publish = _away  # type: ignore[method-assign]  # the broker is away, for the relay alone
        await hotel.list_room("r1", 20)
        await hotel.list_room("r2", 5)
        await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
        assert await hotel.rows() == [("t1", "r1", 20, 2), ("t1", "r2", 5, 1)]
        harness.broker.publish = publish  # type: ignore[method-assign]
        harness.clock.advance(60.0)
        await harness.settled()
        assert len(await harness.published(hotel.RoomPriced)) == 1
        assert await hotel.rows() == [("t1", "r1", 20, 2), ("t1", "r2", 5, 1)]
        assert hotel.count(2) == 3
        await hotel.list_room("r1", 30)
        await harness.settled()
        assert await hotel.rows() == [("t1", "r1", 30, 3), ("t1", "r2", 5, 1)]


@both
async def test_a_rebuild_shows_how_far_it_is(source: Source) -> None:
    hotel, told = Hotel(), list[Progress]()
    async with Harness(hotel.service) as harness:
        for number in range(5):
            await hotel.list_room(f"r{number}", 10, 20)
        await harness.settled()
        await app_of(hotel.service).projections.rebuild("listings", Plan(source=source), told.append)
    assert (told[-1].generation, told[-1].done, told[-1].total) == (2, 10, 10)
    assert [one.done for one in told] == sorted(one.done for one in told)
    if source == "streams":
        assert [one.done for one in told[:3]] == [4, 8, 10]
        assert [one.phase for one in told[:3]] == ["bulk"] * 3


async def test_a_rebuild_that_failed_goes_on_where_it_was() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        for number in range(5):
            await hotel.list_room(f"r{number}", 10, 20)
        await harness.settled()
        hotel.poison = "r3"
        with pytest.raises(RebuildStopped, match=r"fold failed on 4 events from .*: ValueError: r3"):
            await app_of(hotel.service).projections.rebuild("listings")
        assert await hotel.live() == 1
        (_, begun) = await app_of(hotel.service).store.projections.generations()
        assert (begun.state, begun.phase, begun.read, begun.until <= harness.clock.now()) == (
            "building",
            "bulk",
            4,
            True,
        )
        hotel.poison, told = "", list[Progress]()
        before = hotel.count(2)
        done = await app_of(hotel.service).projections.rebuild("listings", told=told.append)
        assert (done.generation, done.events) == (2, 10)
        assert hotel.count(2) - before == 6
        assert (told[0].done, told[0].fresh) == (8, 4)
        assert await hotel.rows() == [("t1", f"r{n}", 20, 2) for n in range(5)]


@pytest.mark.parametrize("wire", ["structured", "binary", "melmastoon"])
async def test_events_of_every_format_come_as_the_group_would_bring_them(wire: Envelope) -> None:
    hotel, given = Hotel(wire=wire), dict[int, list[Event[object]]]()
    hotel.watch = lambda events, model: given.setdefault(model.generation, []).extend(events)
    async with Harness(hotel.service) as harness:
        for number in range(3):
            await hotel.list_room(f"r{number}", 10, 20)
        await harness.settled()
        await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
        assert await hotel.rows() == [("t1", f"r{n}", 20, 2) for n in range(3)]
    # Streams keep events as they were said, before the outbox gave them a number and the id of its row.
    unnumbered = [
        msgspec.structs.replace(event, sequence=None, metadata=msgspec.structs.replace(event.metadata, outbox_id=None))
        for event in given[1]
    ]
    assert given[2] == unnumbered


async def test_events_of_several_formats_are_read_in_their_order() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        for number in range(7):
            await hotel.list_room(f"r{number}", 10, 20)
        await harness.settled()
        stored = (await app_of(hotel.service).store.streams.read_all()).events
        async with app_of(hotel.service).store.begin() as tx:
            for one in (stored[4], stored[9]):
                headers, body = BINARY.encode(decode_any(one.headers, one.body))
                sql = "UPDATE posthouse_stream_event SET headers = ?, body = ? WHERE position = ?"
                await tx.execute(sql, (msgspec.json.encode(headers).decode(), body, one.position))
        done = await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
        assert done.events == 14
        assert [event for number, event, _ in hotel.seen if number == 2] == [one.event_id for one in stored]
        assert await hotel.rows() == [("t1", f"r{n}", 20, 2) for n in range(7)]


async def test_an_event_that_cannot_be_read_stops_a_rebuild_and_is_named() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        for number in range(5):
            await hotel.list_room(f"r{number}", 10, 20)
        await harness.settled()
        stored = (await app_of(hotel.service).store.streams.read_all()).events[7]
        mend = "UPDATE posthouse_stream_event SET body = ? WHERE position = ?"
        async with app_of(hotel.service).store.begin() as tx:
            await tx.execute(mend, (stored.body.replace(b'"price":20', b'"price":"x"'), stored.position))
        named = r"version 2 of room 'r3' of tenant 't1' cannot be read: not a valid RoomPriced"
        with pytest.raises(RebuildStopped, match=named):
            await app_of(hotel.service).projections.rebuild("listings")
        assert hotel.count(2) == 4  # the page before it
        async with app_of(hotel.service).store.begin() as tx:
            await tx.execute(mend, (stored.body, stored.position))
        await app_of(hotel.service).projections.rebuild("listings")
        assert hotel.count(2) == 10


async def test_a_rebuild_that_was_cut_off_in_the_closing_phase_feeds_nothing_twice() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        for number in range(5):
            await hotel.list_room(f"r{number}", 10, 20)
        await harness.settled()
        hotel.poison = "r4"
        with pytest.raises(RebuildStopped):
            await app_of(hotel.service).projections.rebuild("listings")
        (_, begun) = await app_of(hotel.service).store.projections.generations()
        await app_of(hotel.service).store.projections.lease(begun.projection, 2, "me", 30.0)
        assert await app_of(hotel.service).store.projections.cover(msgspec.structs.replace(begun, owner="me"), ["room"])
        await app_of(hotel.service).store.projections.lease(begun.projection, 2, "me", 0.0)
        hotel.poison = ""
        await hotel.list_room("r4", 30)  # behind what is covered: the group brings it
        await hotel.list_room("r9", 1)
        await app_of(hotel.service).projections.rebuild("listings")
        await harness.settled()
        assert await hotel.rows() == [
            *(("t1", f"r{n}", 20, 2) for n in range(4)), ("t1", "r4", 30, 3), ("t1", "r9", 1, 1),
        ]  # fmt: skip


async def test_two_rebuilds_at_once_are_one() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        await _begin(hotel, owner="another-machine", until=harness.clock.now() + 30)
        with pytest.raises(RebuildStopped, match="generation 2 is being built by another-machine: wait"):
            await app_of(hotel.service).projections.rebuild("listings")
        harness.clock.advance(31.0)
        assert (await app_of(hotel.service).projections.rebuild("listings")).generation == 2


async def test_a_rebuild_of_another_version_or_source_is_not_gone_on_with() -> None:
    hotel = Hotel(version=3)
    async with Harness(hotel.service):
        await _begin(hotel)
        with pytest.raises(ConfigurationError) as raised:
            await app_of(hotel.service).projections.rebuild("listings", Plan(source="log"))
        assert "it was begun by version 1, this is version 3: drop it first" in raised.value.problems[0]
        assert "it was begun from the streams, not from the log" in raised.value.problems[1]
        dropped = await app_of(hotel.service).projections.drop("listings")
        assert dropped.number == 2
        assert [row.number for row in await app_of(hotel.service).store.projections.generations()] == [1]


async def test_a_rebuild_that_was_begun_is_dropped_with_its_tables_and_its_group() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        hotel.poison = "r1"
        with pytest.raises(RebuildStopped):
            await app_of(hotel.service).projections.rebuild("listings")
        assert await _tables(hotel) == ["listings_listing_1", "listings_listing_2"]
        await app_of(hotel.service).projections.drop("listings")
        assert await _tables(hotel) == ["listings_listing_1"]
        assert {group for group, _ in harness.broker.log.readers} == {"rooms.listings"}
        with pytest.raises(RebuildStopped, match="no rebuild is under way"):
            await app_of(hotel.service).projections.drop("listings")
        with pytest.raises(RebuildStopped, match="generation 1 is live"):
            await app_of(hotel.service).projections.drop("listings", 1)
        with pytest.raises(RebuildStopped, match="there is no generation 7"):
            await app_of(hotel.service).projections.drop("listings", 7)


async def test_the_old_generation_goes_after_its_grace_and_not_before() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        await app_of(hotel.service).projections.rebuild("listings", Plan(drop_after=60.0))
        await harness.advance(50.0)
        assert await _tables(hotel) == ["listings_listing_1", "listings_listing_2"]
        await harness.advance(11.0)
        await eventually(lambda: _gone(hotel, 1))
        assert await _tables(hotel) == ["listings_listing_2"]
        assert {group for group, _ in harness.broker.log.readers} == {"rooms.listings.g2"}
        assert {consumer for consumer, _ in (await app_of(hotel.service).store.counts()).applied} <= {
            "rooms.listings.g2"
        }


async def test_an_old_generation_that_is_kept_stays_until_it_is_dropped() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        done = await app_of(hotel.service).projections.rebuild("listings", Plan(drop_after=None))
        assert done.kept
        await harness.advance(10_000.0)
        assert await _tables(hotel) == ["listings_listing_1", "listings_listing_2"]
        await app_of(hotel.service).projections.drop("listings", 1)
        assert await _tables(hotel) == ["listings_listing_2"]


async def test_generations_are_numbered_on() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        for number in (2, 3, 4):
            assert (await app_of(hotel.service).projections.rebuild("listings")).generation == number
            await hotel.list_room("r1", number)
            await harness.settled()
        assert await hotel.rows() == [("t1", "r1", 4, 4)]


async def test_a_dead_event_stops_the_swap_unless_it_is_accepted() -> None:
    hotel = Hotel(policy=Policy(max_attempts=1))
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await hotel.list_room("r2", 10)
        await harness.settled()
        hotel.poison = "r1"
        with pytest.raises(RebuildStopped, match=r"rooms.listings.g2: 1 events are dead.*--consumer rooms.listings.g2"):
            await app_of(hotel.service).projections.rebuild("listings", Plan(source="log"))
        assert await hotel.live() == 1
        await app_of(hotel.service).projections.rebuild("listings", Plan(with_held=True))
        assert await hotel.rows() == [("t1", "r2", 10, 1)]


async def test_a_broker_without_a_log_is_refused_with_a_way_out() -> None:
    hotel = Hotel()
    async with Harness(hotel.service) as harness:
        await _without_history(harness.broker)
        with pytest.raises(ConfigurationError, match=r"the memory broker keeps none; .*--from streams"):
            await app_of(hotel.service).projections.rebuild("listings", Plan(source="log"))
        assert [row.number for row in await app_of(hotel.service).store.projections.generations()] == [1]


async def test_events_of_no_stream_are_refused_as_a_source_and_the_log_is_named() -> None:
    hotel = Hotel()

    @hotel.service.event("room.cleaned.v1", key="room_id")
    class RoomCleaned(msgspec.Struct):
        room_id: str

    @hotel.listings.on(RoomCleaned)
    async def cleaned(event: Event[RoomCleaned], model: Model) -> None: ...

    async with Harness(hotel.service) as harness:
        with pytest.raises(
            ConfigurationError, match=r"in no aggregate .*: rooms.room.cleaned.v1. Rebuild it from the broker"
        ):
            await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
        assert (await app_of(hotel.service).projections.rebuild("listings")).source == "log"
        await _without_history(harness.broker)
        with pytest.raises(ConfigurationError, match="let the owner of the events say them again"):
            await app_of(hotel.service).projections.rebuild("listings")


async def test_handlers_of_one_key_are_fed_in_order_across_a_page() -> None:
    hotel = Hotel(lists=False)
    async with Harness(hotel.service) as harness:
        for number in range(4):
            await hotel.list_room(f"r{number}", 1, 2, 3)
        await harness.settled()
        hotel.seen.clear()
        await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
        assert await hotel.rows() == [("t1", f"r{n}", 3, 3) for n in range(4)]


async def test_tenants_are_fed_apart_and_all_of_them() -> None:
    hotel = Hotel()
    tenants: list[set[str]] = []
    hotel.watch = lambda events, model: tenants.append({event.tenant for event in events})
    async with Harness(hotel.service) as harness:
        for tenant in ("t1", "t2", "t3"):
            await hotel.list_room("r1", 7, tenant=tenant)
        await harness.settled()
        await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
        assert await hotel.rows() == [(tenant, "r1", 7, 1) for tenant in ("t1", "t2", "t3")]
    assert all(len(those) == 1 for those in tenants)


async def test_a_rebuild_of_nothing_is_done_at_once() -> None:
    hotel = Hotel()
    async with Harness(hotel.service):
        assert (await app_of(hotel.service).projections.rebuild("listings")).events == 0
        assert await hotel.live() == 2


async def test_an_unknown_projection_is_named_with_a_suggestion() -> None:
    hotel = Hotel()
    async with Harness(hotel.service):
        with pytest.raises(ConfigurationError, match=r"rooms has no projection 'listing'. Did you mean 'listings'"):
            await app_of(hotel.service).projections.rebuild("listing")


async def _begin(hotel: Hotel, owner: str = "", until: float = 0.0) -> None:
    async with app_of(hotel.service).store.begin() as tx:
        begun = Generation(
            projection="rooms.listings", number=2, version=1, source="streams", owner=owner, until=until,
            tables=("listings_listing_2",),
        )  # fmt: skip
        assert await app_of(hotel.service).store.projections.begin(tx, begun)
        await hotel.tables(Model("listings", 2, tx))


async def _tables(hotel: Hotel) -> Sequence[object]:
    async with app_of(hotel.service).store.begin() as tx:
        found = await tx.execute("SELECT name FROM sqlite_master WHERE name LIKE 'listings_%' AND type = 'table'")
        return sorted(str(name) for (name,) in found)


async def _gone(hotel: Hotel, number: int) -> bool:
    return number not in [row.number for row in await app_of(hotel.service).store.projections.generations()]


async def _without_history(broker: MemoryBroker) -> None:
    broker.sheet = msgspec.structs.replace(broker.sheet, history=False)


async def _away(frames: Sequence[Frame]) -> Sequence[Verdict]:
    raise BrokerUnavailable("away")


async def test_the_collector_is_as_it_was_after_a_rebuild() -> None:
    hotel, before = Hotel(), gc.get_threshold()
    during: list[tuple[int, int, int]] = []
    async with Harness(hotel.service) as harness:
        await hotel.list_room("r1", 10)
        await harness.settled()
        hotel.watch = lambda events, model: during.append(gc.get_threshold())
        hotel.poison = "r1"
        with pytest.raises(RebuildStopped):
            await app_of(hotel.service).projections.rebuild("listings")
        assert gc.get_threshold() == before
        hotel.poison = ""
        await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
    assert gc.get_threshold() == before
    assert len(during) == 2


@pytest.mark.parametrize("source", ["streams", "log"])
async def test_what_a_handler_says_about_a_person_is_in_no_operators_log(source: Literal["streams", "log"]) -> None:
    hotel = Hotel(policy=Policy(max_attempts=1))

    def refuse(events: Sequence[Event[object]], model: Model) -> None:
        if not model.live:
            raise ValueError(f"no room for {getattr(events[-1].data, 'host')}")  # noqa: B009 - made in a function

    hotel.watch = refuse
    async with Harness(hotel.service) as harness:
        async with hotel.service.transaction("t1") as tx:
            await hotel.rooms.append(
                tx, "r1", [hotel.RoomListed(room_id="r1", price=1, host="Ada Lovelace")], expected=0
            )
        await harness.settled()
        with pytest.raises(RebuildStopped) as stopped:
            await app_of(hotel.service).projections.rebuild("listings", Plan(source=source))
        kept = [action.outcome for action in await app_of(hotel.service).actions.find()]
    assert "Ada" not in f"{stopped.value}{kept}"
    assert [outcome[:7] for outcome in kept] == ["failed:"]
