"""What is special to Pub/Sub: leases, counted deliveries, settings, other people's clients, and Google's own fake."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from cloudevents.core.bindings import http
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.types import PubsubMessage, Subscription

from benchmarks import brokers
from benchmarks.reading import Scale
from posthouse import App, Event, Payload, Service
from posthouse.broker import Frame, Topology
from posthouse.brokers.pubsub import PubSubBroker
from posthouse.brokers.pubsub.checks import seconds
from posthouse.brokers.pubsub.client import Client
from posthouse.brokers.pubsub.stream import PubSubStream
from posthouse.clock import ManualClock, SystemClock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.service import Envelope
from tests.kit.frames import collect, frames
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.pubsub import PubSubServer, running
from tests.kit.strangers import KEY, WIRES, hearing, telling
from tests.kit.waiting import eventually

TOLD = {"eventId", "eventType", "eventVersion", "tenantId", "idempotencyKey"}


class Made(Payload):
    name: str


class Bare:
    """Somebody else's client."""

    def __init__(self, wire: Client) -> None:
        self._client = wire

    @property
    def publisher(self) -> PublisherAsyncClient:
        return self._client.publisher

    @property
    def subscriber(self) -> SubscriberAsyncClient:
        return self._client.subscriber

    async def subscribe(self, topic: str) -> str:
        name = f"projects/shop/subscriptions/theirs-{new_id()}"
        made = Subscription(name=name, topic=f"projects/shop/topics/{topic}", ack_deadline_seconds=10)
        await self.subscriber.create_subscription(made)
        return name

    async def pull(self, subscription: str) -> PubsubMessage:
        async with asyncio.timeout(20):
            while True:
                answer = await self.subscriber.pull(subscription=subscription, max_messages=1)
                for received in answer.received_messages:
                    await self.subscriber.acknowledge(subscription=subscription, ack_ids=[received.ack_id])
                    return received.message

    async def say(self, topic: str, message: PubsubMessage) -> None:
        await self.publisher.publish(topic=f"projects/shop/topics/{topic}", messages=[message])


@pytest_asyncio.fixture
async def broker(pubsub_server: PubSubServer) -> AsyncIterator[PubSubBroker]:
    broker = PubSubBroker("shop", emulator=pubsub_server.address, clock=SystemClock(), lease=2)
    yield broker
    await broker.aclose()


@pytest_asyncio.fixture
async def bare(pubsub_server: PubSubServer) -> AsyncIterator[Bare]:
    wire = Client("shop", emulator=pubsub_server.address)
    yield Bare(wire)
    await wire.aclose()


@pytest_asyncio.fixture
async def topic(broker: PubSubBroker) -> str:
    name = f"shop.orders.order{new_id()[-8:]}"
    await broker.ensure(Topology(topics=[name], groups={"g": [name]}))
    return name


@pytest.fixture
def own_server() -> Iterator[PubSubServer]:
    """A server that this test has to itself."""
    with running() as server:
        yield server


# Leases


async def test_frames_in_hand_stay_ours_for_longer_than_the_ack_deadline(broker: PubSubBroker, topic: str) -> None:
    stream = await broker.subscribe("g", [topic])
    await broker.publish(frames(topic, 3))
    mine = await collect(stream, 3, ack=False)
    heir = await broker.subscribe("g", [topic])
    assert list(await heir.receive(10, 2 * 2.0)) == [], "twice the ack deadline"
    await stream.ack(mine)
    await stream.aclose()
    assert list(await heir.receive(10, 0.3)) == []


async def test_acks_after_the_lease_are_not_even_sent(pubsub_server: PubSubServer, topic: str) -> None:
    clock = ManualClock(time.time())
    sleeper = PubSubBroker("shop", emulator=pubsub_server.address, clock=clock, lease=1)
    stream = await sleeper.subscribe("g", [topic])
    await sleeper.publish(frames(topic, 2))
    got = await collect(stream, 2, ack=False)
    async with asyncio.timeout(20):
        while (await sleeper.progress("g", [topic]))[topic].pending:  # noqa: ASYNC110 - the lease ends by itself
            await asyncio.sleep(0.02)
    await stream.ack(got)
    await sleeper.aclose()
    heir = PubSubBroker("shop", emulator=pubsub_server.address, clock=SystemClock(), lease=2)
    again = await collect(await heir.subscribe("g", [topic]), 2)
    assert [delivery.frame for delivery in again] == [delivery.frame for delivery in got]
    assert all(delivery.redelivered for delivery in again)
    await heir.aclose()


async def test_a_subscription_that_counts_no_deliveries_has_only_possible_repeats(
    broker: PubSubBroker, bare: Bare, topic: str
) -> None:
    made = Subscription(
        name=f"projects/shop/subscriptions/byhand.{topic}.sub",
        topic=f"projects/shop/topics/{topic}",
        ack_deadline_seconds=10,
        enable_message_ordering=True,
    )
    await bare.subscriber.create_subscription(made)
    await broker.publish(frames(topic, 2))
    assert all(delivery.redelivered for delivery in await collect(await broker.subscribe("byhand", [topic]), 2))


async def test_what_waits_behind_a_frame_handed_back_is_not_sent_twice(broker: PubSubBroker, topic: str) -> None:
    stream = await broker.subscribe("g", [topic])
    await broker.publish(frames(topic, 4))
    first, second, *_ = await collect(stream, 4, ack=False)
    await stream.ack([second])
    await stream.nack([first])
    (again,) = await collect(stream, 1, ack=False)
    assert (again.frame, again.redelivered) == (first.frame, True)
    assert list(await stream.receive(10, 0.3)) == []


async def test_a_member_that_leaves_hands_over_long_before_its_lease_ends(
    pubsub_server: PubSubServer, broker: PubSubBroker, topic: str
) -> None:
    leaver = PubSubBroker("shop", emulator=pubsub_server.address, clock=SystemClock(), lease=60)
    stream = await leaver.subscribe("g", [topic])
    await broker.publish(frames(topic, 3))
    got = await collect(stream, 2, ack=False)
    await leaver.aclose()
    again = await collect(await broker.subscribe("g", [topic]), 3)
    assert [delivery.frame for delivery in again[:2]] == [delivery.frame for delivery in got]


async def test_what_waits_in_a_member_is_not_handed_out_after_a_seek_past_it(broker: PubSubBroker, topic: str) -> None:
    stream = await broker.subscribe("g", [topic])
    await broker.publish(frames(topic, 10))
    await collect(stream, 1)
    async with asyncio.timeout(20):
        while (await broker.progress("g", [topic]))[topic].pending < 9:  # noqa: ASYNC110 - they arrive by themselves
            await asyncio.sleep(0.02)
    await broker.seek("g", topic, time=time.time() + 1000)
    assert list(await stream.receive(10, 0.3)) == []


# Outages


async def test_a_server_that_is_not_there_is_unavailable_at_once_and_used_when_it_comes() -> None:
    with running() as server:
        server.end(signal.SIGKILL)
        broker = PubSubBroker("shop", emulator=server.address, clock=SystemClock(), timeout=1.0)
        began = time.monotonic()
        with pytest.raises(BrokerUnavailable, match="Pub/Sub, making topic"):
            await broker.ensure(Topology(topics=["late"]))
        assert time.monotonic() - began < 5
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(20):
            while True:
                try:
                    await broker.ensure(Topology(topics=["late"]))
                    break
                except BrokerUnavailable:
                    await asyncio.sleep(0.05)
        assert [verdict.accepted for verdict in await broker.publish(frames("late", 2))] == [True, True]
        await broker.aclose()


async def test_a_killed_server_is_used_again_when_it_is_back(own_server: PubSubServer) -> None:
    """The emulator forgets everything, so the topology is made again; the stream goes on by itself."""
    broker = PubSubBroker("shop", emulator=own_server.address, clock=SystemClock(), lease=2, timeout=1.0)
    topology = Topology(groups={"g": ["shop.order"]})
    await broker.ensure(topology)
    stream = await broker.subscribe("g", ["shop.order"])
    await broker.publish(frames("shop.order", 3))
    await collect(stream, 3)
    own_server.end(signal.SIGKILL)
    with pytest.raises(BrokerUnavailable):
        await broker.publish(frames("shop.order", 1))
    with pytest.raises(BrokerUnavailable, match="pulling"):
        await stream.receive(1, 20)
    await asyncio.to_thread(own_server.start)
    later, got = frames("shop.order", 3), set[str]()
    async with asyncio.timeout(20):
        while got != {frame.id for frame in later}:
            try:
                await broker.ensure(topology)
                if not got:
                    assert all(verdict.accepted for verdict in await broker.publish(later))
                batch = await stream.receive(10, 1.0)
                got |= {delivery.frame.id for delivery in batch}
                await stream.ack(batch)
            except BrokerUnavailable:
                await asyncio.sleep(0.05)
    await broker.aclose()


async def test_a_stalled_link_ends_the_lease_and_another_member_takes_over(
    pubsub_server: PubSubServer, broker: PubSubBroker, topic: str
) -> None:
    async with Proxy("127.0.0.1", pubsub_server.port) as proxy:
        far = PubSubBroker("shop", emulator=f"127.0.0.1:{proxy.port}", clock=SystemClock(), lease=2, timeout=0.5)
        stream = await far.subscribe("g", [topic])
        await broker.publish(frames(topic, 4))
        got = await collect(stream, 4, ack=False)
        await proxy.stall()
        heir = await broker.subscribe("g", [topic])
        again = await collect(heir, 4)
        assert [delivery.frame for delivery in again] == [delivery.frame for delivery in got]
        assert all(delivery.redelivered for delivery in again)
        with pytest.raises(BrokerUnavailable):
            await stream.receive(10, 20)
        await proxy.heal()
        await far.aclose()


async def test_an_ack_that_did_not_get_through_is_said_again(
    pubsub_server: PubSubServer, broker: PubSubBroker, topic: str
) -> None:
    async with Proxy("127.0.0.1", pubsub_server.port) as proxy:
        far = PubSubBroker("shop", emulator=f"127.0.0.1:{proxy.port}", clock=SystemClock(), lease=5, timeout=0.5)
        stream = await far.subscribe("g", [topic])
        await broker.publish(frames(topic, 4))
        got = await collect(stream, 4, ack=False)
        await proxy.cut()
        with pytest.raises(BrokerUnavailable, match="acknowledging"):
            await stream.ack(got)
        await proxy.heal()
        async with asyncio.timeout(20):
            while (await far.progress("g", [topic]))[topic].pending:  # noqa: ASYNC110 - the renewal does it
                await asyncio.sleep(0.02)
        await far.aclose()
    heir = await broker.subscribe("g", [topic])
    assert list(await heir.receive(10, 0.5)) == []


async def test_a_topic_deleted_while_running_refuses_its_frames_and_others_flow(
    broker: PubSubBroker, bare: Bare, topic: str
) -> None:
    other = f"{topic}.other"
    await broker.ensure(Topology(topics=[other]))
    await bare.publisher.delete_topic(topic=f"projects/shop/topics/{topic}")
    lost, stored = await broker.publish([*frames(topic, 1), *frames(other, 1)])
    assert (lost.accepted, lost.final, stored.accepted) == (False, False, True)
    assert "ensure()" in lost.reason
    await broker.ensure(Topology(topics=[topic]))
    assert [verdict.accepted for verdict in await broker.publish(frames(topic, 1))] == [True]
    (found,) = [check for check in await broker.checks() if check.judgement == "warn" and topic in check.name]
    assert "its topic was deleted" in found.fix
    with pytest.raises(BrokerError, match="its topic was deleted"):
        await broker.subscribe("g", [topic])


async def test_a_subscription_for_a_topic_that_does_not_exist_is_an_error(broker: PubSubBroker) -> None:
    with pytest.raises(BrokerError, match=r"'never\.made' does not exist"):
        await broker.subscribe("g", ["never.made"])


# Frames


@pytest.mark.parametrize("length", [1024, 1025, 1281])
async def test_a_key_longer_than_an_ordering_key_comes_back_whole_and_in_order(
    broker: PubSubBroker, topic: str, length: int
) -> None:
    sent = [Frame(topic=topic, id=str(number), key="k" * length, body=b"") for number in range(20)]
    assert all(verdict.accepted for verdict in await broker.publish(sent))
    got = await collect(await broker.subscribe("g", [topic]), len(sent))
    assert [delivery.frame for delivery in got] == sent


async def test_nothing_overtakes_a_frame_with_a_header_that_cannot_be_sent(broker: PubSubBroker, topic: str) -> None:
    refused, behind, neighbour = await broker.publish(
        [
            Frame(topic=topic, id="1", key="a", body=b"", headers={"google-thing": "x"}),
            Frame(topic=topic, id="2", key="a", body=b""),
            Frame(topic=topic, id="3", key="b", body=b""),
        ]
    )
    assert (refused.accepted, refused.final) == (False, True)
    assert (behind.accepted, behind.final) == (False, False)
    assert neighbour.accepted


async def test_a_header_of_many_kilobytes_comes_back_whole(broker: PubSubBroker, topic: str) -> None:
    headers = {"ph-stack": "Zeile ☃ " * 2000, "short": "x", "exact": "e" * 1024}
    frame = Frame(topic=topic, id="1", key="k", body=b"", headers=headers)
    assert [verdict.accepted for verdict in await broker.publish([frame])] == [True]
    (delivery,) = await collect(await broker.subscribe("g", [topic]), 1)
    assert delivery.frame == frame


async def test_a_call_larger_than_a_request_is_stored_in_order(broker: PubSubBroker, topic: str) -> None:
    """2,500 frames of one key and some of four megabytes: several requests, one after the other."""
    sent = frames(topic, 2500)
    sent[700:700] = [Frame(topic=topic, id=f"big{n}", key="k0", body=bytes(4_000_000)) for n in range(3)]
    assert all(verdict.accepted for verdict in await broker.publish(sent))
    stream = await broker.subscribe("g", [topic], window=5000)
    got = await collect(stream, len(sent))
    assert [delivery.frame.id for delivery in got] == [frame.id for frame in sent]


# Settings


async def test_subscriptions_say_in_their_settings_what_the_promise_rests_on(
    broker: PubSubBroker, bare: Bare, topic: str
) -> None:
    found = await bare.subscriber.get_subscription(subscription=f"projects/shop/subscriptions/g.{topic}.sub")
    assert found.enable_message_ordering
    assert found.retain_acked_messages
    assert not found.enable_exactly_once_delivery
    assert "ttl" not in found.expiration_policy
    assert "expiration_policy" in found
    assert seconds(found.message_retention_duration) == 7 * 86_400
    assert found.dead_letter_policy.max_delivery_attempts == 100
    lost = await bare.subscriber.get_subscription(subscription="projects/shop/subscriptions/posthouse.lost")
    assert lost.topic == found.dead_letter_policy.dead_letter_topic, "what reaches it must be kept"
    assert not [check for check in await broker.checks() if check.judgement != "ok" and f"g.{topic}.sub" in check.name]


async def test_checks_say_what_weakens_the_promise(broker: PubSubBroker, bare: Bare, topic: str) -> None:
    made = Subscription(
        name=f"projects/shop/subscriptions/weak.{topic}.sub", topic=f"projects/shop/topics/{topic}", filter="a"
    )
    await bare.subscriber.create_subscription(made)
    found = {
        check.name.rpartition(", ")[2]: check.judgement
        for check in await broker.checks()
        if f"weak.{topic}.sub" in check.name
    }
    assert found == {
        "topic": "ok",
        "order": "warn",
        "filter": "warn",
        "deliveries": "warn",
        "limit of deliveries": "ok",
        "retention": "warn",
        "seek": "warn",
        "expiry": "ok",
    }
    assert any("emulator" in note for note in broker.sheet.notes)
    with pytest.raises(BrokerError, match="enable_message_ordering"):
        await broker.subscribe("weak", [topic])
    await bare.subscriber.delete_subscription(subscription=made.name)


async def test_ensure_changes_nothing_that_exists(broker: PubSubBroker, bare: Bare, topic: str) -> None:
    name = f"projects/shop/subscriptions/g.{topic}.sub"
    before = await bare.subscriber.get_subscription(subscription=name)
    other = PubSubBroker("shop", emulator=broker_address(broker), clock=SystemClock(), lease=500, retention=600)
    await other.ensure(Topology(groups={"g": [topic]}))
    assert await bare.subscriber.get_subscription(subscription=name) == before
    await other.aclose()


def broker_address(broker: PubSubBroker) -> str:
    address = broker._client.emulator
    assert address is not None
    return address


# Other people's clients


@WIRES
async def test_a_bare_consumer_and_the_cloudevents_sdk_read_what_we_publish(
    broker: PubSubBroker, bare: Bare, tmp_path: Path, wire: str
) -> None:
    async with telling(broker, tmp_path, wire) as orders:
        theirs = await bare.subscribe(orders.topic)
        await orders.tell()
        message = await bare.pull(theirs)
        orders.assert_told(http.from_http_event(http.HTTPMessage(headers=dict(message.attributes), body=message.data)))
        assert message.ordering_key == KEY


@WIRES
async def test_we_apply_what_a_bare_publisher_and_the_cloudevents_sdk_say(
    broker: PubSubBroker, bare: Bare, tmp_path: Path, wire: str
) -> None:
    async with hearing(broker, tmp_path) as billing:
        message = billing.message(wire)
        await bare.say(billing.topic, PubsubMessage(data=message.body, attributes=dict(message.headers)))
        await billing.assert_heard()


@pytest.mark.parametrize("wire", ["structured", "binary", "melmastoon"])
async def test_attributes_tell_id_type_version_tenant_and_intent_in_every_format(
    broker: PubSubBroker, bare: Bare, tmp_path: Path, wire: Envelope
) -> None:
    shop, mark = Service("shop", envelope=wire), new_id()[-8:]
    shop.event(f"thing{mark}.made.v2", key="name")(Made)
    App(shop, store=f"sqlite:///{tmp_path}/shop.db", broker=broker)
    heard: list[Event[Made]] = []

    @shop.on(Made)
    async def hear(event: Event[Made]) -> None:
        heard.append(event)

    async with shop.running():
        theirs = await bare.subscribe(f"shop.thing{mark}")
        async with shop.transaction("größe") as tx:
            id = tx.publish(Made("n1"), idempotency_key="shop:thing:n1 50%")
        message = await bare.pull(theirs)
        await eventually(lambda: heard)
    told = {name: value for name, value in message.attributes.items() if name in TOLD}
    assert told == {
        "eventId": id,
        "eventType": f"shop.thing{mark}.made",
        "eventVersion": "2",
        "tenantId": "gr%C3%B6%C3%9Fe",
        "idempotencyKey": "shop:thing:n1 50%25",
    }
    assert (heard[0].tenant, heard[0].idempotency_key) == ("größe", "shop:thing:n1 50%")
    assert len(message.attributes) <= 100


async def test_a_bare_message_has_the_id_that_the_service_gave_it(broker: PubSubBroker, bare: Bare, topic: str) -> None:
    theirs = await bare.subscribe(topic)
    await bare.say(topic, PubsubMessage(data=b"hello", attributes={"X-Colour": "blue", "odd~1": "o"}))
    (delivery,) = await collect(await broker.subscribe("g", [topic]), 1)
    message = await bare.pull(theirs)
    assert delivery.frame == Frame(
        topic=topic, id=message.message_id, body=b"hello", headers={"x-colour": "blue", "odd~1": "o"}
    )


async def test_the_benchmark_of_pubsub_measures_what_it_says(tmp_path: Path) -> None:
    readings = await brokers.measure("pubsub", tmp_path, Scale(share=0.0, rounds=1))
    assert [reading.measure for reading in readings] == [
        "pubsub publish",
        "pubsub receive",
        "pubsub consume, once only",
    ]
    assert all(reading.ours > 0 and reading.ratio for reading in readings)


async def test_a_member_whose_task_ended_says_so_and_another_subscribe_gets_everything(
    broker: PubSubBroker, topic: str
) -> None:
    stream = await broker.subscribe("g", [topic])
    assert isinstance(stream, PubSubStream)
    stream._tasks[-1].cancel()
    await asyncio.wait(stream._tasks[-1:])
    with pytest.raises(BrokerUnavailable, match="a task of this member ended"):
        await stream.receive(1, 20.0)
    with pytest.raises(BrokerUnavailable, match="a task of this member ended"):
        await stream.ack([])
    await stream.aclose()
    sent = Frame(topic=topic, id=new_id(), key="k", body=b"x")
    await broker.publish([sent])
    [got] = await (await broker.subscribe("g", [topic])).receive(1, 20.0)
    assert got.frame.id == sent.id
