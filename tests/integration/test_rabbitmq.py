"""What is special to RabbitMQ: full, deleted and foreign queues, frames that nobody reads, and other people's clients."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aio_pika
import pytest
import pytest_asyncio
from aio_pika.abc import AbstractChannel, HeadersType
from cloudevents.core.bindings import amqp, rabbitmq
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from pamqp.common import FieldTable

from posthouse.broker import Frame, Stream, Topology
from posthouse.brokers.rabbitmq import RabbitmqBroker
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError
from tests.kit.frames import collect, frames
from tests.kit.servers.rabbitmq import RabbitmqServer, running
from tests.kit.strangers import KEY, WIRES, hearing, telling
from tests.kit.waiting import eventually

LANE: FieldTable = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": 1_000_000_000}


@pytest_asyncio.fixture
async def broker(rabbitmq_server: RabbitmqServer) -> AsyncIterator[RabbitmqBroker]:
    broker = RabbitmqBroker(rabbitmq_server.url, clock=SystemClock(), partitions=1, heartbeat=1, settle=0)
    yield broker
    await broker.aclose()


@pytest_asyncio.fixture
async def bare(rabbitmq_server: RabbitmqServer) -> AsyncIterator[AbstractChannel]:
    """Somebody else's client."""
    async with await aio_pika.connect(rabbitmq_server.url.replace("rabbitmq", "amqp")) as connection:
        yield await connection.channel()


@pytest_asyncio.fixture
async def topic(broker: RabbitmqBroker) -> str:
    name = f"shop.orders.order{new_id()[-6:]}"
    await broker.ensure(Topology(topics=[name]))
    return name


async def ready(bare: AbstractChannel, queue: str) -> int | None:
    return (await bare.declare_queue(queue, passive=True)).declaration_result.message_count


# Queues that are full, gone, or not ours


async def test_a_full_lane_refuses_and_nothing_of_a_key_overtakes(
    broker: RabbitmqBroker, bare: AbstractChannel, topic: str
) -> None:
    limits: FieldTable = {**LANE, "x-max-length": 3, "x-overflow": "reject-publish"}
    lane = await bare.declare_queue(f"g.{topic}.0of1", durable=True, arguments=limits)
    await lane.bind(topic, "#")
    sent, refused = frames(topic, 200, keys=2), 0
    stream = await broker.subscribe("g", [topic], window=1)
    reading = asyncio.create_task(_read(stream, len(sent)))  # there is room again while the frames come
    left = sent
    async with asyncio.timeout(30):
        while left:
            verdicts = await broker.publish(left)
            for key in ("k0", "k1"):
                accepted = [v.accepted for f, v in zip(left, verdicts, strict=True) if f.key == key]
                assert accepted == sorted(accepted, reverse=True), "a later frame was taken after a refusal"
            assert not any(verdict.final for verdict in verdicts)
            refused += sum(not verdict.accepted for verdict in verdicts)
            left = [f for f, v in zip(left, verdicts, strict=True) if not v.accepted]
        seen = await reading
    assert refused > 0, "the lane was never full"
    for key in ("k0", "k1"):
        assert [id_ for name, id_ in seen if name == key] == [frame.id for frame in sent if frame.key == key]


async def _read(stream: Stream, count: int) -> list[tuple[str | None, str]]:
    seen: list[tuple[str | None, str]] = []
    while len(seen) < count:
        seen += [(delivery.frame.key, delivery.frame.id) for delivery in await collect(stream, 1)]
    return seen


async def test_a_topic_deleted_while_running_refuses_its_frames_and_others_flow(
    broker: RabbitmqBroker, bare: AbstractChannel, topic: str
) -> None:
    other = f"{topic}.other"
    await broker.ensure(Topology(groups={"g": [topic, other]}))
    assert all(verdict.accepted for verdict in await broker.publish(frames(topic, 3)))
    await bare.exchange_delete(topic)
    lost, stored = await broker.publish([*frames(topic, 1), *frames(other, 1)])
    assert (lost.accepted, lost.final) == (False, False)
    assert "does not exist" in lost.reason
    assert stored.accepted
    lost, stored = await broker.publish([*frames(topic, 1), *frames(other, 1)])
    assert (lost.accepted, stored.accepted) == (False, True)


async def test_what_no_group_takes_is_kept_and_not_confirmed_and_gone(
    broker: RabbitmqBroker, bare: AbstractChannel, topic: str
) -> None:
    assert all(verdict.accepted for verdict in await broker.publish(frames(topic, 3)))
    assert await ready(bare, f"{topic}.unread") == 3
    await broker.ensure(Topology(groups={"g": [topic]}))
    await bare.queue_delete(f"g.{topic}.0of1")
    assert (await broker.publish(frames(topic, 1)))[0].accepted
    assert await ready(bare, f"{topic}.unread") == 4


async def test_a_frame_that_no_queue_takes_is_refused(
    broker: RabbitmqBroker, bare: AbstractChannel, topic: str
) -> None:
    await bare.queue_delete(f"{topic}.unread")
    (verdict,) = await broker.publish(frames(topic, 1))
    assert (verdict.accepted, verdict.final) == (False, False)
    assert "no queue takes" in verdict.reason
    await broker.ensure(Topology(groups={"g": [topic]}))
    assert (await broker.publish(frames(topic, 1)))[0].accepted


async def test_a_group_keeps_the_lanes_that_it_was_made_with(
    rabbitmq_server: RabbitmqServer, bare: AbstractChannel, topic: str
) -> None:
    """And publishers need not know how many those are."""
    makers = [
        RabbitmqBroker(rabbitmq_server.url, clock=SystemClock(), partitions=lanes, settle=0) for lanes in (4, 2, 16)
    ]
    for maker in makers:
        await maker.ensure(Topology(groups={"g": [topic]}))
    sent = frames(topic, 40, keys=20)
    for n, frame in enumerate(sent):
        assert (await makers[n % 3].publish([frame]))[0].accepted
    stream = await makers[2].subscribe("g", [topic])
    got = [delivery.frame for delivery in await collect(stream, 40)]
    for key in {frame.key for frame in sent}:
        assert [f.id for f in got if f.key == key] == [f.id for f in sent if f.key == key]
    for maker in makers:
        await maker.aclose()


async def test_a_frame_comes_again_in_order_however_many_members_it_has_outlived(
    rabbitmq_server: RabbitmqServer, broker: RabbitmqBroker, topic: str
) -> None:
    """RabbitMQ 4 counts such deliveries, and would by itself drop a frame after 20 of them."""
    await broker.ensure(Topology(groups={"g": [topic]}))
    sent = frames(topic, 6)
    await broker.publish(sent)
    for turn in range(25):
        member = RabbitmqBroker(rabbitmq_server.url, clock=SystemClock(), partitions=1)
        got = await collect(await member.subscribe("g", [topic], window=3), 3, ack=False)
        assert [delivery.frame.id for delivery in got] == [frame.id for frame in sent[:3]]
        assert all(delivery.redelivered == (turn > 0) for delivery in got)
        await member.aclose()
    stream = await broker.subscribe("g", [topic])
    assert [delivery.frame.id for delivery in await collect(stream, 6)] == [frame.id for frame in sent]


async def test_a_lane_that_is_lost_while_it_is_read_is_made_anew(
    broker: RabbitmqBroker, bare: AbstractChannel, topic: str
) -> None:
    stream = await broker.subscribe("g", [topic])
    await broker.publish(frames(topic, 2))
    await collect(stream, 2)
    await bare.queue_delete(f"g.{topic}.0of1")
    async with asyncio.timeout(20):
        while not await _reads(broker, stream, topic):
            pass


async def _reads(broker: RabbitmqBroker, stream: Stream, topic: str) -> bool:
    sent = frames(topic, 1)
    await broker.publish(sent)
    try:
        got = await stream.receive(10, 0.3)
        await stream.ack(got)
    except BrokerUnavailable:
        return False
    return sent[0].id in {delivery.frame.id for delivery in got}


# What is asked before anything starts


async def test_checks_compare_what_is_there_with_what_is_needed(
    broker: RabbitmqBroker, bare: AbstractChannel, topic: str
) -> None:
    await broker.ensure(Topology(groups={"good": [topic], "gone": [topic]}))
    await bare.declare_queue(f"small.{topic}.0of1", durable=True, arguments={**LANE, "x-max-length": 9})
    await bare.declare_exchange(f"{topic}.theirs", "fanout", durable=True)
    await broker.ensure(Topology(groups={"small": [topic]}, topics=[f"{topic}.theirs"]))
    await bare.queue_delete(f"gone.{topic}.0of1")
    await bare.declare_queue(f"good.{topic}.0of1", durable=True, arguments=LANE)  # an error unless it was made so
    checks = {check.name: check for check in await broker.checks()}
    assert checks["server"].judgement == "ok"
    assert checks[f"topic {topic}"].judgement == "ok"
    assert checks[f"lanes of good in {topic}"].judgement == "ok"
    small = checks[f"lanes of small in {topic}"]
    assert (small.judgement, "x-max-length" in small.found) == ("fail", True)
    gone = checks[f"lanes of gone in {topic}"]
    assert (gone.judgement, "lanes: 0, not 1" in gone.found) == ("fail", True)
    theirs = checks[f"topic {topic}.theirs"]
    assert (theirs.judgement, "type" in theirs.found) == ("fail", True)
    assert broker.sheet.durable_ack
    assert any("no history" in note for note in broker.sheet.notes)


async def test_a_name_that_cannot_be_a_topic_is_refused(broker: RabbitmqBroker) -> None:
    for name in ("amq.mine", "", "x" * 300):
        with pytest.raises(ConfigurationError, match="cannot be a topic"):
            await broker.ensure(Topology(topics=[name]))
        assert not (await broker.publish([Frame(topic=name, id="1", body=b"")]))[0].accepted
    with pytest.raises(BrokerError, match="does not exist"):
        await broker.subscribe("g", ["never made"])


async def test_frames_that_amqp_cannot_carry_are_refused_for_good(broker: RabbitmqBroker, topic: str) -> None:
    names = ["posthouse-key", "x-delivery-count", "n" * 200]
    bad = [Frame(topic=topic, id=new_id(), key="a", body=b"", headers={name: "v"}) for name in names]
    verdicts = await broker.publish([*bad, *frames(topic, 1)])
    assert [(verdict.accepted, verdict.final) for verdict in verdicts] == [
        (False, True),
        *[(False, False)] * 2,
        (True, False),
    ]


async def test_what_was_accepted_right_after_ensure_survives_a_kill_and_a_server_may_come_late() -> None:
    """A queue is a second old before `ensure` returns: a younger one may be lost with its server."""
    with running() as server:
        broker = RabbitmqBroker(server.url, clock=SystemClock(), partitions=2)
        await broker.ensure(Topology(groups={"g": ["t"]}))
        sent = frames("t", 40, keys=4)
        assert all(verdict.accepted for verdict in await broker.publish(sent))
        server.end(signal.SIGKILL)
        late = RabbitmqBroker(server.url, clock=SystemClock(), timeout=1.0)
        with pytest.raises(BrokerUnavailable, match="connecting"):
            await late.ensure(Topology(topics=["t"]))
        with pytest.raises(BrokerUnavailable):
            await broker.publish(sent[:1])
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(30):
            while True:
                try:
                    stream = await late.subscribe("g", ["t"])
                    break
                except BrokerUnavailable:
                    await asyncio.sleep(0.05)
        got = [delivery.frame for delivery in await collect(stream, 40)]
        for key in ("k0", "k1", "k2", "k3"):
            assert [f.id for f in got if f.key == key] == [f.id for f in sent if f.key == key]
        await late.aclose()
        await broker.aclose()


# Other people's clients


@WIRES
async def test_a_bare_consumer_and_the_cloudevents_sdk_read_what_we_publish(
    broker: RabbitmqBroker, bare: AbstractChannel, tmp_path: Path, wire: str
) -> None:
    async with telling(broker, tmp_path, wire) as orders:
        queue = await bare.declare_queue(exclusive=True)
        await queue.bind(orders.topic, "#")
        event_id = await orders.tell()
        message = await eventually(lambda: queue.get(fail=False))
        await message.ack()
        event = amqp.from_amqp_event(
            amqp.AMQPMessage(
                properties={"content-type": message.content_type},
                application_properties=dict(message.headers),
                application_data=message.body,
            )
        )
        orders.assert_told(event)
        assert event.get_extension("partitionkey") == KEY
        assert message.message_id == event_id
        assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT


@pytest.mark.parametrize("binding", ["structured", "amqp", "rabbitmq"])
async def test_we_apply_what_a_bare_publisher_and_the_cloudevents_sdk_say(
    broker: RabbitmqBroker, bare: AbstractChannel, tmp_path: Path, binding: str
) -> None:
    async with hearing(broker, tmp_path) as billing:
        event = billing.event(subject="50% größer", datacontenttype="application/json")
        exchange = await bare.get_exchange(billing.topic)
        await exchange.publish(_message(event, binding), routing_key="")
        await billing.assert_heard()


def _message(event: CloudEvent, binding: str) -> aio_pika.Message:
    if binding == "amqp":
        binary = amqp.to_binary(event, JSONFormat())
        headers: HeadersType = dict(binary.application_properties)
        return aio_pika.Message(binary.application_data, headers=headers, content_type="application/json")
    if binding == "rabbitmq":
        plain = rabbitmq.to_binary(event, JSONFormat())
        return aio_pika.Message(plain.body, headers=dict(plain.headers), content_type=plain.content_type)
    whole = rabbitmq.to_structured(event, JSONFormat())
    return aio_pika.Message(whole.body, headers=dict(whole.headers), content_type=whole.content_type)


async def test_a_bare_message_keeps_its_headers_as_text(
    broker: RabbitmqBroker, bare: AbstractChannel, topic: str
) -> None:
    stream = await broker.subscribe("g", [topic])
    exchange = await bare.get_exchange(topic)
    await exchange.publish(aio_pika.Message(b"first"), routing_key="")
    theirs = aio_pika.Message(b"second", message_id="their id", headers={"X-Colour": "blue", "X-Size": 5})
    await exchange.publish(theirs, routing_key="")
    first, second = await collect(stream, 2)
    assert (first.frame.body, first.frame.headers, first.frame.key) == (b"first", {}, None)
    headers = {"x-colour": "blue", "x-size": "5"}
    assert second.frame == Frame(topic=topic, id="their id", body=b"second", headers=headers)


async def test_cancelled_receives_give_nothing_back_that_is_in_hand(broker: RabbitmqBroker, topic: str) -> None:
    stream = await broker.subscribe("g", [topic])
    await broker.publish(frames(topic, 3))
    in_hand = await collect(stream, 3, ack=False)
    async with asyncio.timeout(20):
        for turn in range(40):
            stream._proven = 0.0  # as if it had been silent for long: it asks before it hands out
            call = asyncio.create_task(stream.receive(10, 5.0))
            for _ in range(turn % 8):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
    assert list(await stream.receive(10, 0.5)) == []
    await stream.ack(in_hand)
    assert (await broker.progress("g", [topic]))[topic].pending == 0


# Members that lost a part of themselves


async def test_a_member_whose_task_ended_says_so_and_goes_on(broker: RabbitmqBroker, topic: str) -> None:
    stream = await broker.subscribe("g", [topic])
    (sent,) = frames(topic, 1)
    await broker.publish([sent])
    [received] = await collect(stream, 1, ack=False)
    assert stream._tending is not None
    stream._tending.cancel()
    await asyncio.wait([stream._tending])
    with pytest.raises(BrokerUnavailable, match="the task of this member ended"):
        await stream.ack([received])
    [again] = await collect(stream, 1)
    assert (again.frame.id, again.redelivered) == (sent.id, True)


async def test_words_that_no_member_would_say_end_nothing(
    broker: RabbitmqBroker, bare: AbstractChannel, topic: str
) -> None:
    stream = await broker.subscribe("g", [topic])
    circle = await bare.get_exchange("posthouse.members")
    for words in (b"", b"{", b'{"id": 7}', b"\xff"):
        await circle.publish(aio_pika.Message(words), "g")
    sent = frames(topic, 5)
    await broker.publish(sent)
    assert [delivery.frame.id for delivery in await collect(stream, 5)] == [frame.id for frame in sent]


async def test_progress_says_that_another_process_may_have_frames_in_hand(
    broker: RabbitmqBroker, rabbitmq_server: RabbitmqServer, topic: str
) -> None:
    looker = RabbitmqBroker(rabbitmq_server.url, clock=SystemClock(), partitions=1, settle=0)
    stream = await broker.subscribe("g", [topic])
    await broker.publish(frames(topic, 3))
    got = await collect(stream, 3, ack=False)
    mine, theirs = [(await one.progress("g", [topic]))[topic] for one in (broker, looker)]
    assert (mine.pending, mine.uncounted) == (3, "")
    assert (theirs.pending, bool(theirs.uncounted)) == (0, True)
    await stream.ack(got)
    await stream.aclose()
    async with asyncio.timeout(20):
        while (await looker.progress("g", [topic]))[topic].uncounted:  # noqa: ASYNC110 - the server sets no event of ours
            await asyncio.sleep(0.05)
    await looker.aclose()
