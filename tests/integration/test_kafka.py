"""What is special to Kafka: refusals in the middle of a call, small, deleted, growing and foreign topics, and other people's
clients and tools."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio
from cloudevents.core.bindings import kafka as binding
from confluent_kafka import OFFSET_END, Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from benchmarks import brokers
from benchmarks.reading import Scale
from posthouse.broker import Delivery, Frame, Stream, Topology
from posthouse.brokers.kafka import KafkaBroker
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError
from tests.kit.frames import collect, frames, ids
from tests.kit.servers.kafka import KafkaServer, running
from tests.kit.servers.proxy import Proxy
from tests.kit.strangers import KEY, WIRES, hearing, telling
from tests.kit.waiting import eventually

K = TypeVar("K")
T = TypeVar("T")
LEASE = 3.0
PATIENCE = 30.0
GUEST = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
GUEST |= {"sasl.username": "guest", "sasl.password": "guest"}


@pytest_asyncio.fixture
async def broker(kafka_server: KafkaServer) -> AsyncIterator[KafkaBroker]:
    broker = KafkaBroker(kafka_server.servers, clock=SystemClock(), lease=LEASE)
    yield broker
    await broker.aclose()


@pytest.fixture
def admin(kafka_server: KafkaServer) -> AdminClient:
    """Somebody else's tool."""
    return AdminClient({"bootstrap.servers": kafka_server.servers})


@pytest_asyncio.fixture
async def topic(broker: KafkaBroker) -> str:
    name = f"shop.orders.order{new_id()[-6:]}"
    await broker.ensure(Topology(topics=[name]))
    return name


@pytest.fixture
def group() -> str:
    return f"billing{new_id()[-6:]}"


async def done(futures: Mapping[K, Future[T]]) -> dict[K, T]:
    return {key: await asyncio.wrap_future(future) for key, future in futures.items()}


async def configure(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    await done(admin.incremental_alter_configs([resource]))
    async with asyncio.timeout(PATIENCE):
        while await setting(admin, topic, name) != value:  # noqa: ASYNC110 - the servers hear of it a moment later
            await asyncio.sleep(0.02)


async def setting(admin: AdminClient, topic: str, name: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entry: ConfigEntry = (await done(admin.describe_configs([resource])))[resource][name]
    return entry.value


# Refusals


@pytest.mark.parametrize(
    ("batch", "before"),
    [(1_000_000, "other"), (10_000, "other"), (10_000, "large")],
    ids=["in one batch", "in many batches", "where the server knows the producer"],
)
async def test_a_limit_that_became_smaller_refuses_and_nothing_overtakes(
    kafka_server: KafkaServer, admin: AdminClient, topic: str, group: str, batch: int, before: str
) -> None:
    """The broker learnt the old limit; small frames would still fit where a large one of their key did not."""
    broker = KafkaBroker(kafka_server.servers, clock=SystemClock(), lease=LEASE, driver={"batch.size": batch})
    await broker.publish([Frame(topic=topic, id=new_id(), key=before, body=b"")])
    await configure(admin, topic, "max.message.bytes", "20000")
    large = Frame(topic=topic, id=new_id(), key="large", body=bytes(100_000))
    behind = [Frame(topic=topic, id=new_id(), key="large", body=bytes(1000)) for _ in range(30)]
    others = frames(topic, 30, keys=10, body=b"other")
    verdicts = await broker.publish([large, *behind, *others])
    assert [(verdict.accepted, verdict.final) for verdict in verdicts[:31]] == [(False, True)] + [(False, False)] * 30
    assert "the topic takes 11,808" in verdicts[0].reason
    assert all(verdict.accepted for verdict in verdicts[31:])
    await configure(admin, topic, "max.message.bytes", "1000000")
    assert all(verdict.accepted for verdict in await broker.publish([large, *behind]))
    stream = await broker.subscribe(group, [topic])
    first: dict[str, None] = {}
    async with asyncio.timeout(PATIENCE):
        while behind[-1].id not in first:
            first |= dict.fromkeys(ids(await collect(stream, 1)))
    said = [frame.id for frame in (large, *behind)]
    assert [id_ for id_ in first if id_ in said] == said
    await broker.aclose()


async def test_a_topic_with_a_small_limit_takes_a_large_call_in_small_batches(
    broker: KafkaBroker, admin: AdminClient, group: str
) -> None:
    """The server counts whole batches against the limit of one topic."""
    small = f"small{new_id()[-6:]}"
    await done(admin.create_topics([NewTopic(small, 1, 1, config={"max.message.bytes": "30000"})]))
    sent = frames(small, 100, body=bytes(1000))
    await eventually(lambda: small in admin.list_topics(timeout=5).topics)
    assert all(verdict.accepted for verdict in await broker.publish(sent))
    assert broker.sheet.max_bytes == 30_000 - 8 * 1024
    (verdict,) = await broker.publish([Frame(topic=small, id=new_id(), body=bytes(25_000))])
    assert (verdict.accepted, verdict.final) == (False, True)
    assert ids(await collect(await broker.subscribe(group, [small]), 100)) == [frame.id for frame in sent]


async def test_a_header_as_large_as_a_frame_may_be_is_counted(broker: KafkaBroker, topic: str) -> None:
    large = Frame(topic=topic, id=new_id(), key="k", body=b"", headers={"h": "x" * 2_000_000})
    verdict, behind = await broker.publish([large, *frames(topic, 1, keys=1)])
    assert (verdict.accepted, verdict.final, behind.accepted) == (False, True, True)


async def test_a_right_that_is_missing_refuses_its_topic_and_others_flow(
    kafka_server: KafkaServer, broker: KafkaBroker, topic: str
) -> None:
    if not kafka_server.controlled:
        pytest.skip("nothing is known about the rights on this server")
    allowed = f"guest{new_id()[-6:]}"
    await broker.ensure(Topology(topics=[allowed]))
    guest = KafkaBroker(f"127.0.0.1:{kafka_server.guests}", clock=SystemClock(), driver=GUEST)
    for _ in range(2):
        forbidden, *rest = await guest.publish([*frames(topic, 1), *frames(allowed, 50, keys=7), *frames(topic, 5)])
        assert not forbidden.accepted
        assert not forbidden.final, "the right may be given later"
        assert "AUTHORIZATION" in forbidden.reason
        assert [verdict.accepted for verdict in rest] == [True] * 50 + [False] * 5
    assert (await broker.progress("nobody", [topic]))[topic].stored == 0
    await guest.aclose()


async def test_a_topic_deleted_while_running_refuses_its_frames_and_others_flow(
    kafka_server: KafkaServer, admin: AdminClient, topic: str, group: str
) -> None:
    """The first call may be unknown, after `timeout`."""
    other = f"{topic}.other"
    broker = KafkaBroker(kafka_server.servers, clock=SystemClock(), lease=LEASE, timeout=2.0)
    try:
        await broker.ensure(Topology(topics=[other]))
        stream = await broker.subscribe(group, [topic, other])
        await insisted(broker, [*frames(topic, 3), *frames(other, 1)])
        await collect(stream, 4)
        await done(admin.delete_topics([topic]))
        lost, stored = await insisted(broker, [*frames(topic, 1), *frames(other, 1)])
        assert (lost, stored) == (False, True)
        assert {delivery.frame.topic for delivery in await collect(stream, 1)} == {other}
    finally:
        await broker.aclose()


async def insisted(broker: KafkaBroker, sent: list[Frame]) -> list[bool]:
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(BrokerUnavailable):
                return [verdict.accepted for verdict in await broker.publish(sent)]


async def test_a_topic_made_anew_hides_nothing(broker: KafkaBroker, admin: AdminClient, topic: str, group: str) -> None:
    """Its offsets begin at 0 again, below the cursor of the group."""
    stream = await broker.subscribe(group, [topic])
    await broker.publish(frames(topic, 20))
    await collect(stream, 20)
    await stream.aclose()
    await done(admin.delete_topics([topic]))
    await eventually(lambda: topic not in admin.list_topics(timeout=5).topics)
    maker = KafkaBroker(broker._client.servers, clock=SystemClock())
    await maker.ensure(Topology(topics=[topic]))
    new = frames(topic, 3)
    assert all(verdict.accepted for verdict in await maker.publish(new))
    await maker.aclose()
    stream = await broker.subscribe(group, [topic])
    assert ids(await collect(stream, 3)) == [frame.id for frame in new]


async def made_anew(broker: KafkaBroker, admin: AdminClient, topic: str, count: int) -> list[Frame]:
    """The topic is deleted and made again, and takes so many frames."""
    await done(admin.delete_topics([topic]))
    await eventually(lambda: topic not in admin.list_topics(timeout=5).topics)
    maker = KafkaBroker(broker._client.servers, clock=SystemClock())
    await maker.ensure(Topology(topics=[topic]))
    sent = frames(topic, count)
    assert all(verdict.accepted for verdict in await maker.publish(sent))
    await maker.aclose()
    return sent


async def gathered(stream: Stream, wanted: Sequence[Frame]) -> list[Delivery]:
    """Everything that comes until all of these were among it."""
    got: list[Delivery] = []
    async with asyncio.timeout(PATIENCE):
        while not {frame.id for frame in wanted} <= {*ids(got)}:
            with contextlib.suppress(BrokerUnavailable):
                batch = await stream.receive(100, 1.0)
                got += batch
                await stream.ack(batch)
    return got


async def test_a_topic_made_anew_hides_nothing_from_a_member_at_work(
    kafka_server: KafkaServer, broker: KafkaBroker, admin: AdminClient, topic: str, group: str
) -> None:
    """The new log is longer than the old one when the member looks again: at its old place there are frames, as ever."""
    if not kafka_server.controlled:
        pytest.skip("this server's address cannot be that of a proxy")
    async with Proxy("127.0.0.1", kafka_server.behind, listen=kafka_server.link) as link:
        far = KafkaBroker(f"127.0.0.1:{kafka_server.link}", clock=SystemClock(), lease=LEASE, timeout=2.0)
        stream = await far.subscribe(group, [topic])
        await broker.publish(frames(topic, 20))
        await collect(stream, 20)
        await link.stall()
        new = await made_anew(broker, admin, topic, 60)
        await link.heal()
        got = await gathered(stream, new)
        repeats = [delivery for n, delivery in enumerate(got) if delivery.frame.id in ids(got[:n])]
        assert all(delivery.redelivered for delivery in repeats)
        async with asyncio.timeout(PATIENCE):
            while (await broker.progress(group, [topic]))[topic].pending:
                await stream.ack(await stream.receive(100, 0.1))
        await stream.aclose()
        stream = await broker.subscribe(group, [topic])
        later = frames(topic, 3)
        await broker.publish(later)
        assert ids(await collect(stream, 3)) == [frame.id for frame in later]
        await far.aclose()


async def test_a_cursor_that_outlived_its_topic_hides_nothing_of_the_next(
    kafka_server: KafkaServer, broker: KafkaBroker, admin: AdminClient, topic: str, group: str
) -> None:
    """Kafka forgets the offsets of a deleted topic; whoever leaves when it was made again writes them once more."""
    stream = await broker.subscribe(group, [topic])
    await broker.publish(frames(topic, 20))
    await collect(stream, 20)
    await stream.aclose()
    parts = [TopicPartition(topic, partition) for partition in range(8)]
    theirs = Consumer({"bootstrap.servers": kafka_server.servers, "group.id": group})
    stale = [part for part in await asyncio.to_thread(theirs.committed, parts) if part.offset >= 0]
    assert sum(part.offset for part in stale) == 20
    new = await made_anew(broker, admin, topic, 60)
    await eventually(lambda: all(part.offset < 0 for part in theirs.committed(parts)))
    await asyncio.to_thread(lambda: theirs.commit(offsets=stale, asynchronous=False))
    await asyncio.to_thread(theirs.close)
    assert (await broker.progress(group, [topic]))[topic].pending == 60
    assert ids(await collect(await broker.subscribe(group, [topic], start="latest"), 60)) == [frame.id for frame in new]


async def test_a_name_that_cannot_be_a_topic_is_refused(broker: KafkaBroker) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a Kafka topic"):
        await broker.ensure(Topology(topics=["not a topic"]))
    (verdict,) = await broker.publish([Frame(topic="not a topic", id="1", body=b"")])
    assert not verdict.accepted
    with pytest.raises(BrokerError, match="does not exist"):
        await broker.subscribe("g", ["no.such.topic"])


async def test_a_killed_server_leaves_no_gap_in_a_call() -> None:
    """What was on its way when the server died is unknown as a whole; said again, first occurrences are in order."""
    with running() as server:
        broker = KafkaBroker(server.servers, clock=SystemClock(), lease=LEASE, timeout=2.0)
        await broker.ensure(Topology(topics=["t"]))
        await broker.publish(frames("t", 1))
        sent = frames("t", 5000, keys=20, body=bytes(1000))
        call = asyncio.create_task(broker.publish(sent))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(server.end, signal.SIGKILL)
        with pytest.raises(BrokerUnavailable):
            await call
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(BrokerUnavailable):
                    assert all(verdict.accepted for verdict in await broker.publish(sent))
                    break
        stream = await broker.subscribe("g", ["t"], window=5000)
        first: dict[str, Delivery] = {}
        async with asyncio.timeout(60):
            while not {frame.id for frame in sent} <= first.keys():
                with contextlib.suppress(BrokerUnavailable):
                    batch = await stream.receive(5000, 1.0)
                    for delivery in batch:
                        first.setdefault(delivery.frame.id, delivery)
                    await stream.ack(batch)
        for key in {frame.key for frame in sent}:
            said = [frame.id for frame in sent if frame.key == key]
            assert [id_ for id_, delivery in first.items() if delivery.frame.key == key and id_ in said] == said
        await broker.aclose()


async def test_a_server_that_is_not_there_is_unavailable_in_time_and_used_when_it_comes(
    kafka_server: KafkaServer, topic: str
) -> None:
    if not kafka_server.controlled:
        pytest.skip("this server's address cannot be that of a proxy")
    async with Proxy("127.0.0.1", kafka_server.behind, listen=kafka_server.link) as link:
        await link.cut()
        broker = KafkaBroker(f"127.0.0.1:{kafka_server.link}", clock=SystemClock(), timeout=1.0)
        for call in (broker.ensure(Topology(topics=[topic])), broker.publish(frames(topic, 1)), broker.checks()):
            with pytest.raises(BrokerUnavailable):
                async with asyncio.timeout(5):
                    await call
        await link.heal()
        assert await insisted(broker, frames(topic, 1)) == [True]
        await broker.aclose()


# Groups


async def test_a_member_whose_thread_has_ended_says_so_to_whoever_waits_or_acknowledges(
    kafka_server: KafkaServer, topic: str, group: str
) -> None:
    """The link is cut while the event loop hangs, so that the membership cannot be mended; then no client can be made."""
    if not kafka_server.controlled:
        pytest.skip("this server's address cannot be that of a proxy")
    driver: dict[str, object] = {"client.id": "posthouse"}
    async with Proxy("127.0.0.1", kafka_server.behind, listen=kafka_server.link) as link:
        broker = KafkaBroker(
            f"127.0.0.1:{kafka_server.link}", clock=SystemClock(), lease=LEASE, timeout=1.0, driver=driver
        )
        stream = await broker.subscribe(group, [topic])
        assert await insisted(broker, frames(topic, 5)) == [True] * 5
        got = await collect(stream, 5)
        driver["no.such.option"] = "x"
        await link.cut()
        time.sleep(LEASE / 2 + 0.2)  # noqa: ASYNC251 - this is the fault
        with pytest.raises(BrokerUnavailable, match="the thread of this member ended"):
            await refused(stream)
        with pytest.raises(BrokerUnavailable, match="the thread of this member ended"):
            await stream.ack(got)
        del driver["no.such.option"]
        await link.heal()
        await stream.aclose()
        new = frames(topic, 5)
        assert await insisted(broker, new) == [True] * 5
        assert ids(await collect(await broker.subscribe(group, [topic]), 5)) == [frame.id for frame in new]
        await broker.aclose()


async def refused(stream: Stream) -> None:
    """Receive until it raises. Complaints about servers that are away are not what is waited for."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await stream.receive(10, 0.2)
            except BrokerUnavailable as error:
                if "thread" in str(error):
                    raise


async def test_partitions_that_were_added_are_read_and_found(
    broker: KafkaBroker, admin: AdminClient, topic: str, group: str, kafka_server: KafkaServer
) -> None:
    """Keys move then, for publishers that start afterwards; their numbers keep the order, and the checks say so."""
    quick = KafkaBroker(
        kafka_server.servers,
        clock=SystemClock(),
        lease=LEASE,
        driver={"topic.metadata.refresh.interval.ms": 300},
    )
    stream = await quick.subscribe(group, [topic])
    before = frames(topic, 40, keys=40)
    await quick.publish(before)
    assert sorted(ids(await collect(stream, 40))) == sorted(frame.id for frame in before)
    await done(admin.create_partitions([NewPartitions(topic, 12)]))
    await eventually(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 12)
    other = KafkaBroker(kafka_server.servers, clock=SystemClock())
    after = frames(topic, 40, keys=40)
    assert all(verdict.accepted for verdict in await other.publish(after))
    got = await collect(stream, 40)
    assert sorted(ids(got)) == sorted(frame.id for frame in after)
    assert any(int(str(delivery.position).split(":")[0]) >= 8 for delivery in got)
    await other.aclose()
    checks = {check.name: check for check in await quick.checks()}
    assert checks[f"topic {topic}, partitions"].judgement == "warn"
    await quick.aclose()


async def test_offsets_set_by_somebody_elses_tool_are_followed(
    broker: KafkaBroker, admin: AdminClient, topic: str, group: str
) -> None:
    """As `kafka-consumer-groups --reset-offsets` does it, while nobody is a member."""
    sent = frames(topic, 10)
    await broker.publish(sent)
    stream = await broker.subscribe(group, [topic])
    got = await collect(stream, 10)
    await stream.aclose()
    partition = int(str(got[0].position).split(":")[0])
    there = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, 6)])
    await done(admin.alter_consumer_group_offsets([there]))
    again = await collect(await broker.subscribe(group, [topic]), 4)
    assert ids(again) == [frame.id for frame in sent[6:]]
    assert all(delivery.redelivered for delivery in again)


async def test_whoever_leaves_hands_on_what_was_acknowledged_behind_the_cursor(
    broker: KafkaBroker, topic: str, group: str
) -> None:
    sent = frames(topic, 5)
    await broker.publish(sent)
    stream = await broker.subscribe(group, [topic])
    got: list[Delivery] = []
    async with asyncio.timeout(PATIENCE):
        while len(got) < 4:
            got += await stream.receive(4 - len(got), PATIENCE)
    await stream.ack([got[1], got[3]])
    await stream.aclose()
    rest = await collect(await broker.subscribe(group, [topic]), 3)
    assert [(delivery.frame.id, delivery.redelivered) for delivery in rest] == [
        (sent[0].id, True),
        (sent[2].id, True),
        (sent[4].id, False),
    ]


async def test_a_seek_while_nobody_is_a_member_is_seen_by_other_tools_at_once(
    broker: KafkaBroker, kafka_server: KafkaServer, topic: str, group: str
) -> None:
    await broker.publish(frames(topic, 10))
    stream = await broker.subscribe(group, [topic])
    got = await collect(stream, 10)
    await stream.aclose()
    await broker.seek(group, topic, position=got[3].position)
    assert (await broker.progress(group, [topic]))[topic].pending == 7
    partition = int(str(got[0].position).split(":")[0])
    reader = Consumer({"bootstrap.servers": kafka_server.servers, "group.id": group})
    (committed,) = await asyncio.to_thread(reader.committed, [TopicPartition(topic, partition)], 10)
    assert committed.offset == 3
    await asyncio.to_thread(reader.close)


async def test_a_seek_to_a_position_takes_the_other_partitions_to_its_time(
    broker: KafkaBroker, topic: str, group: str
) -> None:
    early, late = frames(topic, 30, keys=30), frames(topic, 30, keys=30)
    await broker.publish(early)
    stream = await broker.subscribe(group, [topic])
    await collect(stream, 30)
    await broker.publish(late)
    got = await collect(stream, 30)
    oldest = min(got, key=lambda delivery: delivery.stored_at)
    await broker.seek(group, topic, position=oldest.position)
    again = await collect(stream, 30)
    assert set(ids(again)) == {frame.id for frame in late}


@pytest.mark.parametrize(
    ("position", "reason"), [(7, "partition:offset"), ("99:0", "partitions 0 to 7"), ("a:b", "takes")]
)
async def test_a_position_of_another_log_is_refused(
    broker: KafkaBroker, topic: str, position: int | str, reason: str
) -> None:
    with pytest.raises(BrokerError, match=reason):
        await broker.seek("g", topic, position=position)


async def test_marks_of_other_peoples_transactions_at_the_end_keep_nobody_waiting_for_an_age(
    kafka_server: KafkaServer, broker: KafkaBroker, topic: str, group: str
) -> None:
    await broker.ensure(Topology(groups={group: [topic]}))
    other = Producer({"bootstrap.servers": kafka_server.servers, "transactional.id": new_id()})
    await asyncio.to_thread(other.init_transactions, PATIENCE)
    other.begin_transaction()
    other.produce(topic, b"never mind", key=b"k")
    await asyncio.to_thread(other.flush, PATIENCE)
    await broker.progress(group, [topic])  # its client is made
    began = time.monotonic()
    for _ in range(3):
        assert (await broker.progress(group, [topic]))[topic].oldest is None, "it may yet be committed"
    await asyncio.to_thread(other.abort_transaction, PATIENCE)
    took = time.monotonic() - began
    assert took < 1.5, f"{took:.1f} s"

    async def nothing_waits() -> bool:
        return (await broker.progress(group, [topic]))[topic].oldest == 0.0

    await eventually(nothing_waits)
    (frame,) = frames(topic, 1, keys=1)
    await broker.publish([frame])

    async def it_waits() -> bool:
        return bool((await broker.progress(group, [topic]))[topic].oldest)

    await eventually(it_waits)


async def test_what_retention_deleted_shows(broker: KafkaBroker, admin: AdminClient, topic: str, group: str) -> None:
    await broker.ensure(Topology(groups={group: [topic]}))
    sent = frames(topic, 10)
    await broker.publish(sent)
    assert not (await broker.progress(group, [topic]))[topic].truncated
    await done(admin.delete_records([TopicPartition(topic, partition, OFFSET_END) for partition in range(8)]))
    progress = (await broker.progress(group, [topic]))[topic]
    assert (progress.stored, progress.pending, progress.truncated) == (10, 0, True)
    stream = await broker.subscribe(group, [topic])
    new = frames(topic, 2)
    await broker.publish(new)
    assert ids(await collect(stream, 2)) == [frame.id for frame in new]


async def test_a_member_that_stops_polling_for_a_slow_handler_keeps_its_partitions(
    broker: KafkaBroker, topic: str, group: str
) -> None:
    """Frames stay in hand for twice the time after which Kafka replaces a member that does not poll."""
    await broker.publish(frames(topic, 4, keys=4))
    stream = await broker.subscribe(group, [topic])
    got: list[Delivery] = []
    async with asyncio.timeout(PATIENCE):
        while len(got) < 4:
            got += await stream.receive(4, PATIENCE)
    await asyncio.sleep(2 * LEASE)  # the handler's work
    await stream.ack(got)
    assert (await broker.progress(group, [topic]))[topic].pending == 0


async def test_the_settings_of_a_topic_say_what_the_promise_rests_on(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    config = {name: entry.value for name, entry in (await done(admin.describe_configs([resource])))[resource].items()}
    assert (config["cleanup.policy"], config["retention.ms"], config["retention.bytes"]) == ("delete", "-1", "-1")
    assert (config["message.timestamp.type"], config["unclean.leader.election.enable"]) == ("LogAppendTime", "false")


async def test_ensure_changes_nothing_that_exists(broker: KafkaBroker, admin: AdminClient, topic: str) -> None:
    await configure(admin, topic, "retention.ms", "12345678")
    other = KafkaBroker(broker._client.servers, clock=SystemClock(), partitions=3, retention=99.0)
    await other.ensure(Topology(topics=[topic]))
    assert await setting(admin, topic, "retention.ms") == "12345678"
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 8
    await other.aclose()


async def test_checks_say_what_weakens_the_promise(broker: KafkaBroker, admin: AdminClient, topic: str) -> None:
    checks = {check.name: check for check in await broker.checks()}
    durability = checks[f"topic {topic}, durability"]
    assert (durability.judgement, durability.found) == ("warn", "1 replica(s), 1 in sync at least")
    assert {check.judgement for name, check in checks.items() if "durability" not in name} == {"ok"}
    assert (broker.sheet.durable_ack, broker.sheet.retains_unacked) == (False, True)
    assert any("durability" in note for note in broker.sheet.notes)
    await configure(admin, topic, "cleanup.policy", "compact")
    await configure(admin, topic, "retention.ms", "1000000")
    checks = {check.name: check for check in await broker.checks()}
    assert checks[f"topic {topic}, clean-up"].judgement == "fail"
    assert checks[f"topic {topic}, age"].judgement == "warn"
    assert not broker.sheet.retains_unacked


# Other people's clients


@pytest.fixture
def theirs(kafka_server: KafkaServer) -> Iterator[Callable[[str], Message]]:
    """A bare consumer: the first message of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": kafka_server.servers, "group.id": new_id(), "auto.offset.reset": "earliest"}
    )

    def first(topic: str) -> Message:
        consumer.subscribe([topic])
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error() is None
        return message

    yield first
    consumer.close()


@WIRES
async def test_a_bare_consumer_and_the_cloudevents_sdk_read_what_we_publish(
    broker: KafkaBroker, theirs: Callable[[str], Message], tmp_path: Path, wire: str
) -> None:
    async with telling(broker, tmp_path, wire) as orders:
        await orders.tell()
        message = await asyncio.to_thread(theirs, orders.topic)
        headers = dict(message.headers() or [])
        event = binding.from_kafka_event(
            binding.KafkaMessage(headers=headers, key=message.key(), value=message.value() or b"")  # type: ignore[arg-type]
        )
        orders.assert_told(event)
        assert event.get_extension("partitionkey") == KEY


@WIRES
async def test_we_apply_what_a_bare_producer_and_the_cloudevents_sdk_say(
    broker: KafkaBroker, kafka_server: KafkaServer, tmp_path: Path, wire: str
) -> None:
    async with hearing(broker, tmp_path) as billing:
        event = billing.event(id="größe 1")
        record = binding.to_structured_event(event) if wire == "structured" else binding.to_binary_event(event)
        producer = Producer({"bootstrap.servers": kafka_server.servers})
        producer.produce(billing.topic, record.value, key=record.key, headers=record.headers)  # type: ignore[arg-type]
        await asyncio.to_thread(producer.flush, PATIENCE)
        await billing.assert_heard("größe 1")


async def test_a_transaction_that_was_rolled_back_is_never_seen(
    broker: KafkaBroker, kafka_server: KafkaServer, topic: str, group: str
) -> None:
    """Somebody else's: ours need none."""
    producer = Producer({"bootstrap.servers": kafka_server.servers, "transactional.id": new_id()})

    def produce() -> None:
        producer.init_transactions(PATIENCE)
        for number, outcome in enumerate((producer.abort_transaction, producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number, key=b"k")
            producer.flush(PATIENCE)
            outcome(PATIENCE)

    await asyncio.to_thread(produce)
    stream = await broker.subscribe(group, [topic])
    (seen,) = await collect(stream, 1)
    assert seen.frame.body == b"1"
    assert seen.position == f"{str(seen.position).split(':')[0]}:2"
    assert list(await stream.receive(10, 0.3)) == []


async def test_a_key_goes_where_javas_clients_send_it(broker: KafkaBroker, topic: str, group: str) -> None:
    """murmur2 of the key, positive, by the number of partitions: 21 and foobar are Kafka's own test vectors."""
    await broker.publish([Frame(topic=topic, id=new_id(), key=key, body=b"") for key in ("21", "foobar")])
    got = await collect(await broker.subscribe(group, [topic]), 2)
    places = {delivery.frame.key: int(str(delivery.position).split(":")[0]) for delivery in got}
    vectors = {"21": -973932308, "foobar": -790332482}
    assert places == {key: (hashed & 0x7FFFFFFF) % 8 for key, hashed in vectors.items()}


async def test_the_benchmark_of_kafka_measures_what_it_says(kafka_server: KafkaServer, tmp_path: Path) -> None:
    readings = await brokers.measure("kafka", tmp_path, Scale(share=0.0, rounds=1))
    assert [reading.measure for reading in readings] == ["kafka publish", "kafka receive", "kafka consume, once only"]
    assert all(reading.ours > 0 and reading.ratio for reading in readings)
