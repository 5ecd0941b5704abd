"""Each broker beside its bare client at its best settings, on the same server, in turns.

`publish`: frames of about 1 KiB through the port, confirmed, in calls of 1,000. `receive`: the port alone, ordered and
acknowledged. `consume`: the whole way, once only and in order, one business row per event written by a list handler on
SQLite; the bare client beside it has no database and does nothing with what it gets. A broker takes part with a Plug.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from benchmarks import kafkabare, natsbare, pubsubbare, rabbitmqbare, redisbare, sqsbare
from benchmarks.reading import Reading, Scale, compare
from benchmarks.shop import KINDS, Done, OrderPlaced, create, fill, relay
from posthouse import App, Service
from posthouse.app import app_of
from posthouse.broker import Broker, Frame, Topology
from posthouse.brokers import open_broker
from posthouse.clock import SystemClock, new_id

BATCH = 1000
PUBLISH_GOAL, CONSUME_GOAL = 0.7, 0.5
BODY = b'{"order_id":"o1","note":"' + b"x" * 900 + b'"}'
HEADERS = {"content-type": "application/cloudevents+json; charset=utf-8"}


class Bare(Protocol):
    """The driver as a careful user would drive it: durable, confirmed, pipelined."""

    async def publish(self, topic: str, frames: Sequence[Frame]) -> None:
        """Store them; return when the server has confirmed every one."""
        ...

    async def consume(self, topic: str, count: int) -> None:
        """Get so many from the beginning, as a new group, and acknowledge them."""
        ...


@runtime_checkable
class Expecting(Protocol):
    """A bare client of a broker without history: it must be there before the frames are."""

    async def expect(self, topic: str, times: int) -> None:
        """Make so many groups; each later `consume` of the topic is one of them."""
        ...


class Plug(Protocol):
    """What a broker gives: a server, and its bare client."""

    def serving(self) -> AbstractContextManager[str]:
        """A new server; its URL."""
        ...

    def bare(self, url: str) -> AbstractAsyncContextManager[Bare]: ...


PLUGS: Mapping[str, Callable[[], Plug]] = {
    "kafka": kafkabare.KafkaPlug,
    "sqs": sqsbare.SqsPlug,
    "nats": natsbare.NatsPlug,
    "rabbitmq": rabbitmqbare.RabbitmqPlug,
    "redis": redisbare.RedisPlug,
    "pubsub": pubsubbare.PubSubPlug,
}


async def measure(name: str, folder: Path, scale: Scale) -> list[Reading]:
    """Publish, receive and consume of one broker."""
    plug = PLUGS[name]()
    with plug.serving() as url:
        async with plug.bare(url) as bare, opened(url) as broker:
            return [
                await publish(name, broker, bare, scale),
                await receive(name, broker, bare, scale),
                await consume(name, url, bare, folder, scale),
            ]


async def publish(name: str, broker: Broker, bare: Bare, scale: Scale) -> Reading:
    count = scale.count(20_000)

    async def ours(number: int) -> float:
        frames = await prepared(broker, count)
        began = time.perf_counter()
        for batch in batches(frames):
            refused = [verdict.reason for verdict in await broker.publish(batch) if not verdict.accepted]
            if refused:
                raise RuntimeError(f"{name} refused {len(refused)} frames: {refused[0]}")
        return time.perf_counter() - began

    async def theirs(number: int) -> float:
        frames = await prepared(broker, count)
        began = time.perf_counter()
        for batch in batches(frames):
            await bare.publish(frames[0].topic, batch)
        return time.perf_counter() - began

    return await compare(f"{name} publish", ours, theirs, rounds=scale.turns(5), count=count, goal=PUBLISH_GOAL)


async def receive(name: str, broker: Broker, bare: Bare, scale: Scale) -> Reading:
    count = scale.count(20_000)
    frames, rounds = await prepared(broker, count), scale.turns(5)
    topic = frames[0].topic
    groups = [f"reader-{new_id()}" for _ in range(rounds + 1)]
    await expect(broker, bare, topic, groups)
    for batch in batches(frames):
        await broker.publish(batch)

    async def ours(number: int) -> float:
        began = time.perf_counter()
        stream = await broker.subscribe(groups[number], [topic])
        left = count
        while left:
            got = await stream.receive(500, 10.0)
            await stream.ack(got)
            left -= len(got)
        took = time.perf_counter() - began
        await stream.aclose()
        return took

    async def theirs(number: int) -> float:
        began = time.perf_counter()
        await bare.consume(topic, count)
        return time.perf_counter() - began

    return await compare(f"{name} receive", ours, theirs, rounds=rounds, count=count)


async def consume(name: str, url: str, bare: Bare, folder: Path, scale: Scale) -> Reading:
    count = scale.count(10_000)
    namespace = f"shop{new_id()[-6:]}"
    orders = Service("orders", namespace=namespace)
    App(orders, store=f"sqlite:///{folder / 'orders.db'}", broker=url)
    orders.event("order.placed.v1", key="order_id")(OrderPlaced)
    orders.setup(create)
    await app_of(orders).open()
    topic, rounds = f"{namespace}.orders.order", scale.turns(5)
    await expect(app_of(orders).broker, bare, topic, [f"billing{number}" for number in range(rounds + 1)])
    await fill(orders, count)
    await relay(orders)
    await orders.aclose()

    async def ours(number: int) -> float:
        place = f"billing{number}"
        billing = Service(place, namespace=namespace)
        App(billing, store=f"sqlite:///{folder / place}.db", broker=url)
        billing.external(f"{namespace}.orders.order.placed.v1", key="order_id")(OrderPlaced)
        billing.setup(create)
        done = Done(count)
        KINDS["list"](billing, done)
        [consumer] = (await app_of(billing).opened.prepare()).consumers
        began = time.perf_counter()
        await consumer.run(done.stop)
        took = time.perf_counter() - began
        await billing.aclose()
        return took

    async def theirs(number: int) -> float:
        began = time.perf_counter()
        await bare.consume(topic, count)
        return time.perf_counter() - began

    return await compare(f"{name} consume, once only", ours, theirs, rounds=rounds, count=count, goal=CONSUME_GOAL)


async def expect(broker: Broker, bare: Bare, topic: str, groups: Sequence[str]) -> None:
    """Make the groups of all rounds now: not every broker gives a new group what was there before it."""
    await broker.ensure(Topology(groups={group: [topic] for group in groups}))
    if isinstance(bare, Expecting):
        await bare.expect(topic, len(groups))


async def prepared(broker: Broker, count: int) -> list[Frame]:
    """Frames of 1,000 keys for a topic of their own."""
    topic = f"bench{new_id()[-8:]}"
    await broker.ensure(Topology(topics=[topic]))
    return [Frame(topic=topic, id=new_id(), key=f"t1:o{n % 1000}", body=BODY, headers=HEADERS) for n in range(count)]


def batches(frames: Sequence[Frame]) -> list[Sequence[Frame]]:
    return [frames[first : first + BATCH] for first in range(0, len(frames), BATCH)]


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Broker]:
    broker = open_broker(url, clock=SystemClock())
    try:
        yield broker
    finally:
        await broker.aclose()
