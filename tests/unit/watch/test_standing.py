"""The figures of stores and brokers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from posthouse import App, Event, Model, Payload, Policy, Run, Service, Tx
from posthouse.app import app_of, apps_of
from posthouse.broker import Progress
from posthouse.opened import worker_of
from posthouse.resend import Choice, resend
from posthouse.store import Counts, Gauges, HeldFilter
from posthouse.stores.sqlite import counting
from posthouse.testing import Harness
from posthouse.testing.store_contract.samples import entry, held
from posthouse.testing.store_contract.steps import hold
from posthouse.watch.figures import STATES
from posthouse.watch.scale import Scaling, Work
from posthouse.watch.standing import REMEMBERED, Memory, Standing
from posthouse.watch.table import TABLE
from tests.kit.samples import Found
from tests.kit.servers.ports import free_port
from tests.unit.processes.saga import hotel

T = TypeVar("T")

shop = Service("shop")
ledger = Service("ledger")


@shop.event("order.placed.v1", key="key")
class OrderPlaced(Payload):
    key: str
    number: int = 0


@ledger.on(OrderPlaced, policy=Policy(max_attempts=1))
async def book(event: Event[OrderPlaced], tx: Tx) -> None:
    if event.data.number < 0:
        raise ValueError("no")


class RoomPriced(Payload):
    key: str
    number: int = 0


async def stop(harness: Harness) -> None:
    """Let all its workers end."""
    harness._stop.set()
    await asyncio.gather(*harness._tasks)


async def look(standing: Standing) -> Found:
    return Found(await standing.samples())


def standing_of(*services: Service) -> Standing:
    return Standing(apps_of(services))


async def test_the_figures_follow_events_to_their_ends() -> None:
    async with Harness(shop, ledger) as harness:
        for number in (1, -1, 2):
            await harness.publish(OrderPlaced(key="k", number=number))
        await harness.publish(OrderPlaced(key="other"))
        await harness.settled()
        found = await look(standing_of(shop, ledger))
        line = {"service": "ledger", "consumer": "ledger", "topic": "shop.order"}
        assert found.one("outbox_committed_total", service="shop", topic="shop.order") == 4
        assert found.one("outbox_unsent", service="shop", topic="shop.order") == 0
        assert found.one("outbox_sent_total", service="shop", topic="shop.order") == 4
        assert found.one("consumer_applied_total", **line) == 2
        assert found.one("held", **line, state="dead") == 1
        assert found.one("held", **line, state="blocked") == 1
        assert found.one("consumer_in_flight", **line) == 0
        assert found.one("consumer_lag_seconds", **line) == 0.0
        assert (found.one("consumer_unaccounted", **line), found.one("consumer_unknown", **line)) == (0, 0)
        assert found.of("store_up") == found.of("broker_up") == [1, 1]


async def test_every_sample_is_a_store_figure_and_none_is_said_twice() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k"))
        await harness.settled()
        found = await look(standing_of(shop, ledger))
        places = [(one.metric, *sorted(one.labels.items())) for one in found.all]
        assert len(places) == len(set(places))
        assert {TABLE[one.metric].source for one in found.all} == {"store"}


async def test_what_is_not_known_of_the_producer_cannot_be_told() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k"))
        await harness.settled()
        alone = await look(standing_of(ledger))
        assert (alone.one("consumer_unknown"), alone.of("consumer_unaccounted")) == (1, [])
        assert alone.one("consumer_in_flight") == 0


async def test_more_than_was_said_is_below_zero_and_less_above() -> None:
    async with Harness(shop, ledger) as harness:
        for number in range(5):
            await harness.publish(OrderPlaced(key="k", number=number))
        await harness.settled()
        standing = standing_of(shop, ledger)
        for change, expected in ((2, -2), (-5, 3), (3, 0)):
            async with app_of(ledger).store.begin() as tx:
                await tx.execute("UPDATE posthouse_applied SET applied = applied + :change", {"change": change})
            found = await look(standing)
            assert (found.one("consumer_unaccounted"), found.one("consumer_unknown")) == (expected, 0)


async def test_repeats_that_stand_still_at_the_broker_may_hide_a_loss_so_nobody_can_tell() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k"))
        await harness.settled()
        await stop(harness)
        await harness.broker.publish([stored.frame for stored in harness.broker.log.topics["shop.order"]])
        standing = standing_of(shop, ledger)
        first, second = await look(standing), await look(standing)
        assert (first.one("consumer_unknown"), second.one("consumer_unknown")) == (0, 1), "it may have been moving"
        assert second.one("consumer_unaccounted") == 0


async def test_a_look_reads_all_figures_once_however_often_the_equation(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k"))
        await harness.settled()
        await stop(harness)
        await harness.broker.publish([stored.frame for stored in harness.broker.log.topics["shop.order"]])
        read = list[str]()
        for app in apps_of([shop, ledger]):
            for name in ("gauges", "sums"):
                monkeypatch.setattr(app.store, name, noted(read, name, getattr(app.store, name)))
        await look(standing_of(shop, ledger))
        assert read.count("gauges") == 2, "one of each store"
        assert read.count("sums") > 4, "what stands still at the broker is read again"


def noted(read: list[str], name: str, asked: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    """The same, with a note of each call."""

    async def call(**options: float) -> T:
        read.append(name)
        return await asked(**options)

    return call


async def test_what_is_only_estimated_is_no_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of transactions that were rolled back count as committed, until everything was sent."""
    monkeypatch.setattr(counting, "MOST", 3)
    async with Harness(shop) as harness:
        await harness.publish(OrderPlaced(key="k"))
        await harness.settled()
        await stop(harness)
        standing = standing_of(shop)
        for number in range(5):
            await harness.publish(OrderPlaced(key="k", number=number))
        found = await look(standing)
        assert (found.one("outbox_unsent"), found.one("outbox_sent_total")) == (5, 1)
        assert found.of("outbox_committed_total") == []


async def test_a_topic_behind_a_backlog_too_long_to_count_is_unknown_and_not_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "MOST", 3)
    market = Service("market")

    @market.event("order.placed.v1", key="key")
    class Ordered(Payload):
        key: str

    @market.event("price.changed.v1", key="key")
    class Priced(Payload):
        key: str

    @market.on(Priced)
    async def quote(event: Event[Priced], tx: Tx) -> None:
        pass

    async with Harness(market) as harness:
        await stop(harness)
        for _ in range(5):
            await harness.publish(Ordered(key="k"))
        await harness.publish(Priced(key="k"))
        found = await look(standing_of(market))
        assert found.one("outbox_unsent", topic="market.order") > 0
        assert found.of("outbox_unsent", topic="market.price") == []
        assert found.of("consumer_in_flight") == []


async def test_ages_grow_while_nobody_works() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k"))
        await harness.settled()
        await stop(harness)
        await harness.publish(OrderPlaced(key="k"))
        async with shop.transaction("t1") as tx:
            tx.publish(OrderPlaced(key="later"), after=30)
        standing = standing_of(shop, ledger)
        harness.clock._now += 100.0
        first = await look(standing)
        harness.clock._now += 100.0
        second = await look(standing)
        for metric, value in (
            ("outbox_oldest_unsent_seconds", 100.0),
            ("consumer_lag_seconds", 100.0),
            ("timers_overdue_seconds", 70.0),
        ):
            assert max(first.of(metric)) == pytest.approx(value), metric
            assert max(second.of(metric)) == pytest.approx(value + 100), metric
        assert (first.one("outbox_unsent", topic="shop.order"), first.one("consumer_in_flight")) == (1, 1)
        assert first.one("timers", service="shop") == 1


async def test_every_held_state_has_a_number_and_an_age() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.settled()
        store, now = app_of(ledger).store, harness.clock.now()
        for number, state in enumerate(STATES):
            one = held(entry(number + 1, topic="shop.order", key=state), state)
            one = msgspec.structs.replace(one, consumer="ledger", first_at=now - 10 * (number + 1), next_at=now - 5)
            await hold(store, one)
        await hold(store, msgspec.structs.replace(held(entry(None, topic="shop.order"), "skipped"), consumer="ledger"))
        await stop(harness)
        found = await look(standing_of(shop, ledger))
        line = {"service": "ledger", "consumer": "ledger", "topic": "shop.order"}
        for number, state in enumerate(STATES):
            assert found.one("held", **line, state=state) == 1, (
                "the quarantined one is not even readable, nor is one that was skipped"
            )
            assert found.one("held_oldest_seconds", consumer="ledger", state=state) == 10 * (number + 1)
        assert found.one("held_runnable_seconds", consumer="ledger") == 5
        harness.clock._now += 60
        later = await look(standing_of(shop, ledger))
        assert later.one("held_oldest_seconds", consumer="ledger", state="dead") == 60 + found.one(
            "held_oldest_seconds", consumer="ledger", state="dead"
        )
        assert later.one("held_runnable_seconds", consumer="ledger") == 65


async def test_what_no_service_declares_any_more_is_counted_among_the_others() -> None:
    async with Harness(shop, ledger) as harness:
        for number in (-1, -2):
            await harness.publish(OrderPlaced(key=str(number), number=number))
        await harness.settled()
        async with app_of(ledger).store.begin() as tx:
            await tx.execute("UPDATE posthouse_held SET consumer = 'evil\n' || id, topic = 'gone' || id")
        found = await look(standing_of(shop, ledger))
        assert found.one("held", service="ledger", consumer="(others)", topic="(others)", state="dead") == 2
        assert sum(found.of("held")) == 2
        assert {
            label for one in found.all for label in one.labels.values() if "evil" in label or "gone" in label
        } == set()


async def test_dead_letters_go_by_the_name_of_their_topic_and_the_service_that_writes_them() -> None:
    async with Harness(shop, ledger) as harness:
        await harness.publish(OrderPlaced(key="k", number=-1))
        await harness.settled()
        found = await look(standing_of(shop, ledger))
        assert found.one("outbox_committed_total", service="ledger", topic="shop.order.dlq") == 1


async def test_workers_are_counted_by_part_and_work_that_nobody_does_is_shown() -> None:
    async with Harness(shop, ledger) as harness:
        await stop(harness)
        await harness.publish(OrderPlaced(key="k"))
        standing = standing_of(shop, ledger)
        alone = await look(standing)
        assert (alone.one("workers", service="shop", part="relay"), alone.one("consumer_workers")) == (0, 0)
        assert alone.one("unattended", service="shop", part="relay") == 1
        assert alone.one("unattended", service="ledger", part="consumers") == 1
        assert alone.one("unattended", service="ledger", part="timers") == 0
        for service, parts in ((shop, ["relay"]), (ledger, ["relay", "consumers"])):
            worker = msgspec.structs.replace(worker_of([service]), parts=parts)
            await app_of(service).store.workers.beat(worker, keep=60)
        tended = await look(standing)
        assert (tended.one("workers", service="shop", part="relay"), tended.one("consumer_workers")) == (1, 1)
        assert tended.one("workers", service="ledger", part="consumers") == 1
        assert sum(tended.of("unattended")) == 0
        harness.clock._now += 3600
        assert (await look(standing)).one("unattended", service="shop", part="relay") == 1, "they fell silent"


async def test_a_read_model_that_nobody_feeds_becomes_stale() -> None:
    rooms = Service("rooms")
    rooms.event("order.placed.v1", key="key")(RoomPriced)
    listings = rooms.projection("listings", lag_budget=5.0)

    @listings.on(RoomPriced)
    async def priced(event: Event[RoomPriced], model: Model) -> None:
        assert event.data.number >= 0

    async with Harness(rooms) as harness:
        await harness.publish(RoomPriced(key="k"))
        await harness.settled()
        harness.clock._now += 1000
        standing, place = standing_of(rooms), {"service": "rooms", "projection": "listings"}
        fresh = await look(standing)
        assert fresh.one("projection_budget_seconds", **place) == 5
        assert (fresh.one("projection_lag_events", **place), fresh.one("projection_freshness_seconds", **place)) == (
            0,
            0,
        )
        await stop(harness)
        await harness.publish(RoomPriced(key="k"))
        harness.clock._now += 40
        stale = await look(standing)
        assert (stale.one("projection_lag_events", **place), stale.one("projection_freshness_seconds", **place)) == (
            1,
            40,
        )
        assert stale.one("consumer_lag_seconds", consumer="rooms.listings") == 40


async def test_what_waits_does_not_become_young_because_it_was_sent() -> None:
    rooms = Service("rooms")
    rooms.event("order.placed.v1", key="key")(RoomPriced)
    listings = rooms.projection("listings")

    @listings.on(RoomPriced)
    async def priced(event: Event[RoomPriced], model: Model) -> None:
        pass

    async with Harness(rooms) as harness:
        await harness.settled()
        await stop(harness)
        await harness.publish(RoomPriced(key="k"))
        harness.clock._now += 40
        standing, ended = standing_of(rooms), asyncio.Event()
        assert (await look(standing)).one("consumer_lag_seconds", consumer="rooms.listings") == 40
        sending = asyncio.create_task(harness._runtimes[0].relay.run(ended))
        async with asyncio.timeout(5):
            unsent = 1.0
            while unsent:
                unsent = (await look(standing)).one("outbox_unsent", topic="rooms.order")
        ended.set()
        await sending
        harness.clock._now += 2
        found = await look(standing)
        assert found.one("consumer_in_flight", consumer="rooms.listings") == 1
        assert found.one("consumer_lag_seconds", consumer="rooms.listings") == 42
        assert found.one("projection_freshness_seconds", service="rooms", projection="listings") == 42


async def test_a_schedule_that_nobody_begins_becomes_overdue() -> None:
    night = Service("night")

    @night.every("0 3 * * *", tz="UTC")
    async def audit(run: Run) -> None:
        pass

    async with Harness(night) as harness:
        await harness.settled()
        await stop(harness)
        standing = standing_of(night)
        assert (await look(standing)).one("schedule_overdue_seconds", service="night", schedule="audit") == 0
        harness.clock._now += 2 * 86_400
        late = (await look(standing)).one("schedule_overdue_seconds", service="night", schedule="audit")
        assert 86_400 <= late <= 2 * 86_400
        assert (await look(standing)).one("unattended", service="night", part="timers") == 1


async def test_a_schedule_that_no_process_keeps_is_overdue_too_and_its_namesake_elsewhere_is_not() -> None:
    day, night = Service("day"), Service("night")

    @day.every("0 3 * * *", tz="UTC", name="audit")
    async def by_day(run: Run) -> None: ...

    @night.every("0 3 * * *", tz="UTC", name="audit")
    async def by_night(run: Run) -> None: ...

    async with Harness(day, night) as harness:
        await harness.settled()
        await stop(harness)
        async with app_of(day).store.begin() as tx:
            await tx.execute("DELETE FROM posthouse_schedule WHERE service = 'day'")
        standing = standing_of(day, night)
        first = await look(standing)
        assert first.one("schedule_overdue_seconds", service="day", schedule="audit") == 0
        assert first.one("unattended", service="day", part="timers") == 1, "nobody will begin to keep it"
        harness.clock._now += 2 * 86_400
        late = await look(standing)
        assert 86_400 <= late.one("schedule_overdue_seconds", service="day", schedule="audit") <= 2 * 86_400
        assert 86_400 <= late.one("schedule_overdue_seconds", service="night", schedule="audit") <= 2 * 86_400


async def test_no_counter_ever_falls_whatever_people_do_with_held_events() -> None:
    async with Harness(shop, ledger) as harness:
        app, standing, before = app_of(ledger), standing_of(shop, ledger), dict[tuple[str, ...], float]()

        async def counters_rise() -> None:
            await harness.settled()
            found = await standing.samples()
            counted = {
                (one.metric, *one.labels.values()): float(str(one.value))
                for one in found
                if TABLE[one.metric].kind == "counter"
            }
            assert counted
            assert {place: (was, counted[place]) for place, was in before.items() if counted[place] < was} == {}
            before.update(counted)

        for number in (1, -1, -2, -3):
            await harness.publish(OrderPlaced(key=str(number), number=number))
        await counters_rise()
        events = [one async for one in app.held.find(HeldFilter(consumer="ledger"))]
        for one in events:
            await app.held.skip(one.id, why="x")
            await counters_rise()
        await app.held.retry(events[0].id, force=True, why="x")
        await counters_rise()
        await resend([app_of(shop)], Choice())
        await counters_rise()
        harness.clock._now += 40 * 86_400
        await app.store.inbox.purge(1.0, 100)
        await app_of(shop).store.outbox.purge(100)
        await counters_rise()


async def test_a_saga_that_could_not_undo_its_steps_is_counted_and_ages() -> None:
    hotel.Weather.drop_hold_fails = 3
    async with Harness(hotel.reservation, hotel.inventory, hotel.payment) as harness:
        await hotel.start()
        await harness.settled()
        place = {"service": "reservation", "saga": "booking"}
        standing = standing_of(hotel.reservation, hotel.inventory, hotel.payment)
        assert (await look(standing)).one("saga_instances", **place, state="running") == 1
        for seconds in (30.0, 10.0, 10.0):
            await harness.advance(seconds)
        found = await look(standing)
        assert found.one("saga_instances", **place, state="compensation_failed") == 1
        assert found.one("saga_instances", **place, state="running") == 0
        age = found.one("saga_oldest_seconds", **place, state="compensation_failed")
        assert age >= 50
        await harness.advance(100.0)
        assert (await look(standing)).one("saga_oldest_seconds", **place, state="compensation_failed") == age + 100
        assert found.one("saga_ended_total", **place, outcome="completed") == 0


def test_looks_before_show_how_long_the_first_has_waited_at_least() -> None:
    memory = Memory()

    def oldest(
        at: float, committed: int, pending: int, *, unsent: int = 0, refused: int = 0, age: float = 0.0
    ) -> float:
        counts = Counts(
            committed={"t": committed},
            unsent={"t": unsent + refused},
            stuck=0,
            refused={"t": refused},
            applied={},
            skipped={},
            held={},
            strange={},
            timers=0,
        )
        progress = Progress(stored=pending, pending=pending, truncated=True)
        return memory.oldest(
            ("g", "t"), progress, Gauges(at=at, counts=counts, unsent_oldest={"t": age} if age else {})
        )

    assert oldest(100.0, 10, 0) == 0
    assert oldest(110.0, 14, 4) == 0, "seen for the first time"
    assert oldest(120.0, 20, 8) == 10, "two of those that were seen then are done, and two wait"
    assert oldest(130.0, 20, 6) == 10, "all of those are done"
    assert oldest(140.0, 20, 6) == 20, "nobody works"
    assert oldest(150.0, 20, 0) == 0
    assert oldest(160.0, 30, 0, unsent=10, age=9.0) == 9, "written since the look before"
    assert oldest(170.0, 30, 10) == 19, "sent, and as old as before"
    assert oldest(180.0, 31, 0, refused=1) == 0, "what the broker refused for good waits for nobody"
    assert oldest(190.0, 32, 1, refused=1) == 0
    assert oldest(200.0, 32, 1, refused=1) == 10
    assert oldest(210.0, 5, 5) == 0, "another history"
    assert max(oldest(300.0 + look, 5 + look, look + 5) for look in range(5000)) == 5089, "never forgotten"
    assert len(memory._written["g", "t"]) <= REMEMBERED


async def test_a_look_makes_nothing(tmp_path: Path) -> None:
    app = App(Service("empty"), store=f"sqlite:///{tmp_path / 'empty.db'}", broker=f"embedded:///{tmp_path / 'log.db'}")
    found = await look(Standing([app]))
    assert [(one.metric, one.value) for one in found.all if one.metric != "scrape_seconds"] == [("store_up", 0)]
    assert os.listdir(tmp_path) == []
    await app.aclose()


async def test_while_the_store_of_its_producer_is_away_nobody_knows_what_waits_for_a_consumer(tmp_path: Path) -> None:
    far, near = Service("far"), Service("near")
    said = type("Said", (OrderPlaced,), {})
    far.event("order.placed.v1", key="key")(said)

    @near.on(said)
    async def heard(event: Event[OrderPlaced]) -> None: ...

    broker = f"embedded:///{tmp_path / 'log.db'}"
    apps = [
        App(far, store=f"postgresql://posthouse@127.0.0.1:{free_port()}/x", broker=broker),
        App(near, store=f"sqlite:///{tmp_path / 'near.db'}", broker=broker),
    ]
    await apps[1].store.upgrade()
    async with apps[1].running(only=["relay"]):
        pass
    apart, together = await Standing([apps[1]]).samples(), await Standing(apps, patience=0.5).samples()
    assert Found(apart).one("consumer_in_flight", consumer="near") == 0, "of what is at the broker"
    assert Found(together).of("consumer_in_flight", consumer="near") == []
    scaling = Scaling(apps)
    status, work = scaling.answer(scaling.look(together, at=0), {"consumer": "near"})
    assert (status, isinstance(work, Work) and work.backlog) == (503, None)
    for app in apps:
        await app.aclose()


async def test_servers_that_hang_or_are_away_cost_only_their_own_figures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that takes connections and never says a word, and one that is not there."""
    callers = list[asyncio.StreamWriter]()
    silent = await asyncio.start_server(lambda _, writer: callers.append(writer), "127.0.0.1", 0)
    (_, port), *_ = [socket.getsockname() for socket in silent.sockets]
    good, dumb, far, deaf = (Service(name) for name in ("good", "dumb", "far", "deaf"))
    for service in (good, deaf):
        service.event("order.placed.v1", key="key")(type("Placed", (OrderPlaced,), {}))
    apps = [
        App(good, store=f"sqlite:///{tmp_path / 'good.db'}", broker=f"embedded:///{tmp_path / 'log.db'}"),
        App(dumb, store=f"postgresql://posthouse@127.0.0.1:{port}/x", broker=f"embedded:///{tmp_path / 'log.db'}"),
        App(
            far, store=f"postgresql://posthouse@127.0.0.1:{free_port()}/x", broker=f"embedded:///{tmp_path / 'log.db'}"
        ),
        App(deaf, store=f"sqlite:///{tmp_path / 'deaf.db'}", broker=f"nats://127.0.0.1:{port}"),
    ]
    for app in (apps[0], apps[3]):
        await app.store.upgrade()
    standing = Standing(apps, patience=0.5)
    begun = time.monotonic()
    found = await look(standing)
    took = time.monotonic() - begun
    assert {service: found.one("store_up", service=service) for service in ("good", "dumb", "far", "deaf")} == {
        "good": 1,
        "dumb": 0,
        "far": 0,
        "deaf": 1,
    }
    assert (found.of("broker_up", service="good"), found.of("broker_up", service="deaf")) == ([1], [0])
    assert found.of("outbox_unsent", service="deaf") == [0]
    assert {one.metric for one in found.all if one.labels.get("service") == "dumb"} == {"store_up", "scrape_seconds"}
    assert took < 20, "it hangs for an hour"
    await look(standing)
    said = [record.getMessage() for record in caplog.records if record.name == "posthouse.watch"]
    assert len(said) == 3, "each once"
    for app in apps:
        await app.aclose()
    for caller in callers:
        caller.close()
    silent.close()
    await silent.wait_closed()
