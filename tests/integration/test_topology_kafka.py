"""A survey of Kafka: settings that are mended, groups that leave one topic, and what belongs to other people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future

import msgspec
import pytest
import pytest_asyncio
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from posthouse.broker import Frame, Stream, Topology
from posthouse.brokers.kafka import KafkaBroker
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError
from posthouse.survey import Age, Resource
from posthouse.topology import carry_out, plan
from tests.integration.grounds import Ground
from tests.kit.servers.kafka import KafkaServer

LEASE = 3.0


@pytest.fixture
def ground() -> Ground:
    return Ground()


@pytest_asyncio.fixture
async def broker(kafka_server: KafkaServer) -> AsyncIterator[KafkaBroker]:
    made = KafkaBroker(kafka_server.servers, clock=SystemClock(), partitions=2, lease=LEASE)
    yield made
    await made.aclose()


@pytest.fixture
def admin(kafka_server: KafkaServer) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_server.servers})


async def done(futures: Mapping[object, Future[object]]) -> None:
    for future in futures.values():
        await asyncio.wrap_future(future)


async def set_on(admin: AdminClient, topic: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    await done(admin.incremental_alter_configs([resource]))  # type: ignore[arg-type]  # keys are resources


async def settings_of(admin: AdminClient, topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = await asyncio.wrap_future(admin.describe_configs([resource])[resource])
    return {name: entry.value for name, entry in found.items()}


async def things_of(broker: KafkaBroker, ground: Ground) -> list[Resource]:
    return [resource for resource in await broker.survey(ground.wanted) if resource.topic.startswith(ground.namespace)]


async def test_settings_that_somebody_changed_are_shown_and_mended_and_others_left(
    broker: KafkaBroker, admin: AdminClient, ground: Ground
) -> None:
    await broker.ensure(ground.wanted)
    theirs = {"cleanup_policy": "compact", "retention_ms": "60000", "unclean_leader_election_enable": "true"}
    await set_on(admin, ground.topic, **theirs, compression_type="gzip")
    (step,) = await plan(broker, ground.wanted, ground.scope)
    assert {(drift.setting, drift.found, drift.wanted) for drift in step.drift} == {
        ("cleanup.policy", "compact", "delete"),
        ("retention.ms", "60000", "-1"),
        ("unclean.leader.election.enable", "true", "false"),
    }
    assert (step.verb, step.blocked, step.loses) == ("change", "", "")
    assert await carry_out(broker, ground.wanted, [step], allow_delete=False) == [step]
    assert await plan(broker, ground.wanted, ground.scope) == []
    mended = await settings_of(admin, ground.topic)
    assert (mended["cleanup.policy"], mended["compression.type"]) == ("delete", "gzip")


async def test_a_shorter_age_deletes_frames_and_so_must_be_allowed(
    kafka_server: KafkaServer, broker: KafkaBroker, ground: Ground
) -> None:
    shorter = KafkaBroker(kafka_server.servers, clock=SystemClock(), partitions=2, retention=600.0)
    try:
        await broker.ensure(ground.wanted)
        planned = await plan(shorter, ground.wanted, ground.scope)
        assert [step.loses for step in planned] == ["frames older than 600 s"]
        assert await carry_out(shorter, ground.wanted, planned, allow_delete=False) == []
        await carry_out(shorter, ground.wanted, planned, allow_delete=True)
        assert await plan(shorter, ground.wanted, ground.scope) == []
    finally:
        await shorter.aclose()


async def test_a_topic_is_kept_as_long_as_its_class_says(
    kafka_server: KafkaServer, broker: KafkaBroker, ground: Ground
) -> None:
    await broker.ensure(ground.wanted)
    classed = msgspec.structs.replace(ground.wanted, retention={ground.topic: 604_800.0})
    later = KafkaBroker(kafka_server.servers, clock=SystemClock(), partitions=2, lease=LEASE)
    try:
        assert await later.ages([ground.topic]) == {ground.topic: Age(None, False, True)}
        planned = await plan(later, classed, ground.scope)
        assert [[(d.setting, d.found, d.wanted) for d in step.drift] for step in planned] == [
            [("retention.ms", "-1", "604800000")]
        ]
        await carry_out(later, classed, planned, allow_delete=True)
        assert await plan(later, classed, ground.scope) == []
        assert await later.ages([ground.topic]) == {ground.topic: Age(604_800.0, False, True)}
        found = {check.name: check.judgement for check in await later.checks()}
        assert found[f"topic {ground.topic}, age"] == "ok"
        assert not later.sheet.retains_unacked
    finally:
        await later.aclose()


async def test_what_one_server_cannot_have_is_shown_and_never_set(
    kafka_server: KafkaServer, broker: KafkaBroker, admin: AdminClient, ground: Ground
) -> None:
    """Two replicas in sync of one: the topic would take nothing any more."""
    three = KafkaBroker(kafka_server.servers, clock=SystemClock(), partitions=4, replicas=3)
    try:
        await broker.ensure(ground.wanted)
        await set_on(admin, ground.topic, retention_ms="60000")
        (step,) = await plan(three, ground.wanted, ground.scope)
        fixed = {drift.setting for drift in step.drift if not drift.repairable}
        assert fixed == {"partitions", "replicas", "min.insync.replicas"}
        await carry_out(three, ground.wanted, [step], allow_delete=False)
        (left,) = await plan(three, ground.wanted, ground.scope)
        assert left.blocked
        assert {drift.setting for drift in left.drift} == fixed
        (verdict,) = await broker.publish([Frame(topic=ground.topic, id=new_id(), body=b"x")])
        assert verdict.accepted
    finally:
        await three.aclose()


async def test_topics_of_other_people_are_not_ours_unless_they_are_asked_for(
    broker: KafkaBroker, admin: AdminClient, ground: Ground
) -> None:
    await done(admin.create_topics([NewTopic(ground.topic, 2, 1)]))  # type: ignore[arg-type]  # keys are names
    assert await plan(broker, Topology(), ground.scope) == []
    (step,) = await plan(broker, Topology(topics=[ground.topic]), ground.scope)
    assert step.verb == "change"
    assert "retention.ms" in {drift.setting for drift in step.drift}


async def test_a_group_leaves_one_topic_and_stays_in_the_other(broker: KafkaBroker, ground: Ground) -> None:
    other = f"{ground.topic}.other"
    await broker.ensure(Topology(groups={ground.group: [ground.topic, other]}))
    stream = await broker.subscribe(ground.group, [ground.topic, other])
    await stream.aclose()
    stream = await broker.subscribe(ground.group, [other])
    try:
        await read(broker, stream, other)
        there = {
            resource.topic: resource for resource in await things_of(broker, ground) if resource.group == ground.group
        }
        assert {topic: resource.at_work for topic, resource in there.items()} == {ground.topic: False, other: True}
        await broker.remove([there[ground.topic]])
        left = {resource.topic for resource in await things_of(broker, ground) if resource.group and resource.exists}
        assert left == {other}
        await read(broker, stream, other)
    finally:
        await stream.aclose()


async def read(broker: KafkaBroker, stream: Stream, topic: str) -> None:
    """A frame goes all the way: the member is at work."""
    frame = Frame(topic=topic, id=new_id(), body=b"x")
    await broker.publish([frame])
    async with asyncio.timeout(20):
        while not (got := await stream.receive(10, 0.2)):
            pass
    await stream.ack(got)
    assert [delivery.frame.id for delivery in got] == [frame.id]


async def test_a_topic_that_somebody_elses_group_reads_is_not_removed(
    kafka_server: KafkaServer, broker: KafkaBroker, ground: Ground
) -> None:
    await broker.ensure(ground.wanted)
    theirs = Consumer({"bootstrap.servers": kafka_server.servers, "group.id": f"bare{ground.namespace}"})
    try:
        await asyncio.to_thread(lambda: theirs.commit(offsets=[TopicPartition(ground.topic, 0, 0)], asynchronous=False))
        resources = await things_of(broker, ground)
        assert {resource.group for resource in resources} == {None, ground.group}
        with pytest.raises(BrokerError, match=f"is read by bare{ground.namespace}"):
            await broker.remove(resources)
    finally:
        theirs.close()
    assert {resource.topic for resource in await things_of(broker, ground) if resource.exists} == {ground.topic}


async def test_a_survey_tells_kafka_which_topics_to_judge(
    kafka_server: KafkaServer, broker: KafkaBroker, ground: Ground
) -> None:
    await broker.ensure(ground.wanted)
    judge = KafkaBroker(kafka_server.servers, clock=SystemClock())
    try:
        await judge.survey(ground.wanted)
        assert f"topic {ground.topic}, age" in {check.name for check in await judge.checks()}
    finally:
        await judge.aclose()
