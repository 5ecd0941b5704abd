"""What exists on AWS: topics, the queues of groups, and the subscriptions between them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping
from typing import NamedTuple

import msgspec

from posthouse.brokers.sqs.client import Client, Missing, Refused
from posthouse.brokers.sqs.messages import is_topic, queue_name, tagged, topic_name
from posthouse.errors import BrokerError, ConfigurationError, did_you_mean

FORTNIGHT = 14 * 86_400
"""Seconds for which SQS keeps a message at most."""
TOPIC, GROUP = "posthouse-topic", "posthouse-group"
"""Tags of topics and queues: their names as we know them."""
TOPIC_SETTINGS = {
    "FifoTopic": "true",
    "ContentBasedDeduplication": "false",
    "FifoThroughputScope": "MessageGroup",
}
PARTITIONS = {"cn": "aws-cn", "us-gov": "aws-us-gov"}


class Identity(msgspec.Struct, frozen=True):
    account: str = msgspec.field(name="Account")


class Attributes(msgspec.Struct, frozen=True):
    attributes: dict[str, str] = msgspec.field(name="Attributes", default_factory=dict)


class QueueUrl(msgspec.Struct, frozen=True):
    url: str = msgspec.field(name="QueueUrl")


class Subscription(msgspec.Struct, frozen=True):
    arn: str = msgspec.field(name="SubscriptionArn")
    endpoint: str = msgspec.field(name="Endpoint", default="")


class Subscriptions(msgspec.Struct, frozen=True):
    found: list[Subscription] = msgspec.field(name="Subscriptions", default_factory=list)
    next: str | None = msgspec.field(name="NextToken", default=None)


class Nothing(msgspec.Struct, frozen=True):
    """An answer of which nothing is needed."""


class Queue(NamedTuple):
    """The queue of one group for one topic."""

    group: str
    topic: str
    url: str


class Topics:
    """Looks things up, remembers what it found, and makes what is missing."""

    def __init__(self, client: Client, *, account: str | None, visibility: int) -> None:
        self._client = client
        self._account = account
        self._visibility = visibility
        self.known: dict[str, str] = {}
        """The ARN of each topic that was seen to exist."""
        self.queues: dict[tuple[str, str], Queue] = {}

    async def find(self, topics: Collection[str]) -> None:
        """Learn which of these exist."""
        for topic in topics:
            if topic not in self.known and is_topic(topic):
                arn = await self.arn(topic)
                try:
                    await self._client.call("sns", "get_topic_attributes", Nothing, TopicArn=arn)
                except Missing:
                    continue
                self.known[topic] = arn

    async def make(self, topics: Collection[str]) -> None:
        """Make those that are missing. Raises ConfigurationError for names that cannot be."""
        problems = [
            f"topic {topic!r} cannot be an SNS topic: letters, digits and underscores between dots, 200 at most"
            for topic in topics
            if not is_topic(topic)
        ]
        if problems:
            raise ConfigurationError(*problems)
        await self.find(topics)
        for topic in topics:
            if topic not in self.known:
                await self._client.call(
                    "sns",
                    "create_topic",
                    Nothing,
                    Name=topic_name(topic),
                    Attributes=TOPIC_SETTINGS,
                    Tags=[{"Key": TOPIC, "Value": topic}],
                )
                self.known[topic] = await self.arn(topic)

    async def queue(self, group: str, topic: str) -> Queue | None:
        """The queue of a group, if it exists."""
        try:
            found = await self._client.call("sqs", "get_queue_url", QueueUrl, QueueName=queue_name(group, topic))
        except Missing:
            return None
        return Queue(group, topic, found.url)

    async def remember(self, group: str, topic: str) -> None:
        """The queue of a group, if it exists, is judged by the checks from now on."""
        queue = await self.queue(group, topic)
        if queue is not None:
            self.queues[group, topic] = queue

    def forget(self, topic: str, group: str | None) -> None:
        """Look again before the next use."""
        if group is None:
            self.known.pop(topic, None)
        else:
            self.queues.pop((group, topic), None)

    async def begin(self, group: str, topic: str) -> Queue:
        """The queue of a group, made and subscribed if it is new. What exists stays as it is: `checks` looks at it."""
        await self.find([topic])
        if topic not in self.known:
            raise BrokerError(f"topic {topic!r} does not exist.{did_you_mean(topic, self.known)}")
        queue = await self.queue(group, topic) or await self._make_queue(group, topic)
        if not await self.subscription(queue):
            await self._subscribe(queue)
        self.queues[group, topic] = queue
        return queue

    async def attributes(self, queue: Queue) -> Mapping[str, str]:
        found = await self._client.call(
            "sqs", "get_queue_attributes", Attributes, QueueUrl=queue.url, AttributeNames=["All"]
        )
        return found.attributes

    async def topic_attributes(self, topic: str) -> Mapping[str, str]:
        found = await self._client.call("sns", "get_topic_attributes", Attributes, TopicArn=await self.arn(topic))
        return found.attributes

    async def subscription(self, queue: Queue) -> Mapping[str, str]:
        """The settings of the subscription that fills a queue; empty when there is none."""
        endpoint = await self._queue_arn(queue.group, queue.topic)
        async for found in self.subscriptions(queue.topic):
            if found.endpoint == endpoint:
                settings = await self._client.call(
                    "sns", "get_subscription_attributes", Attributes, SubscriptionArn=found.arn
                )
                return {**settings.attributes, "SubscriptionArn": found.arn}
        return {}

    async def subscriptions(self, topic: str) -> AsyncIterator[Subscription]:
        """All of a topic, whoever made them. Raises Missing."""
        page: str | None = ""
        while page is not None:
            given = {"NextToken": page} if page else {}
            listed = await self._client.call(
                "sns", "list_subscriptions_by_topic", Subscriptions, TopicArn=await self.arn(topic), **given
            )
            for found in listed.found:
                yield found
            page = listed.next

    async def account(self) -> str:
        """Whose topics and queues these are."""
        if self._account is None:
            self._account = (await self._client.call("sts", "get_caller_identity", Identity)).account
        return self._account

    async def arn(self, topic: str) -> str:
        return f"{await self._prefix('sns')}{topic_name(topic)}"

    async def _queue_arn(self, group: str, topic: str) -> str:
        return f"{await self._prefix('sqs')}{queue_name(group, topic)}"

    async def _prefix(self, service: str) -> str:
        """What all ARNs of a service begin with here."""
        region = self._client.region
        return f"arn:{PARTITIONS.get(region.rsplit('-', 2)[0], 'aws')}:{service}:{region}:{await self.account()}:"

    async def queue_settings(self, group: str, topic: str) -> dict[str, str]:
        """Of a queue that stays out of the way: FIFO at full speed, no dead letters of its own, the longest retention."""
        return {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "false",
            "DeduplicationScope": "messageGroup",
            "FifoThroughputLimit": "perMessageGroupId",
            "VisibilityTimeout": str(self._visibility),
            "MessageRetentionPeriod": str(FORTNIGHT),
            "Policy": policy(await self._queue_arn(group, topic), await self.arn(topic)),
        }

    async def _make_queue(self, group: str, topic: str) -> Queue:
        settings, tags = await self.queue_settings(group, topic), {GROUP: tagged(group), TOPIC: topic}
        name = queue_name(group, topic)
        try:
            made = await self._client.call(
                "sqs", "create_queue", QueueUrl, QueueName=name, Attributes=settings, tags=tags
            )
        except Refused:
            found = await self.queue(group, topic)  # somebody else has just made it, with other settings
            if found is None:
                raise
            return found
        return Queue(group, topic, made.url)

    async def _subscribe(self, queue: Queue) -> None:
        await self._client.call(
            "sns",
            "subscribe",
            Nothing,
            TopicArn=await self.arn(queue.topic),
            Protocol="sqs",
            Endpoint=await self._queue_arn(queue.group, queue.topic),
            Attributes={"RawMessageDelivery": "true"},
            ReturnSubscriptionArn=True,
        )


def policy(queue: str, topic: str) -> str:
    """Lets one topic, and nobody else who is not of the account, write to the queue."""
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Sid": "posthouse",
                    "Effect": "Allow",
                    "Principal": {"Service": "sns.amazonaws.com"},
                    "Action": "sqs:SendMessage",
                    "Resource": queue,
                    "Condition": {"ArnEquals": {"aws:SourceArn": topic}},
                }
            ],
        }
    )
