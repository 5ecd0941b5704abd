"""Process figures of a real run: what was done is counted, and nothing that an event brings is a label."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.contracts import event_type_of
from posthouse.errors import BrokerUnavailable, ConfigurationError, ContractError, RuleBroken
from posthouse.seam import EventContext
from posthouse.seam.frames import frame_of
from posthouse.seam.timing import OTHERS
from posthouse.testing import Harness
from posthouse.watch.process import samples
from posthouse.watch.prometheus import render
from posthouse.watch.samples import Distribution
from posthouse.watch.table import TABLE
from tests.kit.waiting import eventually

shop = Service("shop")
ledger = Service("ledger")


@shop.event("order.placed.v1", key="order")
class OrderPlaced(Payload):
    order: str
    number: int = 0


@ledger.on(OrderPlaced, policy=Policy(max_attempts=2, first_delay=0.0))
async def book(event: Event[OrderPlaced], tx: Tx) -> None:
    if event.data.number == 13:
        raise ValueError("SECRETWORD in an error")


TOPIC = event_type_of(OrderPlaced).topic
[CONSUMER] = ledger.declared.consumers
PLACE = {"service": "ledger", "consumer": CONSUMER, "topic": TOPIC}


class Scene:
    def __init__(self, app: App, broker: MemoryBroker) -> None:
        self.app, self.broker = app, broker

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.app.running():
            await eventually(lambda: self.app.opened.consumers)
            yield

    async def publish(self, *numbers: int, tenant: str = "t1") -> None:
        async with shop.transaction(tenant=tenant) as tx:
            for number in numbers:
                tx.publish(OrderPlaced(order=f"SECRETKEY{number}", number=number))

    def value(self, metric: str, **labels: str) -> float:
        [found] = [one for one in samples([self.app]) if (one.metric, one.labels) == (metric, labels)]
        assert not isinstance(found.value, Distribution)
        return found.value

    def spread(self, metric: str, **labels: str) -> Distribution:
        [found] = [one for one in samples([self.app]) if (one.metric, one.labels) == (metric, labels)]
        assert isinstance(found.value, Distribution)
        return found.value

    def consumed(self, result: str) -> float:
        return self.value("events_consumed_total", **PLACE, result=result)

    def frame(self, number: int = 0) -> Frame:
        """As the relay would send it."""
        [row] = self.app.opened.builders["shop"].build(
            OrderPlaced(order=f"k{number}", number=number), EventContext(tenant="t1")
        )
        return frame_of(msgspec.structs.replace(row, sequence=1))


Make = Callable[..., Scene]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[App] = []

    def scene(**options: object) -> Scene:
        broker = options.pop("broker", None) or MemoryBroker(clock=SystemClock())
        app = App(shop, ledger, store=f"sqlite:///{tmp_path}/shop.db", broker=broker, **options)  # type: ignore[arg-type]
        made.append(app)
        return Scene(app, broker)  # type: ignore[arg-type]

    yield scene
    for app in made:
        await app.aclose()


async def test_every_series_of_a_consumer_is_there_before_the_first_event(make: Make) -> None:
    scene = make()
    async with scene.running():
        assert {scene.consumed(result) for result in ("ok", "noop", "error")} == {0}
        assert {scene.value("events_dead_total", **PLACE, state=state) for state in ("dead", "quarantined")} == {0}
        assert scene.value("inbox_duplicates_total", **PLACE) == 0
        assert scene.value("relay_fenced_total", service="shop, ledger") == 0
        for outcome in ("accepted", "refused"):
            place = {"service": "shop", "topic": TOPIC, "tenant_class": "", "outcome": outcome}
            assert scene.value("events_published_total", **place) == 0
        assert scene.value("reconnects_total", service="shop, ledger", server="store") == 0
        assert scene.value("in_hand", service="ledger", consumer=CONSUMER) == 0
        assert scene.value("in_hand_limit", service="ledger", consumer=CONSUMER) == 1000


async def test_events_are_counted_as_published_and_applied(make: Make) -> None:
    scene = make()
    async with scene.running():
        await scene.publish(*range(10))
        await eventually(lambda: scene.consumed("ok"), right=lambda number: number == 10)

        published = {"service": "shop", "topic": TOPIC, "tenant_class": "", "outcome": "accepted"}
        assert scene.value("events_published_total", **published) == 10
        assert (scene.consumed("noop"), scene.consumed("error")) == (0, 0)
        took = scene.spread("event_processing_seconds", **PLACE)
        assert took.count == 10
        assert took.sum > 0
        age = scene.spread("event_age_seconds", service="ledger", consumer=CONSUMER)
        assert age.count == 10
        assert age.buckets[-1] == (2.0**16, 10)


async def test_a_handler_that_fails_is_an_error_at_each_run_and_dead_once(make: Make) -> None:
    scene = make()
    async with scene.running():
        await scene.publish(13)
        await eventually(lambda: scene.value("events_dead_total", **PLACE, state="dead"))

        assert scene.consumed("error") == 2
        assert scene.consumed("ok") == 0
        assert scene.value("events_dead_total", **PLACE, state="dead") == 1


async def test_a_duplicate_is_counted_as_such_and_as_nothing_to_do(make: Make) -> None:
    scene = make()
    async with scene.running():
        frame = scene.frame()
        await scene.broker.publish([frame, frame, frame])
        await eventually(lambda: scene.value("inbox_duplicates_total", **PLACE), right=lambda number: number == 2)

        assert (scene.consumed("ok"), scene.consumed("noop")) == (1, 2)


async def test_of_two_versions_of_one_fact_the_second_is_nothing_to_do() -> None:
    hotel, desk = Service("hotel"), Service("desk")

    @hotel.event("stay.booked.v1", key="stay")
    class Old(Payload):
        stay: str

    @hotel.event("stay.booked.v2", key="stay")
    class New(Payload):
        stay: str
        beds: int = 1

    @hotel.downcast(New, to=Old)
    def as_old(new: New) -> Old:
        return Old(stay=new.stay)

    @desk.upcast(Old, to=New)
    def as_new(old: Old) -> New:
        return New(stay=old.stay)

    @desk.on(New)
    async def note(event: Event[New], tx: Tx) -> None:
        pass

    async with Harness(hotel, desk) as harness:
        await harness.publish(New(stay="s1"))
        await harness.settled()
        found = [one for one in samples([app_of(desk)]) if one.metric == "events_consumed_total"]

    assert {one.labels["result"]: one.value for one in found} == {"ok": 1, "noop": 1, "error": 0}


async def test_what_cannot_be_read_is_quarantined_and_counted_by_a_short_word(make: Make) -> None:
    scene = make()
    async with scene.running():
        await scene.broker.publish([Frame(topic=TOPIC, id="x", key=None, body=b"SECRETBODY")])
        await eventually(lambda: scene.value("events_dead_total", **PLACE, state="quarantined"))

        assert scene.consumed("error") == 1
        [failure] = [one for one in samples([scene.app]) if one.metric == "schema_failures_total"]
        assert failure.value == 1
        assert "SECRET" not in failure.labels["reason"]


async def test_a_payload_that_breaks_its_contract_is_a_schema_failure(make: Make) -> None:
    scene = make()
    async with scene.running():
        frame = scene.frame()
        broken = frame.body.replace(b'"number":0', b'"number":"SECRET"')
        assert broken != frame.body
        await scene.broker.publish([msgspec.structs.replace(frame, body=broken)])
        await eventually(lambda: scene.value("events_dead_total", **PLACE, state="dead"))

        assert scene.value("schema_failures_total", service="ledger", consumer=CONSUMER, reason="contract") == 1


class Moody(MemoryBroker):
    """Refuses frames, or is away, as long as it is told to."""

    mood = ""

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        if self.mood == "away":
            raise BrokerUnavailable("away")
        if self.mood == "refuses":
            return [Verdict(False, "SECRETREASON") for _ in frames]
        return await super().publish(frames)


async def test_what_the_broker_refuses_is_counted_apart_from_what_it_took(make: Make) -> None:
    broker = Moody(clock=SystemClock())
    scene = make(broker=broker)
    place = {"service": "shop", "topic": TOPIC, "tenant_class": ""}
    async with scene.running():
        broker.mood = "refuses"
        await scene.publish(1)
        await eventually(lambda: scene.value("events_published_total", **place, outcome="refused"))

        assert scene.value("events_published_total", **place, outcome="accepted") == 0


async def test_a_broker_that_comes_back_is_counted_once_for_each_time(make: Make) -> None:
    broker = Moody(clock=SystemClock())
    scene = make(broker=broker)
    async with scene.running():
        broker.mood = "away"
        await scene.publish(1)
        await eventually(lambda: scene.app.opened.outages.broker.waiting)
        assert scene.value("reconnects_total", service="shop, ledger", server="broker") == 0
        broker.mood = ""
        await eventually(lambda: scene.consumed("ok"))
        await eventually(lambda: scene.value("reconnects_total", service="shop, ledger", server="broker"))

        assert scene.value("reconnects_total", service="shop, ledger", server="broker") == 1
        assert scene.value("reconnects_total", service="shop, ledger", server="store") == 0


async def test_a_publish_that_is_refused_is_counted_by_its_rule_or_its_error(make: Make) -> None:
    scene = make()
    await scene.app.open()
    for tenant, number, error in (("platform", 1, RuleBroken), ("t1", "SECRET", ContractError)):
        with pytest.raises(error):
            async with shop.transaction(tenant=tenant) as tx:
                tx.publish(OrderPlaced(order="k", number=number))  # type: ignore[arg-type]

    assert scene.value("publish_refused_total", service="shop", reason="platform") == 1
    assert scene.value("publish_refused_total", service="shop", reason="ContractError") == 1


async def test_a_relay_that_lost_its_shards_is_counted(make: Make) -> None:
    scene = make()
    await scene.publish(1)
    runtime = await scene.app.opened.prepare()
    outbox = scene.app.store.outbox
    publish = scene.broker.publish

    async def slow(frames: Sequence[Frame]) -> Sequence[Verdict]:
        await outbox.release(runtime.relay._owner)
        await outbox.lease("another", 60.0)
        return await publish(frames)

    scene.broker.publish = slow  # type: ignore[method-assign]
    await runtime.relay.step()

    assert scene.value("relay_fenced_total", service="shop, ledger") == 1


async def test_a_loop_that_failed_is_counted_under_its_name(make: Make) -> None:
    scene = make()
    runtime = await scene.app.opened.prepare()
    stop, runs = asyncio.Event(), list[int]()

    async def run(stop: asyncio.Event) -> None:
        runs.append(1)
        if len(runs) == 1:
            raise LookupError("SECRET")
        stop.set()

    await runtime._keep_running("timers", run, stop, runtime.pulse)

    assert scene.value("loop_restarts_total", service="shop, ledger", loop="timers") == 1


async def test_tenants_are_told_apart_by_their_class(make: Make) -> None:
    sizes = {"hotel": "large", "inn": "small"}
    scene = make(tenant_class=sizes.__getitem__)
    place = {"service": "shop", "topic": TOPIC, "outcome": "accepted"}
    async with scene.running():
        await scene.publish(1, 2, tenant="hotel")
        await scene.publish(3, tenant="inn")
        await scene.publish(4, tenant="SECRETTENANT")
        await eventually(lambda: scene.consumed("ok"), right=lambda number: number == 4)

        found = {word: scene.value("events_published_total", **place, tenant_class=word) for word in ("large", "small")}
        assert found == {"large": 2, "small": 1}
        assert scene.value("events_published_total", **place, tenant_class=OTHERS) == 1, "and the event was not lost"


def test_a_coroutine_function_tells_no_class() -> None:
    async def size(tenant: str) -> str:
        return "small"

    with pytest.raises(ConfigurationError, match="plain function"):
        App(Service("lonely"), tenant_class=size)  # type: ignore[arg-type]


async def test_hostile_frames_do_not_grow_the_number_of_series(make: Make) -> None:
    """Random types, tenants, keys, ids, headers; some cannot be read at all."""
    scene, chance = make(), random.Random(16)

    def word() -> str:
        return f"hostile{chance.getrandbits(48):x}"

    def hostile() -> Frame:
        kind = chance.randrange(3)
        if kind == 0:
            return Frame(topic=TOPIC, id=word(), key=word(), body=word().encode(), headers={word(): word()})
        body = {
            "specversion": "1.0",
            "id": word(),
            "source": f"/{word()}",
            "type": f"{word()}.happened.v1" if kind == 1 else "shop.order.placed.v1",
            "tenant": word(),
            "time": "2026-11-16T12:00:00Z",
            "data": {"order": word(), word(): word()} if chance.random() < 0.5 else word(),
        }
        headers = {"content-type": "application/cloudevents+json"}
        return Frame(topic=TOPIC, id=str(body["id"]), key=None, body=msgspec.json.encode(body), headers=headers)

    async with scene.running():
        await scene.publish(1)
        await eventually(lambda: scene.consumed("ok"))

        async def dealt_with(number: int) -> int:
            await scene.broker.publish([hostile() for _ in range(number)])
            await eventually(lambda: sum(scene.consumed(result) for result in ("ok", "noop", "error")), right=reached)
            return len(samples([scene.app]))

        goal = 101.0

        def reached(total: float) -> bool:
            return total >= goal

        few = await dealt_with(100)
        goal += 400
        many = await dealt_with(400)
        text = render(samples([scene.app]), prefix="melmastoon")[0].decode()
    assert many - few <= 3, "a short word or two that the first hundred did not bring"
    assert "hostile" not in text


async def test_no_label_is_a_tenant_a_key_an_id_or_the_text_of_an_error(make: Make) -> None:
    scene = make(tenant_class=lambda tenant: tenant)
    async with scene.running():
        await scene.publish(1, 13, tenant="SECRETTENANT")
        frame = msgspec.structs.replace(scene.frame(), id="SECRETID")
        await scene.broker.publish([frame, Frame(topic=TOPIC, id="SECRETID2", key="SECRETKEY", body=b"SECRETBODY")])
        await eventually(lambda: scene.value("events_dead_total", **PLACE, state="dead"))
        await eventually(lambda: scene.value("events_dead_total", **PLACE, state="quarantined"))
        for accept in ("", "application/openmetrics-text; version=1.0.0"):
            text = render(samples([scene.app]), accept=accept, prefix="melmastoon")[0].decode()
            assert "events_dead_total" in text
            assert "SECRET" not in text


async def test_every_process_figure_is_of_the_table_and_each_series_is_said_once(make: Make) -> None:
    scene = make()
    async with scene.running():
        await scene.publish(1)
        await eventually(lambda: scene.consumed("ok"))
        found = samples([scene.app, scene.app])

    assert {TABLE[one.metric].source for one in found} == {"process"}
    series = [(one.metric, tuple(sorted(one.labels.items()))) for one in found]
    assert len(series) == len(set(series))
    crossings = {one.labels["crossing"] for one in found if one.metric == "crossing_seconds"}
    assert crossings == {"outward", "inward", "handler", "publish", "receive", "transaction"}


def test_the_buckets_of_a_crossing_are_cumulative_and_end_with_all(make: Make) -> None:
    scene, now = make(), [0.0]
    timing = scene.app.opened.seam.timing
    timing.now = lambda: now[0]
    for seconds in (0.00001, 0.0015, 0.003, 0.7, 0.8, 100.0):
        now[0] = seconds
        timing.note("handler", "book", 0.0)

    spread = scene.spread("crossing_seconds", crossing="handler", name="book", outcome="ok")

    assert spread.buckets[0] == (2.0**-10, 1)
    assert dict(spread.buckets)[2.0**-9] == 2
    assert dict(spread.buckets)[2.0**-8] == 3
    assert dict(spread.buckets)[1.0] == 5
    assert spread.buckets[-1] == (64.0, 5)
    assert spread.count == 6
    assert spread.sum == pytest.approx(101.50451)
