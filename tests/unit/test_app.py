"""An App runs services: several share what it opens, and a service finds the one that hosts it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, Saga, Service, Settings, Turn, Tx, app_of, starts
from posthouse.app import apps_of
from posthouse.broker import Progress
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock, SystemClock
from posthouse.errors import ConfigurationError
from posthouse.testing import Harness
from posthouse.watch.status import drained


class Shop:
    """Two services: what one says, the other books and answers, and the first hears that."""

    def __init__(self) -> None:
        self.orders, self.billing = Service("orders"), Service("billing")
        self.heard: list[tuple[str, str]] = []

        @self.orders.event("order.placed.v1", key="order_id")
        class Placed(Payload):
            order_id: str

        @self.billing.event("invoice.issued.v1", key="order_id")
        class Issued(Payload):
            order_id: str

        @self.billing.on(Placed)
        async def issue(event: Event[Placed], tx: Tx) -> Issued:
            self.heard.append(("billing", event.producer.service if event.producer else ""))
            return Issued(order_id=event.data.order_id)

        @self.orders.on(Issued)
        async def note(event: Event[Issued], tx: Tx) -> None:
            self.heard.append(("orders", event.producer.service if event.producer else ""))

        self.placed = Placed


# Several services.


async def test_services_of_one_app_share_a_store_a_broker_and_a_relay(tmp_path: Path) -> None:
    shop = Shop()
    app = App(shop.orders, shop.billing, store=f"sqlite:///{tmp_path}/shop.db", broker=f"embedded:///{tmp_path}/log.db")
    async with app.running():
        runtime = await app.opened.prepare()
        assert [consumer.name for consumer in runtime.consumers] == ["orders", "billing"]
        async with shop.orders.transaction("t1") as tx:
            tx.publish(shop.placed(order_id="o1"))
        figures = await drained(shop.orders, shop.billing)
        assert app_of(shop.orders).store is app_of(shop.billing).store
    assert shop.heard == [("billing", "orders"), ("orders", "billing")]
    assert {(line.consumer, line.committed, line.applied) for line in figures.lines} == {
        ("orders", 1, 1),
        ("billing", 1, 1),
    }
    assert figures.unsent == {"orders, billing": 0}


class FarBroker(MemoryBroker):
    """It answers with the loop's next turn, as one across a network does."""

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        await asyncio.sleep(0)
        return await super().progress(group, topics)


async def test_an_app_that_is_prepared_twice_at_once_has_one_runtime() -> None:
    shop = Shop()
    app = App(shop.orders, shop.billing, store="sqlite://", broker=FarBroker(clock=SystemClock()))
    first, second = await asyncio.gather(app.opened.prepare(), app.opened.prepare())
    await app.aclose()
    assert first is second


async def test_a_service_of_an_app_says_only_its_own_facts() -> None:
    shop = Shop()
    App(shop.orders, shop.billing, store="sqlite://", broker="memory://")
    async with shop.billing.transaction("t1") as tx:
        with pytest.raises(ConfigurationError, match="belongs to the service 'orders'"):
            tx.publish(shop.placed(order_id="o1"))
    await shop.billing.aclose()


async def test_a_saga_is_started_in_a_transaction_of_its_own_service_though_the_store_is_shared() -> None:
    shop = Shop()

    @shop.orders.saga("delivery", correlate="order_id")
    class Delivery(Saga):
        order_id: str

        @starts
        async def begin(self, turn: Turn) -> None: ...

    App(shop.orders, shop.billing, store="sqlite://", broker="memory://")
    async with shop.billing.transaction("t1") as tx:
        with pytest.raises(ConfigurationError, match="start it in a transaction of orders"):
            await shop.orders.start_saga(tx, Delivery(order_id="o1"))
    await shop.billing.aclose()


async def test_names_that_would_meet_in_one_store_are_refused_at_once() -> None:
    first, second = Service("first"), Service("second")
    for service in (first, second):

        @service.projection("listings").on(Shop().placed)
        async def feed(event: Event[Payload], model: object) -> None: ...

        @service.event("thing.made.v1", key="key")
        class Made(Payload):
            key: str

        service.aggregate("thing", initial=int, evolve=lambda total, _: total, events=(Made,))
    app = App(first, second, store="sqlite://", broker="memory://")
    with pytest.raises(ConfigurationError) as caught:
        await app.open()
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "2 of the services of one App have the aggregate 'thing'",
        "2 of the services of one App have the projection 'listings'",
    ]
    await app.aclose()


async def test_one_app_runs_once_at_a_time_for_all_its_services() -> None:
    shop = Shop()
    app = App(shop.orders, shop.billing, store="sqlite://", broker="memory://")
    async with shop.orders.running():
        with pytest.raises(ConfigurationError, match=r"^orders, billing runs already: one running\(\)"):
            async with shop.billing.running():
                pass
        assert app.opened.runs
        async with shop.orders.transaction("t1") as tx:
            tx.publish(shop.placed(order_id="o1"))
        await drained(shop.orders, shop.billing)
        assert len(shop.heard) == 2, "the one that was refused has closed nothing"
    async with shop.billing.running():
        assert app.opened.runs
    assert not app.opened.runs


def test_an_app_needs_a_service() -> None:
    with pytest.raises(ConfigurationError, match="needs a service"):
        App()


# Who hosts a service.


async def test_a_service_without_an_app_gets_one_of_its_own_with_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shop = Shop()
    async with shop.orders.transaction("t1") as tx:
        tx.publish(shop.placed(order_id="o1"))
    await shop.orders.aclose()
    assert (tmp_path / "orders.db").exists()
    assert app_of(shop.orders).services == (shop.orders,)


async def test_the_app_that_was_made_last_hosts_a_service_also_after_it_was_closed(tmp_path: Path) -> None:
    shop = Shop()
    first = App(shop.orders, store=f"sqlite:///{tmp_path}/first.db", broker="memory://")
    second = App(shop.orders, store=f"sqlite:///{tmp_path}/second.db", broker="memory://")
    async with second.running(), shop.orders.transaction("t1") as tx:
        tx.publish(shop.placed(order_id="o1"))
    assert app_of(shop.orders) is second
    assert (await second.store.counts()).committed == {"orders.order": 1}
    await second.aclose()
    assert not (tmp_path / "first.db").exists()
    assert apps_of([shop.orders]) == [second] != [first]


async def test_set_up_functions_run_in_the_store_of_the_app_that_is_opened_whoever_hosts_the_service(
    tmp_path: Path,
) -> None:
    shop = Shop()

    @shop.orders.setup
    async def tables(tx: Tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS mine (id int)")

    first, second = (App(shop.orders, store=f"sqlite:///{tmp_path}/{n}.db", broker="memory://") for n in (1, 2))
    await first.open()
    async with first.store.begin() as tx:
        assert await tx.execute("SELECT count(*) FROM mine") == [(0,)]
    assert not (tmp_path / "2.db").exists()
    await first.aclose()
    await second.aclose()


async def test_an_outbox_that_was_taken_before_the_app_was_made_writes_to_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shop = Shop()
    outbox = shop.orders.outbox
    app = App(shop.orders, store="sqlite:///shop.db", broker="memory://")
    for number in range(2):
        await app.open()
        with closing(sqlite3.connect("shop.db", isolation_level=None)) as connection:
            connection.execute("BEGIN")
            outbox.add_now(connection, shop.placed(order_id=f"o{number}"))
            connection.execute("COMMIT")
        assert (await app.store.counts()).committed == {"orders.order": number + 1}
        await app.aclose()
    assert not (tmp_path / "orders.db").exists()


async def test_a_harness_gives_services_back_to_the_app_that_had_them() -> None:
    shop = Shop()
    app = App(shop.orders, shop.billing, store="sqlite:///nowhere/shop.db", settings=Settings(in_flight=7))
    async with Harness(shop.orders, shop.billing) as harness:
        assert app_of(shop.orders) is not app
        assert app_of(shop.orders).settings.in_flight == 7
        await harness.publish(shop.placed(order_id="o1"))
        await harness.settled()
    assert app_of(shop.orders) is app_of(shop.billing) is app


async def test_parts_are_those_that_were_given() -> None:
    clock = ManualClock(5.0)
    broker = MemoryBroker(clock=clock)
    app = App(Shop().orders, store="sqlite://", broker=broker, clock=clock)
    assert (app.broker, app.clock, app.opened.ports.store_url, app.opened.ports.broker_url) == (
        broker,
        clock,
        "sqlite://",
        "memory",
    )
    await app.aclose()


async def test_what_was_opened_is_closed_though_the_broker_fails_to() -> None:
    class Failing(MemoryBroker):
        async def aclose(self) -> None:
            raise ZeroDivisionError

    shop = Shop()
    app = App(shop.orders, store="sqlite://", broker=Failing(clock=SystemClock()))
    await app.open()
    store = app.store
    with pytest.raises(ZeroDivisionError):
        await app.aclose()
    assert app.store is not store
    await app.store.aclose()


# Settings.


def test_a_setting_that_does_not_exist_is_answered_with_one_that_does() -> None:
    with pytest.raises(ConfigurationError, match=r"Settings has no option 'in_fligth'\. Did you mean 'in_flight'"):
        Settings(in_fligth=5)  # type: ignore[call-arg]


def test_settings_that_cannot_work_are_told_all_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(limit=0, start="middle", in_flight=0)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 3


# Tenants.


async def test_whoever_has_one_tenant_only_need_not_name_it() -> None:
    shop = Shop()
    async with Harness(shop.orders, shop.billing) as harness:
        async with shop.orders.transaction() as tx:
            tx.publish(shop.placed(order_id="o1"))
        await harness.settled()
        assert [event.tenant for event in await harness.published(shop.placed)] == ["default"]


def test_an_app_has_few_public_names() -> None:
    """A tripwire: what is for the inside belongs to what is `opened`."""
    names = {name for name in dir(App(Service("shop"))) if not name.startswith("_")}
    assert len(names) <= 18, sorted(names)


# A store that every host uses, and a broker that one host sees.

SERVER = "postgresql://shop@nowhere.invalid/shop"


@pytest.mark.parametrize("broker", [None, "embedded:///log.db", "embedded:///log.db?retention=60", "memory://"])
def test_a_store_on_a_server_refuses_a_broker_that_one_host_sees(
    broker: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = App(Shop().orders, store=SERVER, broker=broker)
    with pytest.raises(ConfigurationError) as refused:
        asyncio.run(app.open())
    sentence = str(refused.value)
    assert "consumers on another host would never see its events" in sentence
    assert 'broker="postgresql://…"' in sentence
    assert "POSTHOUSE_BROKER" in sentence
    place = broker or "embedded:///posthouse-log.db"
    assert f"{place}{'&' if '?' in place else '?'}single_host=true" in sentence
    assert not list(tmp_path.iterdir()), "what is refused leaves no file behind"


def test_an_outbox_refuses_it_too_before_anything_is_written() -> None:
    shop = Shop()
    App(shop.orders, store=SERVER)
    with pytest.raises(ConfigurationError, match="single_host=true"):
        shop.orders.outbox.add_now(object(), shop.placed(order_id="o1"), tenant="t1")


@pytest.mark.parametrize("broker", ["embedded:///log.db?single_host=true", "memory://?single_host=1"])
def test_such_a_broker_is_taken_where_it_is_asked_for_by_name(broker: str) -> None:
    assert App(Shop().orders, store=SERVER, broker=broker).opened.ports.reach.judgement == "ok"


def test_a_broker_given_as_an_object_was_asked_for_by_name() -> None:
    assert (
        App(Shop().orders, store=SERVER, broker=MemoryBroker(clock=SystemClock())).opened.ports.reach.judgement == "ok"
    )


@pytest.mark.parametrize("broker", [SERVER, "nats://somewhere:4222", "kafka://somewhere:9092"])
def test_a_broker_that_every_host_reaches_is_not_even_opened_for_that(broker: str) -> None:
    assert App(Shop().orders, store=SERVER, broker=broker).opened.ports.reach.judgement == "ok"


@pytest.mark.parametrize("said", ["single_host=false", "single_host="])
def test_saying_no_is_not_saying_yes(said: str) -> None:
    assert App(Shop().orders, store=SERVER, broker=f"embedded:///log.db?{said}").opened.ports.reach.judgement == "fail"


@pytest.mark.parametrize("broker", ["embedded:///log.db?single_hots=true", "memory://?single_hots=true"])
def test_a_misspelt_single_host_is_answered_with_the_right_one(broker: str) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'single_host'"):
        _ = App(Shop().orders, broker=broker).broker
