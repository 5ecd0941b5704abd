"""Versions side by side: published together, applied once, lifted, watched."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sqlite3
from datetime import date
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from posthouse import App, Event, Payload, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Delivery
from posthouse.clock import ManualClock
from posthouse.contracts.retirement import RETIRED, retired_file
from posthouse.errors import ConfigurationError, ContractError
from posthouse.events import decode_any
from posthouse.governance.cutover import evidence_of
from posthouse.governance.listing import catalogue_of
from posthouse.opened import builder_of
from posthouse.receiving.claim import NEWER_WITHIN
from posthouse.seam import EventContext
from posthouse.seam.frames import frame_of
from posthouse.store import VersionUse
from posthouse.testing import Harness
from posthouse.watch.status import status
from tests.kit.waiting import eventually

Topics = Literal["aggregate", "subject"]


class V1(Payload):
    stay: str
    guest: str


class V2(Payload):
    stay: str
    first: str
    last: str = ""


class V3(Payload):
    stay: str
    first: str
    last: str = ""
    nights: int = 0


@dataclasses.dataclass
class Hotel:
    """A hotel that publishes v3, v2 and v1 of one fact together, and a desk whose handlers are for a test to say."""

    hotel: Service
    desk: Service
    seen: list[tuple[str, object]] = dataclasses.field(default_factory=list)

    def handles(self, *events: type[object], consumer: str | None = None) -> None:
        for event in events:

            async def take(given: Event[object], tx: Tx) -> None:
                self.seen.append((given.type[-2:], given.data))

            self.desk.on(event, consumer=consumer)(take)

    def lifts(self) -> None:
        self.desk.upcast(V1, to=V2)(second)
        self.desk.upcast(V2, to=V3)(third)


def second(old: V1) -> V2:
    first, last = old.guest.split(" ")
    return V2(stay=old.stay, first=first, last=last)


def third(old: V2) -> V3:
    return V3(stay=old.stay, first=old.first, last=old.last, nights=-1)


def as_second(new: V3) -> V2:
    return V2(stay=new.stay, first=new.first, last=new.last)


def as_first(new: V2) -> V1:
    return V1(stay=new.stay, guest=f"{new.first} {new.last}")


def made(topics: Topics = "aggregate", *, together: bool = True, key: str | None = "stay") -> Hotel:
    hotel, desk = Service("hotel", topics=topics), Service("desk", topics=topics)
    hotel.event("stay.booked.v1", key=key, deprecated=date(2027, 1, 1))(V1)
    hotel.event("stay.booked.v2", key=key)(V2)
    hotel.event("stay.booked.v3", key=key)(V3)
    if together:
        hotel.downcast(V3, to=V2)(as_second)
        hotel.downcast(V2, to=V1)(as_first)
    return Hotel(hotel, desk)


ADA = V3(stay="s1", first="Ada", last="Byron", nights=3)


async def test_one_publish_writes_every_version_under_one_key_with_one_fact_in_common() -> None:
    house = made()
    async with Harness(house.hotel) as harness:
        first = await harness.publish(ADA)
        await harness.settled()
        [new], [middle], [old] = await harness.published(V3), await harness.published(V2), await harness.published(V1)
        assert (new.id, new.data) == (first, ADA)
        assert (middle.data, old.data) == (as_second(ADA), as_first(as_second(ADA)))
        assert [event.sequence for event in (new, middle, old)] == [1, 2, 3]
        assert {event.key for event in (new, middle, old)} == {"s1"}
        assert {event.correlation for event in (new, middle, old)} == {first}
        assert {event.time for event in (new, middle, old)} == {new.time}
        assert {(e.extensions["dualof"], e.extensions["dualversion"]) for e in (new, middle, old)} == {(first, "3")}


async def test_in_topics_of_their_own_each_version_has_the_numbers_of_its_key() -> None:
    house = made("subject")
    async with Harness(house.hotel) as harness:
        for _ in range(3):
            await harness.publish(ADA)
        await harness.settled()
        for version in (V1, V2, V3):
            assert [event.sequence for event in await harness.published(version)] == [1, 2, 3]


def test_all_versions_of_a_fact_became_true_at_the_same_time() -> None:
    class Ticking(ManualClock):
        def now(self) -> float:
            self.advance(1)
            return super().now()

    house = made()
    rows = builder_of(house.hotel, Ticking(), Settings()).build(ADA, EventContext(tenant="t1"))
    assert len({decode_any(row.headers, row.body).time for row in rows}) == 1


async def test_an_older_version_that_is_published_itself_brings_only_those_below_it() -> None:
    house = made()
    async with Harness(house.hotel) as harness:
        await harness.publish(V2(stay="s", first="a", last="b"))
        await harness.publish(V1(stay="s", guest="c d"))
        await harness.settled()
        assert await harness.published(V3) == []
        assert [event.extensions.get("dualversion") for event in await harness.published(V2)] == ["2"]
        assert [event.extensions.get("dualversion") for event in await harness.published(V1)] == ["2", None]


async def test_a_fact_that_cannot_be_told_in_the_old_version_is_not_published_at_all() -> None:
    house = made(together=False)

    @house.hotel.downcast(V3, to=V2)
    def refuse(new: V3) -> V2:
        raise LookupError("there is no such thing in v2")

    async with Harness(house.hotel) as harness:
        with pytest.raises(ContractError, match="there is no such thing in v2"):
            await harness.publish(ADA)
        assert (await status([house.hotel])).unsent == {"hotel": 0}
        assert (await app_of(house.hotel).store.counts()).committed == {}


async def test_a_downcast_keeps_the_key() -> None:
    house = made(together=False)
    house.hotel.downcast(V3, to=V2)(lambda new: V2(stay="another", first=new.first))
    async with Harness(house.hotel) as harness:
        with pytest.raises(ContractError, match="under the key 'another' beside 's1': a downcast keeps the key"):
            await harness.publish(ADA)


@pytest.mark.parametrize("topics", ["aggregate", "subject"])
async def test_the_same_intent_twice_is_one_fact_in_every_version(topics: Topics) -> None:
    house = made(topics)
    async with Harness(house.hotel) as harness:
        for _ in range(2):
            async with house.hotel.transaction("t1") as tx:
                tx.publish(ADA, idempotency_key="booking 7")
        await harness.settled()
        assert [len(await harness.published(version)) for version in (V1, V2, V3)] == [1, 1, 1]
        assert (await harness.published(V1))[0].idempotency_key == "booking 7"


async def test_adding_to_a_transaction_of_ones_own_gives_one_id_for_each_fact(tmp_path: Path) -> None:
    house = made()
    file = tmp_path / "hotel.db"
    App(house.hotel, store=f"sqlite:///{file}", broker="memory://")
    await app_of(house.hotel).open()
    connection = sqlite3.connect(file)
    ids = house.hotel.outbox.add_now(connection, ADA, V1(stay="s2", guest="x y"), tenant="t1")
    connection.commit()
    rows = connection.execute("SELECT event_id, body FROM posthouse_outbox ORDER BY id").fetchall()
    connection.close()
    assert [decode_any({}, body).type[-2:] for _, body in rows] == ["v3", "v2", "v1", "v1"]
    assert list(ids) == [rows[0][0], rows[3][0]]
    await house.hotel.aclose()


async def test_a_timer_fires_in_every_version_and_is_cancelled_in_every_version() -> None:
    house = made()
    async with Harness(house.hotel) as harness:
        async with house.hotel.transaction("t1") as tx:
            tx.publish(ADA, after=60, timer="reminder")
            tx.publish(ADA, after=60, timer="other")
        async with house.hotel.transaction("t1") as tx:
            assert await tx.cancel("reminder")
            assert not await tx.cancel("reminder")
        await harness.advance(61)
        assert [len(await harness.published(version)) for version in (V1, V2, V3)] == [1, 1, 1]


async def test_a_timer_that_is_replaced_leaves_no_old_version_behind() -> None:
    house = made()
    async with Harness(house.hotel) as harness:
        for fact in (ADA, V1(stay="s", guest="c d")):
            async with house.hotel.transaction("t1") as tx:
                tx.publish(fact, after=60, timer="reminder")
        await harness.advance(61)
        assert [len(await harness.published(version)) for version in (V1, V2, V3)] == [1, 0, 0]


async def test_a_timer_that_is_set_and_cancelled_in_one_transaction_leaves_nothing() -> None:
    house = made()
    async with Harness(house.hotel) as harness:
        async with house.hotel.transaction("t1") as tx:
            tx.publish(ADA, after=60, timer="reminder")
            assert await tx.cancel("reminder")
        assert await app_of(house.hotel).store.timers.pending() == []
        await harness.advance(61)
        assert await harness.published(V1) == []


# Applied once.


@pytest.mark.parametrize("key", ["stay", None])
async def test_a_consumer_of_several_versions_in_one_topic_applies_a_fact_once_in_the_newest(key: str | None) -> None:
    house = made(key=key)
    house.handles(V1, V2, V3)
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(ADA)
        await harness.advance(NEWER_WITHIN + 1)
        figures = await harness.settled()
        assert house.seen == [("v3", ADA)]
        assert [line.difference for line in figures.lines] == [0]
        assert await harness.held(house.desk) == []


async def test_a_consumer_of_several_versions_in_topics_of_their_own_applies_a_fact_once_in_the_newest() -> None:
    house = made("subject")
    house.handles(V1, V2, V3)
    async with Harness(house.hotel, house.desk) as harness:
        for number in range(10):
            await harness.publish(V3(stay=f"s{number % 3}", first=str(number)))
        await harness.settled()
        for _ in range(4):
            await harness.advance(NEWER_WITHIN + 1)
        assert sorted(seen.first for version, seen in house.seen if isinstance(seen, V3)) == sorted(map(str, range(10)))
        assert len(house.seen) == 10
        assert await harness.held(house.desk) == []


async def test_an_older_version_is_applied_when_the_newer_one_does_not_come() -> None:
    house = made("subject")
    house.handles(V1, V3)
    async with Harness(house.desk) as harness:
        *_, old = builder_of(house.hotel, harness.clock, Settings()).build(ADA, EventContext(tenant="t1"))
        await harness.broker.publish([frame_of(msgspec.structs.replace(old, sequence=1))])
        await harness.settled()
        [waiting] = await harness.held(house.desk)
        assert (waiting.state, waiting.reason) == ("retrying", "a newer version of the same fact is on its way")
        await harness.advance(NEWER_WITHIN - 1)
        assert house.seen == []
        await harness.advance(2)
        assert house.seen == [("v1", as_first(as_second(ADA)))]
        assert await harness.held(house.desk) == []


@pytest.mark.parametrize(("key", "waits"), [("stay", False), (None, True)])
async def test_in_one_topic_an_older_version_waits_only_where_there_is_no_order(key: str | None, waits: bool) -> None:
    house = made(key=key)
    house.handles(V1, V3)
    async with Harness(house.desk) as harness:
        *_, old = builder_of(house.hotel, harness.clock, Settings()).build(ADA, EventContext(tenant="t1"))
        await harness.broker.publish([frame_of(msgspec.structs.replace(old, sequence=1 if key else None))])
        await harness.settled()
        assert [held.state for held in await harness.held(house.desk)] == (["retrying"] if waits else [])
        await harness.advance(NEWER_WITHIN + 1)
        assert [version for version, _ in house.seen] == ["v1"]


async def test_a_consumer_that_joined_late_does_not_begin_behind_a_version_that_waits() -> None:
    house = made("subject")
    house.desk = Service("desk")
    App(house.desk, settings=Settings(start="latest"))
    house.handles(V1, V3)
    async with Harness(house.desk) as harness:
        *_, beside = builder_of(house.hotel, harness.clock, Settings()).build(ADA, EventContext(tenant="t1"))
        [alone] = builder_of(house.hotel, harness.clock, Settings()).build(
            V1(stay="s1", guest="c d"), EventContext(tenant="t1")
        )
        frames = [frame_of(msgspec.structs.replace(row, sequence=n)) for n, row in enumerate((beside, alone), 5)]
        executor = harness._runtimes[0].consumers[0]._executor
        deliveries = [Delivery(frame=frame, position="1", stored_at=harness.clock.now()) for frame in frames]
        await executor.execute([executor.decoder.from_delivery(delivery) for delivery in deliveries])
        assert [held.state for held in await harness.held(house.desk)] == ["retrying", "blocked"]
        harness.clock.advance(NEWER_WITHIN + 1)

        async def both() -> bool:
            return len(house.seen) == 2

        await eventually(both, "both are applied")
        assert house.seen == [("v1", as_first(as_second(ADA))), ("v1", V1(stay="s1", guest="c d"))]


@pytest.mark.parametrize("wire", ["structured", "binary", "melmastoon"])
async def test_every_wire_format_carries_what_versions_have_in_common(
    wire: Literal["structured", "binary", "melmastoon"],
) -> None:
    house = made()
    hotel = Service("hotel", envelope=wire)
    hotel.downcast(V3, to=V2)(as_second)
    events = [
        decode_any(row.headers, row.body)
        for row in builder_of(hotel, ManualClock(), Settings()).build(ADA, EventContext(tenant="t1"))
    ]
    assert [event.extensions for event in events] == [{"dualof": events[0].id, "dualversion": "3"}] * 2
    assert house.hotel.declared.published_beside == {
        "hotel.stay.booked.v2": "hotel.stay.booked.v3",
        "hotel.stay.booked.v1": "hotel.stay.booked.v2",
    }


async def test_consumers_of_one_version_each_apply_it_each() -> None:
    house = made()
    house.handles(V1, consumer="old")
    house.handles(V3, consumer="new")
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(ADA)
        await harness.settled()
        assert sorted(version for version, _ in house.seen) == ["v1", "v3"]


async def test_a_fact_that_comes_again_is_not_applied_again_in_any_version() -> None:
    house = made("subject")
    house.handles(V1, V3)
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(ADA)
        await harness.settled()
        await harness.advance(NEWER_WITHIN + 1)
        await harness.assert_replay_safe()
        assert len(house.seen) == 1


async def test_a_fact_published_in_one_version_costs_the_inbox_nothing_more() -> None:
    house = made(together=False)
    house.handles(V1, V3)
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(ADA)
        await harness.settled()
        async with app_of(house.desk).store.begin() as tx:
            assert (await tx.execute("SELECT count(*) FROM posthouse_inbox")).scalar() == 0


# Lifted.


async def test_a_handler_of_the_newest_version_gets_the_old_ones_lifted_through_the_chain() -> None:
    house = made("subject", together=False)
    house.handles(V3)
    house.lifts()
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(V1(stay="a", guest="Ada Byron"))
        await harness.publish(V2(stay="b", first="Bob"))
        await harness.publish(ADA)
        await harness.settled()
    lifted = V3(stay="a", first="Ada", last="Byron", nights=-1)
    assert sorted(house.seen, key=str) == [("v1", lifted), ("v2", V3(stay="b", first="Bob", nights=-1)), ("v3", ADA)]


async def test_old_versions_are_lifted_to_the_nearest_handler_whatever_is_declared_first() -> None:
    house = made(together=False)
    house.lifts()
    house.handles(V3)
    house.handles(V2)
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(V1(stay="a", guest="Ada Byron"))
        await harness.settled()
    assert house.seen == [("v1", V2(stay="a", first="Ada", last="Byron"))]


async def test_a_version_with_a_handler_of_its_own_is_not_lifted() -> None:
    house = made(together=False)
    house.handles(V1, V3)
    house.lifts()
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(old := V1(stay="a", guest="Ada Byron"))
        await harness.settled()
    assert house.seen == [("v1", old)]


def test_what_a_handler_reads_of_a_version_that_is_lifted_is_not_known() -> None:
    house = made(together=False)
    house.lifts()

    @house.desk.on(V3, reads=["stay"])
    async def take(event: Event[V3], tx: Tx) -> None: ...

    [handler] = catalogue_of([house.hotel, house.desk]).handlers
    assert {reading.subject[-2:]: reading.fields for reading in handler.reads} == {
        "v1": None,
        "v2": None,
        "v3": ("stay",),
    }


async def test_topics_of_lifted_versions_are_subscribed_to() -> None:
    house = made("subject")
    house.handles(V3)
    house.lifts()
    assert app_of(house.desk).opened.topology().groups == {
        "desk": ["hotel.stay.booked.v1", "hotel.stay.booked.v2", "hotel.stay.booked.v3"]
    }


async def test_a_lifted_version_that_was_published_beside_is_applied_once() -> None:
    house = made()
    house.handles(V3)
    house.lifts()
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(ADA)
        await harness.settled()
        assert house.seen == [("v3", ADA)]


async def test_an_upcast_that_raises_leaves_the_event_held_as_a_breach_of_contract() -> None:
    house = made(together=False)
    house.handles(V3)
    house.lifts()
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(V1(stay="a", guest="Ada"))
        await harness.settled()
        [held] = await harness.held(house.desk)
        assert (held.state, held.reason) == ("dead", "contract")
        assert "second, which makes hotel.stay.booked.v2 of hotel.stay.booked.v1, failed: ValueError" in held.error


async def test_a_missing_link_is_refused_at_the_start() -> None:
    house = made()
    house.handles(V3)
    house.desk.upcast(V1, to=V2)(second)
    with pytest.raises(ConfigurationError, match=r"v1 is lifted to hotel\.stay\.booked\.v2, which no handler takes"):
        async with Harness(house.hotel, house.desk):
            pass


def test_one_function_begins_at_each_version() -> None:
    house = made()
    house.lifts()
    with pytest.raises(ConfigurationError, match=r"v1 is turned into hotel\.stay\.booked\.v2 already"):
        house.desk.upcast(V1, to=V3)(lambda old: V3(stay=old.stay, first=old.guest))


def test_a_service_publishes_beside_only_what_it_owns() -> None:
    house = made(together=False)
    with pytest.raises(ConfigurationError, match="'desk' cannot publish what it does not own"):
        house.desk.downcast(V2, to=V1)(as_first)


# Watched.


async def test_it_is_known_who_published_and_applied_which_version_and_when() -> None:
    house = made()
    house.handles(V1)
    async with Harness(house.hotel, house.desk) as harness:
        began = harness.clock.now()
        await harness.publish(ADA)
        await harness.settled()
        await harness.advance(11)
        await harness.advance(11)
        published = [s for s in await app_of(house.hotel).store.version_usage.seen() if s.role == "published"]
        assert published == [
            VersionUse("published", "hotel", f"hotel.stay.booked.v{number}", began, began) for number in (1, 2, 3)
        ]
        applied = [s for s in await app_of(house.desk).store.version_usage.seen() if s.role == "applied"]
        assert applied == [VersionUse("applied", "desk", "hotel.stay.booked.v1", began, began)]


async def test_only_versions_that_may_come_to_an_end_are_watched_at_their_producer() -> None:
    class Ended(Payload):
        stay: str

    class Closed(Payload):
        stay: str

    house = made()
    house.hotel.event("stay.ended.v1")(Ended)
    house.hotel.event("stay.closed.v1", deprecated=date(2030, 1, 1))(Closed)
    async with Harness(house.hotel) as harness:
        for fact in (Ended(stay="s"), Closed(stay="s")):
            await harness.publish(fact)
        await harness.settled()
        await harness.advance(11)
        await harness.advance(11)
        published = [s.subject for s in await app_of(house.hotel).store.version_usage.seen() if s.role == "published"]
        assert published == ["hotel.stay.closed.v1"]


async def test_what_the_broker_refused_was_not_published() -> None:
    house = made("subject")
    async with Harness(house.hotel) as harness:
        del harness.broker.log.topics["hotel.stay.booked.v1"]
        await harness.publish(ADA)

        async def sent() -> bool:
            counts = await app_of(house.hotel).store.counts()
            return counts.stuck == 1 and sum(counts.unsent.values()) == 1

        await eventually(sent, "two versions are sent and one is refused")
        harness._stop.set()
        await asyncio.gather(*harness._tasks)
        published = [
            s.subject[-2:] for s in await app_of(house.hotel).store.version_usage.seen() if s.role == "published"
        ]
        assert published == ["v2", "v3"]


async def test_what_was_seen_last_is_written_when_a_service_stops() -> None:
    house = made()
    house.handles(V3)
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(ADA)
        await harness.settled()
        assert await app_of(house.desk).store.version_usage.seen() == []
        harness._stop.set()
        await asyncio.gather(*harness._tasks)
        assert [seen.subject for seen in await app_of(house.desk).store.version_usage.seen()] == [
            "hotel.stay.booked.v3"
        ]


async def test_events_that_are_held_and_not_given_up_stand_in_the_way_of_a_retirement() -> None:
    house = made(together=False)
    house.handles(V3)
    house.lifts()
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(V1(stay="a", guest="Ada"))
        await harness.settled()
        both = [house.hotel, house.desk]
        assert (await evidence_of("hotel.stay.booked.v1", both, [], [])).held == {"desk": 1}
        assert (await evidence_of("hotel.stay.booked.v2", both, [], [])).held == {}
        [held] = await harness.held(house.desk)
        await house.desk.held.skip(held.id)
        assert (await evidence_of("hotel.stay.booked.v1", both, [], [])).held == {}


async def test_a_version_that_was_applied_in_another_one_does_not_count_as_used() -> None:
    house = made()
    house.handles(V1, V3)
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(ADA)
        await harness.settled()
        await harness.advance(11)
        await harness.advance(11)
        used = {s.subject for s in await app_of(house.desk).store.version_usage.seen() if s.role == "applied"}
        assert used == {"hotel.stay.booked.v3"}


async def test_a_version_past_its_date_is_warned_of_at_the_start_and_shown_in_the_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = made()
    with caplog.at_level(logging.WARNING):
        async with Harness(house.hotel) as harness:
            figures = await harness.settled()
    words = "hotel.stay.booked.v1 is deprecated since 2027-01-01: move to hotel.stay.booked.v2"
    assert f"hotel: {words}" in caplog.messages
    assert words in figures.notes


def test_a_retired_version_cannot_be_declared_by_its_owner_and_still_be_read_by_others(tmp_path: Path) -> None:
    (tmp_path / RETIRED).write_bytes(retired_file({"hotel.stay.booked.v1": date(2027, 1, 2)}))
    hotel = Service("hotel", schemas=tmp_path)
    with pytest.raises(ConfigurationError, match=r"hotel\.stay\.booked\.v1 was retired on 2027-01-02"):
        hotel.event("stay.booked.v1")
    hotel.event("stay.booked.v2")
    Service("desk", schemas=tmp_path).external("hotel.stay.booked.v1")(V1)


async def test_a_version_older_than_the_inbox_remembers_stops_its_key_instead_of_running_twice() -> None:
    house = made()
    house.handles(V3)
    async with Harness(house.hotel, house.desk) as harness:
        await harness.publish(ADA)
        await harness.settled()
        frames = [stored.frame for stored in harness.broker.log.topics["hotel.stay"]]
        async with app_of(house.desk).store.begin() as tx:  # as a consumer that comes to these numbers only now
            await tx.execute("DELETE FROM posthouse_head")
        harness.clock.advance(31 * 86_400)
        await app_of(house.desk).store.inbox.purge(30 * 86_400, 100)
        await harness.broker.publish(frames[:1])

        async def is_dead() -> bool:
            return [(one.state, one.reason) for one in await harness.held(house.desk)] == [("dead", "rejected")]

        await eventually(is_dead, "the old event is held")
        [held] = await harness.held(house.desk)
        assert "older than the inbox remembers" in held.error
        assert len(house.seen) == 1
