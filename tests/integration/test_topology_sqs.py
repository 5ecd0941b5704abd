"""A survey of SNS and SQS, on moto: settings that are mended, names that only tags tell, and what others subscribed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from aiobotocore.session import get_session

from posthouse.broker import Frame, Stream, Topology
from posthouse.brokers.sqs import SqsBroker
from posthouse.brokers.sqs.messages import queue_name, topic_name
from posthouse.clock import SystemClock, new_id
from posthouse.errors import BrokerError
from posthouse.survey import Resource
from posthouse.topology import Step, carry_out, plan
from tests.integration.grounds import Ground
from tests.kit.servers.sqs import SqsServer, running

DRIVER = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
PATIENCE = 20.0


class OurGround(Ground):
    def __init__(self) -> None:
        super().__init__()
        self.arn = f"arn:aws:sns:eu-central-1:123456789012:{topic_name(self.topic)}"
        self.queue = queue_name(self.group, self.topic)


@pytest.fixture(scope="module")
def server() -> Iterator[SqsServer]:
    """With nothing of other tests in it: a survey looks at everything."""
    with running() as made:
        yield made


@pytest.fixture
def ground() -> OurGround:
    return OurGround()


@pytest_asyncio.fixture
async def broker(server: SqsServer) -> AsyncIterator[SqsBroker]:
    endpoint = f"http://127.0.0.1:{server.port}"
    made = SqsBroker("eu-central-1", clock=SystemClock(), endpoint=endpoint, visibility=3, poll=1, driver=DRIVER)
    yield made
    await made.aclose()


class Aws:
    """The bare clients; they have no types."""

    def __init__(self, sns: Any, sqs: Any) -> None:
        self.sns = sns
        self.sqs = sqs

    async def url(self, name: str) -> str:
        return str((await self.sqs.get_queue_url(QueueName=name))["QueueUrl"])

    async def set_on_queue(self, name: str, **settings: str) -> None:
        await self.sqs.set_queue_attributes(QueueUrl=await self.url(name), Attributes=settings)

    async def settings(self, name: str) -> dict[str, str]:
        found = await self.sqs.get_queue_attributes(QueueUrl=await self.url(name), AttributeNames=["All"])
        return dict(found["Attributes"])

    async def subscription(self, arn: str) -> str:
        (found,) = (await self.sns.list_subscriptions_by_topic(TopicArn=arn))["Subscriptions"]
        return str(found["SubscriptionArn"])


@pytest_asyncio.fixture
async def aws(server: SqsServer) -> AsyncIterator[Aws]:
    given = {"region_name": "eu-central-1", "endpoint_url": f"http://127.0.0.1:{server.port}", **DRIVER}
    session = get_session()
    async with session.create_client("sns", **given) as sns, session.create_client("sqs", **given) as sqs:
        yield Aws(sns, sqs)


def differences(step: Step) -> set[tuple[str, str, str]]:
    return {(drift.setting, drift.found, drift.wanted) for drift in step.drift}


async def ours(broker: SqsBroker, ground: OurGround) -> list[Resource]:
    return [resource for resource in await broker.survey(ground.wanted) if resource.topic.startswith(ground.namespace)]


async def test_settings_of_a_queue_that_somebody_changed_are_shown_and_mended(
    broker: SqsBroker, aws: Aws, ground: OurGround
) -> None:
    await broker.ensure(ground.wanted)
    before = await aws.settings(ground.queue)
    await aws.sqs.create_queue(QueueName=f"dead{ground.queue}", Attributes={"FifoQueue": "true"})
    dead = (await aws.settings(f"dead{ground.queue}"))["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 3})
    theirs = {"VisibilityTimeout": "1", "MessageRetentionPeriod": "60", "RedrivePolicy": redrive, "DelaySeconds": "5"}
    await aws.set_on_queue(ground.queue, **theirs, FifoThroughputLimit="perQueue", DeduplicationScope="queue")
    (step,) = await plan(broker, ground.wanted, ground.scope)
    assert {drift.setting for drift in step.drift} == {*theirs, "FifoThroughputLimit", "DeduplicationScope"}
    assert ("VisibilityTimeout", "1", "3") in differences(step)
    assert (step.blocked, step.loses) == ("", "")
    assert await carry_out(broker, ground.wanted, [step], allow_delete=False) == [step]
    assert await plan(broker, ground.wanted, ground.scope) == []
    after = await aws.settings(ground.queue)
    changing = {"LastModifiedTimestamp", "CreatedTimestamp", "RedrivePolicy"}
    assert {n: v for n, v in after.items() if n not in changing} == {
        n: v for n, v in before.items() if n not in changing
    }
    assert not after.get("RedrivePolicy")


async def test_a_policy_that_forgot_the_topic_gets_it_back_and_keeps_the_rest(
    broker: SqsBroker, aws: Aws, ground: OurGround
) -> None:
    await broker.ensure(ground.wanted)
    arn = (await aws.settings(ground.queue))["QueueArn"]
    theirs = {"Sid": "audit", "Effect": "Deny", "Principal": "*", "Action": "sqs:PurgeQueue", "Resource": arn}
    await aws.set_on_queue(ground.queue, Policy=json.dumps({"Version": "2012-10-17", "Statement": [theirs]}))
    (step,) = await plan(broker, ground.wanted, ground.scope)
    assert [drift.setting for drift in step.drift] == ["Policy"]
    await carry_out(broker, ground.wanted, [step], allow_delete=False)
    assert await plan(broker, ground.wanted, ground.scope) == []
    statements = json.loads((await aws.settings(ground.queue))["Policy"])["Statement"]
    assert [statement["Sid"] for statement in statements] == ["audit", "posthouse"]


async def test_a_subscription_that_wraps_or_filters_is_mended(broker: SqsBroker, aws: Aws, ground: OurGround) -> None:
    await broker.ensure(ground.wanted)
    subscription = await aws.subscription(ground.arn)
    for name, value in (("RawMessageDelivery", "false"), ("FilterPolicy", '{"a": ["b"]}')):
        await aws.sns.set_subscription_attributes(
            SubscriptionArn=subscription, AttributeName=name, AttributeValue=value
        )
    (step,) = await plan(broker, ground.wanted, ground.scope)
    assert [drift.setting for drift in step.drift] == ["RawMessageDelivery", "FilterPolicy"]
    await carry_out(broker, ground.wanted, [step], allow_delete=False)
    assert await plan(broker, ground.wanted, ground.scope) == []
    await arrives(broker, ground)


async def test_a_subscription_that_is_gone_is_made_again(broker: SqsBroker, aws: Aws, ground: OurGround) -> None:
    await broker.ensure(ground.wanted)
    await aws.sns.unsubscribe(SubscriptionArn=await aws.subscription(ground.arn))
    (step,) = await plan(broker, ground.wanted, ground.scope)
    assert differences(step) == {("subscription", "missing", "there")}
    await carry_out(broker, ground.wanted, [step], allow_delete=False)
    assert await plan(broker, ground.wanted, ground.scope) == []
    await arrives(broker, ground)


async def arrives(broker: SqsBroker, ground: OurGround) -> None:
    stream = await broker.subscribe(ground.group, [ground.topic])
    frame = Frame(topic=ground.topic, id=new_id(), key="k", body=b"x")
    assert [verdict.accepted for verdict in await broker.publish([frame])] == [True]
    assert await first_id(stream) == frame.id


async def first_id(stream: Stream) -> str:
    async with asyncio.timeout(PATIENCE):
        while not (got := await stream.receive(1, 1.0)):
            pass
    return got[0].frame.id


async def test_settings_of_a_topic_are_mended_too(broker: SqsBroker, aws: Aws, ground: OurGround) -> None:
    await broker.ensure(ground.wanted)
    await aws.sns.set_topic_attributes(
        TopicArn=ground.arn, AttributeName="ContentBasedDeduplication", AttributeValue="true"
    )
    (step,) = await plan(broker, ground.wanted, ground.scope)
    assert differences(step) == {("ContentBasedDeduplication", "true", "false")}
    await carry_out(broker, ground.wanted, [step], allow_delete=False)
    assert await plan(broker, ground.wanted, ground.scope) == []


async def test_names_that_aws_cannot_have_are_found_by_their_tags(broker: SqsBroker, ground: OurGround) -> None:
    """Queues and topics have numbers for names then, from which nobody could tell."""
    topic, group = f"{ground.namespace}.orders.back-order", f"{ground.group}.mail & more=%"
    await broker.ensure(Topology(groups={group: [topic]}))
    planned = await plan(broker, Topology(), ground.scope)
    assert [(step.verb, step.resource.topic, step.resource.group) for step in planned] == [
        ("delete", topic, None),
        ("delete", topic, group),
    ]
    await carry_out(broker, Topology(), planned, allow_delete=True)
    assert await plan(broker, Topology(), ground.scope) == []


async def test_topics_of_other_people_are_not_ours_unless_they_are_asked_for(
    broker: SqsBroker, aws: Aws, ground: OurGround
) -> None:
    await aws.sns.create_topic(Name=topic_name(ground.topic), Attributes={"FifoTopic": "true"})
    await aws.sqs.create_queue(QueueName=ground.queue, Attributes={"FifoQueue": "true"})
    assert await plan(broker, Topology(), ground.scope) == []
    there = {resource.group: resource for resource in await ours(broker, ground)}
    assert all(resource.exists for resource in there.values())
    assert "subscription" in {drift.setting for drift in there[ground.group].drift}


async def test_a_group_with_frames_in_hand_is_not_removed(broker: SqsBroker, ground: OurGround) -> None:
    await broker.ensure(ground.wanted)
    stream = await broker.subscribe(ground.group, [ground.topic])
    await broker.publish([Frame(topic=ground.topic, id="e1", key="k", body=b"x")])
    await first_id(stream)
    resources = await ours(broker, ground)
    assert [resource.at_work for resource in resources if resource.group] == [True]
    with pytest.raises(BrokerError, match="at work"):
        await broker.remove(resources)
    await stream.aclose()
    await broker.remove(resources)
    assert not any(resource.exists for resource in await ours(broker, ground))


async def test_a_topic_that_somebody_elses_queue_is_subscribed_to_is_not_removed(
    broker: SqsBroker, aws: Aws, ground: OurGround
) -> None:
    await broker.ensure(ground.wanted)
    name = f"theirs{ground.namespace}.fifo"
    await aws.sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
    theirs = (await aws.settings(name))["QueueArn"]
    await aws.sns.subscribe(TopicArn=ground.arn, Protocol="sqs", Endpoint=theirs)
    resources = await ours(broker, ground)
    assert {resource.group for resource in resources} == {None, ground.group}
    with pytest.raises(BrokerError, match=f"is read by {name}"):
        await broker.remove(resources)
    assert [resource.group for resource in await ours(broker, ground) if resource.exists] == [None]


async def test_a_survey_tells_sqs_what_to_judge(server: SqsServer, broker: SqsBroker, ground: OurGround) -> None:
    await broker.ensure(ground.wanted)
    endpoint = f"http://127.0.0.1:{server.port}"
    judge = SqsBroker("eu-central-1", clock=SystemClock(), endpoint=endpoint, driver=DRIVER)
    try:
        await judge.survey(ground.wanted)
        names = {check.name for check in await judge.checks()}
        assert {f"topic {ground.topic}", f"queue of {ground.group} for {ground.topic}, order"} <= names
    finally:
        await judge.aclose()
