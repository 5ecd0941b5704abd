"""One topic per aggregate, or one per subject: both carry every event; only the first orders across types."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Broker
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.brokers.nats import NatsBroker
from posthouse.clock import SystemClock, new_id
from posthouse.contracts import Topics
from posthouse.testing import rehost
from tests.kit.running import at_work
from tests.kit.shop import OrderPlaced

PATIENCE = 30.0
ROUNDS = 4


class OrderChanged(Payload):
    order_id: str
    number: int


class OrderCancelled(Payload):
    order_id: str
    number: int


KINDS = (OrderPlaced, OrderChanged, OrderCancelled)
Step = OrderPlaced | OrderChanged | OrderCancelled


class Shop:
    """`orders` tells the life of an order in three types; `billing` writes down what it hears, in the order of hearing.
    While `closed`, it fails on what was placed."""

    def __init__(self, folder: Path, topics: Topics, brokers: tuple[Broker, Broker]) -> None:
        self.closed = False
        namespace = f"shop{new_id()[-8:]}"
        self.orders = Service("orders", namespace=namespace, topics=topics)
        self.billing = Service("billing", namespace=namespace, topics=topics)
        for kind, verb in zip(KINDS, ("placed", "changed", "cancelled"), strict=True):
            self.orders.event(f"order.{verb}.v1", key="order_id")(kind)
        self.billing.setup(self._tables)
        self.billing.on(*KINDS, policy=Policy(max_attempts=1000, first_delay=0.05, last_delay=0.1))(self._write)
        for service, broker in zip((self.orders, self.billing), brokers, strict=True):
            rehost(service, store=f"sqlite:///{folder / service.name}.db", broker=broker, clock=SystemClock())

    async def _tables(self, tx: Tx) -> None:
        await tx.execute(
            "CREATE TABLE IF NOT EXISTS heard (id INTEGER PRIMARY KEY, order_id TEXT, kind TEXT, number INT)"
        )

    async def _write(self, event: Event[Step], tx: Tx) -> None:
        if self.closed and isinstance(event.data, OrderPlaced):
            raise RuntimeError("the ledger is closed")
        row = (event.data.order_id, type(event.data).__name__, event.data.number)
        await tx.execute("INSERT INTO heard (order_id, kind, number) VALUES (?, ?, ?)", row)

    async def say(self, *facts: Step) -> None:
        for fact in facts:
            async with self.orders.transaction("t1") as tx:
                tx.publish(fact)

    async def heard(self, count: int) -> list[tuple[object, ...]]:
        """What was written, once it is so much."""
        deadline = time.monotonic() + PATIENCE
        while True:
            async with self.billing.transaction("t1") as tx:
                rows = [tuple(row) for row in await tx.execute("SELECT order_id, kind, number FROM heard ORDER BY id")]
            if len(rows) >= count:
                return rows
            assert time.monotonic() < deadline, rows
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(shop: Shop) -> AsyncIterator[Shop]:
    async with contextlib.aclosing(shop.orders), contextlib.aclosing(shop.billing):
        runtimes = [await app_of(service).opened.prepare() for service in (shop.orders, shop.billing)]
        async with at_work(*(runtime.run for runtime in runtimes)):
            yield shop


@pytest.fixture(params=["embedded", "nats"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Broker, Broker]:
    if request.param == "nats":
        url = request.getfixturevalue("nats_server").url
        return NatsBroker(url, clock=SystemClock()), NatsBroker(url, clock=SystemClock())
    path = tmp_path / "log.db"
    return EmbeddedBroker(path, clock=SystemClock()), EmbeddedBroker(path, clock=SystemClock())


def life(order_id: str) -> list[Step]:
    return [kind(order_id=order_id, number=number) for number in range(ROUNDS) for kind in KINDS]


def written(fact: Step) -> tuple[object, ...]:
    return fact.order_id, type(fact).__name__, fact.number


async def test_one_topic_per_aggregate_keeps_the_order_of_all_types_of_a_key(
    tmp_path: Path, brokers: tuple[Broker, Broker]
) -> None:
    async with running(Shop(tmp_path, "aggregate", brokers)) as shop:
        namespace = shop.orders.namespace
        assert app_of(shop.billing).opened.topology().groups == {"billing": [f"{namespace}.orders.order"]}
        names = ["o1", "o2", "o3"]
        await asyncio.gather(*(shop.say(*life(name)) for name in names))
        found = await shop.heard(3 * ROUNDS * len(names))
        for name in names:
            assert [row for row in found if row[0] == name] == [written(fact) for fact in life(name)]
        assert len(found) == 3 * ROUNDS * len(names)


async def test_one_topic_per_subject_applies_each_once_and_keeps_the_order_within_a_type(
    tmp_path: Path, brokers: tuple[Broker, Broker]
) -> None:
    async with running(Shop(tmp_path, "subject", brokers)) as shop:
        topics = [f"{shop.orders.namespace}.orders.order.{verb}.v1" for verb in ("cancelled", "changed", "placed")]
        assert app_of(shop.billing).opened.topology().groups == {"billing": topics}
        names = ["o1", "o2", "o3"]
        await asyncio.gather(*(shop.say(*life(name)) for name in names))
        found = await shop.heard(3 * ROUNDS * len(names))
        for name in names:
            for kind in KINDS:
                mine = [number for order_id, told, number in found if (order_id, told) == (name, kind.__name__)]
                assert mine == list(range(ROUNDS))
        assert len(found) == 3 * ROUNDS * len(names)


async def test_a_later_type_waits_behind_an_earlier_one_only_on_the_aggregates_topic(
    tmp_path: Path, brokers: tuple[Broker, Broker]
) -> None:
    placed, cancelled = OrderPlaced(order_id="o1", number=1), OrderCancelled(order_id="o1", number=1)
    other = OrderChanged(order_id="o2", number=1)
    async with running(Shop(tmp_path, "aggregate", brokers)) as shop:
        shop.closed = True
        await shop.say(placed, cancelled, other)
        assert await shop.heard(1) == [written(other)]
        shop.closed = False
        assert (await shop.heard(3))[1:] == [written(placed), written(cancelled)]


async def test_a_later_type_may_come_first_where_each_subject_has_a_topic(
    tmp_path: Path, brokers: tuple[Broker, Broker]
) -> None:
    placed, cancelled = OrderPlaced(order_id="o1", number=1), OrderCancelled(order_id="o1", number=1)
    async with running(Shop(tmp_path, "subject", brokers)) as shop:
        shop.closed = True
        await shop.say(placed, cancelled)
        assert await shop.heard(1) == [written(cancelled)]
        shop.closed = False
        assert await shop.heard(2) == [written(cancelled), written(placed)]
