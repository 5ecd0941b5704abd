"""The front door: what may be declared, how it opens, and on what it runs."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Policy, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Start, Stream
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.contracts import event_type_of
from posthouse.errors import BrokerUnavailable, ConfigurationError, EventError, SubjectError
from posthouse.testing import Harness, rehost


def plant() -> tuple[Service, type[Payload]]:
    service = Service("plant")
    App(service, store="sqlite://", broker="memory://")

    @service.event("thing.made.v1", key="key")
    class ThingMade(Payload):
        key: str

    return service, ThingMade


async def handle(event: Event[Payload], tx: Tx) -> None: ...


async def handle_too(event: Event[Payload], tx: Tx) -> None: ...


# Declaring.


def test_a_second_handler_for_the_same_event_needs_a_consumer_of_its_own() -> None:
    service, made = plant()
    service.on(made)(handle)
    with pytest.raises(ConfigurationError, match=r"as in on\(…, consumer='handle_too'\)"):
        service.on(made)(handle_too)
    service.on(made, consumer="second")(handle_too)
    assert list(service.declared.consumers) == ["plant", "plant.second"]
    assert app_of(service).opened.topology().groups == {"plant": ["plant.thing"], "plant.second": ["plant.thing"]}
    assert list(app_of(service).opened.topology().topics) == ["plant.thing", "plant.thing.dlq"]


async def test_two_consumers_of_one_service_each_apply_every_event() -> None:
    service, made = plant()
    heard: list[str] = []

    @service.on(made)
    async def first(event: Event[Payload]) -> None:
        heard.append("first")

    @service.on(made, consumer="second")
    async def second(event: Event[Payload]) -> None:
        heard.append("second")

    async with Harness(service) as harness:
        await harness.publish(made(key="k"))
        await harness.settled()
    assert sorted(heard) == ["first", "second"]


def test_on_needs_events_and_they_must_be_declared() -> None:
    service, _ = plant()
    with pytest.raises(ConfigurationError, match=r"names no event: write plant.on"):
        service.on()
    with pytest.raises(ConfigurationError, match="str is not an event"):
        service.on(str)(handle)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: None, "takes 0 arguments"),
        (lambda event, tx, more: None, "takes 3 arguments"),
        (lambda event, tx: None, "plain function and cannot await a Tx"),
    ],
)
def test_a_function_that_cannot_be_a_handler_says_why(function: object, why: str) -> None:
    service, made = plant()
    with pytest.raises(ConfigurationError, match=why):
        service.on(made)(function)  # type: ignore[call-overload]


def test_a_subject_that_breaks_the_grammar_or_is_taken_is_refused() -> None:
    service, _ = plant()
    with pytest.raises(SubjectError, match="past tense"):
        service.event("thing.make.v1")(Payload)
    with pytest.raises(ConfigurationError, match="declared twice"):

        @service.event("thing.made.v1")
        class Again(Payload):
            key: str

    with pytest.raises(ConfigurationError, match="Did you mean 'key'"):

        @service.event("thing.found.v1", key="kee")
        class Found(Payload):
            key: str


def test_an_unknown_wire_format_is_answered_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'binary'"):
        Service("plant", envelope="binari")


async def test_everything_that_cannot_work_is_said_at_once() -> None:
    service, made = plant()

    @service.event("thing.lost.v1", key="key")
    class ThingLost(Payload):
        key: str

    service.on(made)(handle)
    service.on(ThingLost, policy=Policy(order="none", last_delay=1e8, first_delay=1e8))(handle_too)
    with pytest.raises(ConfigurationError) as refused:
        await app_of(service).opened.prepare()
    problems = "\n".join(refused.value.problems)
    assert len(refused.value.problems) == 2
    for part in ("do not agree on order", "raise inbox_retention"):
        assert part in problems
    await service.aclose()


def test_topics_follow_aggregates_or_subjects() -> None:
    for topics, expected in (("aggregate", "works.plant.thing"), ("subject", "works.plant.thing.made.v1")):
        service = Service("plant", namespace="works", topics=topics)  # type: ignore[arg-type]

        @service.event("thing.made.v1")
        @dataclass
        class ThingMade:
            key: str

        assert event_type_of(ThingMade).topic == expected
        assert expected in app_of(service).opened.topology().topics


async def test_a_foreign_event_is_read_by_its_full_subject_with_only_the_fields_needed() -> None:
    reader = Service("reader")
    owner, made = plant()
    heard: list[str] = []

    @reader.external("plant.thing.made.v1", key="key")
    class ThingMade(Payload):
        key: str

    @reader.on(ThingMade)
    async def hear(event: Event[ThingMade], tx: Tx) -> None:
        heard.append(event.data.key)
        with pytest.raises(ConfigurationError, match="may read it, not publish it"):
            tx.publish(event.data)

    async with Harness(owner, reader) as harness:
        await harness.publish(made(key="k"))
        await harness.settled()
    assert heard == ["k"]


# Opening and closing.


async def test_set_up_functions_run_once_in_order_however_many_open() -> None:
    service, _ = plant()
    ran: list[str] = []

    @service.setup
    async def first(tx: Tx) -> None:
        ran.append("first")
        await asyncio.sleep(0)
        await tx.execute("CREATE TABLE mine (n)")

    @service.setup
    async def second(tx: Tx) -> None:
        ran.append(f"second for {tx.tenant}")
        await tx.execute("INSERT INTO mine VALUES (1)")

    async def use() -> object:
        async with service.transaction("t1") as tx:
            return (await tx.execute("SELECT count(*) FROM mine")).scalar()

    assert await asyncio.gather(*[use() for _ in range(5)]) == [1] * 5
    await app_of(service).open()
    assert ran == ["first", "second for platform"]
    await service.aclose()


async def test_a_set_up_function_that_fails_runs_again_at_the_next_opening() -> None:
    service, _ = plant()
    ran: list[int] = []

    @service.setup
    async def flaky(tx: Tx) -> None:
        ran.append(len(ran))
        await tx.execute("CREATE TABLE mine (n)")
        if len(ran) == 1:
            raise RuntimeError("not yet")

    with pytest.raises(RuntimeError, match="not yet"):
        await app_of(service).open()
    async with service.transaction("t1") as tx:
        assert (await tx.execute("SELECT count(*) FROM mine")).scalar() == 0
    assert ran == [0, 1]
    await service.aclose()


async def test_a_closed_service_opens_again_on_its_urls(tmp_path: Path) -> None:
    service = Service("plant")
    App(service, store=f"sqlite:///{tmp_path / 'plant.db'}", broker="memory://")

    @service.event("thing.made.v1", key="key")
    class ThingMade(Payload):
        key: str

    for _ in range(2):
        async with service.transaction("t1") as tx:
            tx.publish(ThingMade(key="k"))
        await service.aclose()
        await service.aclose()
    assert (await app_of(service).store.counts()).committed == {"plant.thing": 2}
    await service.aclose()


async def test_other_parts_are_used_from_the_next_opening_on() -> None:
    service, made = plant()
    await app_of(service).open()
    first = app_of(service).store
    clock = ManualClock(5.0)
    broker = MemoryBroker(clock=clock)
    await service.aclose()
    before = rehost(service, store="sqlite://", broker=broker, clock=clock)
    assert (before.opened.ports.store_url, before.opened.ports.broker_url) == ("sqlite://", "memory://")
    async with service.transaction("t1") as tx:
        tx.publish(made(key="k"))
    assert app_of(service).store is not first
    assert (app_of(service).broker, app_of(service).clock) == (broker, clock)
    assert (app_of(service).opened.ports.store_url, app_of(service).opened.ports.broker_url) == ("sqlite://", "memory")
    await service.aclose()


async def test_a_service_runs_in_the_background_of_a_block_and_is_closed_after_it() -> None:
    service, made = plant()
    heard = asyncio.Event()

    @service.on(made)
    async def hear(event: Event[Payload]) -> None:
        heard.set()

    async with service.running():
        async with service.transaction("t1") as tx:
            tx.publish(made(key="k"))
        await asyncio.wait_for(heard.wait(), 10)
    assert app_of(service)._opened is None


async def test_the_environment_says_where_the_parts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTHOUSE_STORE", "sqlite:///elsewhere.db")
    monkeypatch.setenv("POSTHOUSE_BROKER", "memory://")
    assert (app_of(Service("plant")).opened.ports.store_url, app_of(Service("plant")).opened.ports.broker_url) == (
        "sqlite:///elsewhere.db",
        "memory://",
    )
    monkeypatch.delenv("POSTHOUSE_STORE")
    monkeypatch.delenv("POSTHOUSE_BROKER")
    assert (app_of(Service("plant")).opened.ports.store_url, app_of(Service("plant")).opened.ports.broker_url) == (
        "sqlite:///plant.db",
        "embedded:///posthouse-log.db",
    )


class SlowToJoin(MemoryBroker):
    """Lets a member in only after somebody else has published, or after a while."""

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> Stream:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await self.log.changed.wait()
        return await super().subscribe(group, topics, start=start, window=window)


async def test_what_is_published_while_a_service_runs_reaches_consumers_that_begin_at_the_end() -> None:
    service = Service("plant")
    App(service, settings=Settings(start="latest"))
    heard = asyncio.Event()

    @service.event("thing.made.v1", key="key")
    class ThingMade(Payload):
        key: str

    @service.on(ThingMade)
    async def hear(event: Event[ThingMade]) -> None:
        heard.set()

    clock = SystemClock()
    rehost(service, store="sqlite://", broker=SlowToJoin(clock=clock), clock=clock)
    async with service.running():
        async with service.transaction("t1") as tx:
            tx.publish(ThingMade(key="a"))
        async with asyncio.timeout(10):
            await heard.wait()


async def test_a_service_that_no_broker_lets_in_starts_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Closed(MemoryBroker):
        async def subscribe(
            self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
        ) -> Stream:
            raise BrokerUnavailable("not now")

    monkeypatch.setattr("posthouse.runtime.BEGIN", 0.05)
    service = Service("plant")
    App(service, settings=Settings(start="latest"))

    @service.event("thing.made.v1", key="key")
    class ThingMade(Payload):
        key: str

    service.on(ThingMade)(handle)
    clock = SystemClock()
    rehost(service, store="sqlite://", broker=Closed(clock=clock), clock=clock)
    async with service.running():
        assert "has not joined all its groups yet" in caplog.text


# Tenants.


async def test_a_service_of_many_tenants_refuses_whoever_names_none() -> None:
    service = Service("plant", default_tenant=None)
    App(service, store="sqlite://", broker="memory://")
    made = service.event("thing.made.v1", key="key")(Thing)
    things = service.aggregate("thing", initial=int, evolve=counted, events=[made])
    calls: list[Callable[[], object]] = [
        lambda: service.transaction(),
        lambda: service.joined(None),
        lambda: service.record("", {}, made(key="k")),
        lambda: service.outbox.add(None, made(key="k")),
        lambda: service.outbox.add_now(None, made(key="k")),
        lambda: service.outbox.joined(None).__enter__(),
        lambda: things.execute("k", lambda _: [made(key="k")]),
    ]

    async def made_by(call: Callable[[], object]) -> None:
        called = call()
        if inspect.isawaitable(called):
            await called

    for call in calls:
        with pytest.raises(EventError, match=r"plant has many tenants .* tenant=…"):
            await made_by(call)
    async with service.transaction("default") as tx:
        assert tx.tenant == "default", "who names it means it"
    await service.aclose()


def test_a_store_that_keeps_tenants_apart_has_no_default_tenant() -> None:
    service = Service("plant")
    url = "postgresql://app@nowhere.invalid/shop?isolation=true&runtime_url=postgresql%3A%2F%2Fruntime%40nowhere.invalid%2Fshop"
    App(service, store=url, broker="nats://nowhere.invalid")
    with pytest.raises(EventError, match=r"keeps tenants apart \(isolation=true\): say whose this is"):
        service.transaction()
    service.transaction("default")


async def test_the_default_tenant_has_the_name_that_the_service_gives_it() -> None:
    service = Service("plant", default_tenant="acme")
    App(service, store="sqlite://", broker="memory://")
    async with service.transaction() as tx:
        assert tx.tenant == "acme"
    await service.aclose()


class Thing(Payload):
    key: str


def counted(state: int, _: Thing) -> int:
    return state + 1
