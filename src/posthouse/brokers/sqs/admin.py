"""What an account holds of ours in a region, and how it is repaired and removed.

Names on AWS do not tell the names of topics and groups, so those are written down as tags. What bears no tag of ours is
somebody else's, unless it is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

import msgspec

from posthouse.brokers.sqs.client import Client, Missing
from posthouse.brokers.sqs.drift import queue_drift, repaired, subscription_drift, topic_drift
from posthouse.brokers.sqs.messages import queue_name, topic_name, untagged
from posthouse.brokers.sqs.topics import GROUP, TOPIC, TOPIC_SETTINGS, Nothing, Queue, Topics
from posthouse.errors import BrokerError
from posthouse.survey import Resource

PAGE = 1000
FIFO = ".fifo"
VISIBLE, IN_HAND, DELAYED = (f"ApproximateNumberOfMessages{what}" for what in ("", "NotVisible", "Delayed"))


class Arn(msgspec.Struct, frozen=True):
    arn: str = msgspec.field(name="TopicArn")


class TopicPage(msgspec.Struct, frozen=True):
    topics: list[Arn] = msgspec.field(name="Topics", default_factory=list)
    next: str | None = msgspec.field(name="NextToken", default=None)


class QueuePage(msgspec.Struct, frozen=True):
    urls: list[str] = msgspec.field(name="QueueUrls", default_factory=list)
    next: str | None = msgspec.field(name="NextToken", default=None)


class Tag(msgspec.Struct, frozen=True):
    key: str = msgspec.field(name="Key")
    value: str = msgspec.field(name="Value")


class TopicTags(msgspec.Struct, frozen=True):
    tags: list[Tag] = msgspec.field(name="Tags", default_factory=list)


class QueueTags(msgspec.Struct, frozen=True):
    tags: dict[str, str] = msgspec.field(name="Tags", default_factory=dict)


class Inventory:
    def __init__(self, client: Client, topics: Topics) -> None:
        self._client = client
        self._topics = topics

    async def found(self, asked: Collection[tuple[str, str | None]]) -> list[Resource]:
        """Every topic and queue that is asked for or bears our tags. Nobody tells who reads: whoever has frames in hand does."""
        topics = {topic for topic, _ in asked}
        await self._topics.find(topics)
        known = {topic_name(topic): topic for topic in topics & self._topics.known.keys()}
        resources = [await self._topic(topic) for topic in sorted({*known.values(), *await self._tagged_topics(known)})]
        queues = {
            queue.url: queue
            for group, topic in self._places(asked)
            if (queue := await self._topics.queue(group, topic))
        }
        queues |= {queue.url: queue for queue in await self._tagged_queues(queues)}
        for queue in queues.values():
            resources.append(await self._place(queue))
        return [resource for resource in resources if resource is not None]

    async def repair(self, resource: Resource) -> None:
        if resource.group is None:
            await self._repair_topic(resource.topic)
            return
        queue = await self._topics.begin(resource.group, resource.topic)
        wanted = await self._topics.queue_settings(resource.group, resource.topic)
        found, arn = await self._topics.attributes(queue), await self._topics.arn(resource.topic)
        settings = repaired(found, wanted, arn)
        if settings:
            await self._client.call("sqs", "set_queue_attributes", Nothing, QueueUrl=queue.url, Attributes=settings)
        subscription = await self._topics.subscription(queue)
        for drift in subscription_drift(subscription):
            await self._client.call(
                "sns",
                "set_subscription_attributes",
                Nothing,
                SubscriptionArn=subscription["SubscriptionArn"],
                AttributeName=drift.setting,
                AttributeValue="true" if drift.setting == "RawMessageDelivery" else "{}",
            )

    async def remove(self, resources: Sequence[Resource]) -> None:
        """One after the other; the first that cannot go ends it."""
        for resource in sorted(resources, key=lambda resource: resource.group is None):
            if resource.group is not None:
                await self._remove_place(resource.group, resource.topic)
            else:
                await self._remove_topic(resource.topic)

    async def _repair_topic(self, topic: str) -> None:
        arn = await self._topics.arn(topic)
        for drift in topic_drift(await self._topics.topic_attributes(topic), TOPIC_SETTINGS):
            if drift.repairable:
                await self._client.call(
                    "sns",
                    "set_topic_attributes",
                    Nothing,
                    TopicArn=arn,
                    AttributeName=drift.setting,
                    AttributeValue=drift.wanted,
                )

    async def _remove_place(self, group: str, topic: str) -> None:
        """The subscription first, so that nothing is sent to a queue that is gone."""
        queue = await self._topics.queue(group, topic)
        if queue is None:
            return
        settings = await self._topics.attributes(queue)
        if int(settings.get(IN_HAND, 0)):
            raise BrokerError(f"group {group!r} has members at work in {topic}: stop them first")
        try:
            subscription = await self._topics.subscription(queue)
        except Missing:
            subscription = {}
        if subscription:
            await self._client.call("sns", "unsubscribe", Nothing, SubscriptionArn=subscription["SubscriptionArn"])
        await self._client.call("sqs", "delete_queue", Nothing, QueueUrl=queue.url)
        self._topics.queues.pop((group, topic), None)

    async def _remove_topic(self, topic: str) -> None:
        """Other people's subscriptions count as well."""
        try:
            readers = [found.endpoint.rpartition(":")[2] async for found in self._topics.subscriptions(topic)]
        except Missing:
            return
        if readers:
            raise BrokerError(f"topic {topic!r} is read by {', '.join(sorted(readers))}: remove these first")
        await self._client.call("sns", "delete_topic", Nothing, TopicArn=await self._topics.arn(topic))
        self._topics.known.pop(topic, None)

    async def _topic(self, topic: str) -> Resource | None:
        try:
            drift = topic_drift(await self._topics.topic_attributes(topic), TOPIC_SETTINGS)
        except Missing:
            return None
        return Resource(topic=topic, called=called(topic, None), drift=drift)

    async def _place(self, queue: Queue) -> Resource | None:
        try:
            settings = await self._topics.attributes(queue)
        except Missing:
            return None
        wanted = await self._topics.queue_settings(queue.group, queue.topic)
        drift = queue_drift(settings, wanted, await self._topics.arn(queue.topic))
        try:
            drift += subscription_drift(await self._topics.subscription(queue))
        except Missing:
            drift += subscription_drift({})
        return Resource(
            topic=queue.topic,
            group=queue.group,
            called=called(queue.topic, queue.group),
            frames=sum(int(settings.get(count, 0)) for count in (VISIBLE, IN_HAND, DELAYED)),
            at_work=int(settings.get(IN_HAND, 0)) > 0,
            drift=drift,
        )

    def _places(self, asked: Collection[tuple[str, str | None]]) -> list[tuple[str, str]]:
        return sorted((group, topic) for topic, group in asked if group is not None)

    async def _tagged_topics(self, known: Collection[str]) -> list[str]:
        """Of all but those that are known."""
        found = []
        async for arn in self._topic_arns():
            name = arn.rpartition(":")[2]
            if name.endswith(FIFO) and name not in known:
                answer = await self._client.call("sns", "list_tags_for_resource", TopicTags, ResourceArn=arn)
                found += [tag.value for tag in answer.tags if tag.key == TOPIC and topic_name(tag.value) == name]
        return found

    async def _tagged_queues(self, known: Collection[str]) -> list[Queue]:
        found = []
        async for url in self._queue_urls():
            if not url.endswith(FIFO) or url in known:
                continue
            tags = (await self._client.call("sqs", "list_queue_tags", QueueTags, QueueUrl=url)).tags
            group, topic = untagged(tags.get(GROUP, "")), tags.get(TOPIC, "")
            if group and topic and url.endswith(f"/{queue_name(group, topic)}"):
                found.append(Queue(group, topic, url))
        return found

    async def _topic_arns(self) -> AsyncIterator[str]:
        page: str | None = ""
        while page is not None:
            given = {"NextToken": page} if page else {}
            listed = await self._client.call("sns", "list_topics", TopicPage, **given)
            for topic in listed.topics:
                yield topic.arn
            page = listed.next

    async def _queue_urls(self) -> AsyncIterator[str]:
        page: str | None = ""
        while page is not None:
            given = {"NextToken": page} if page else {}
            listed = await self._client.call("sqs", "list_queues", QueuePage, MaxResults=PAGE, **given)
            for url in listed.urls:
                yield url
            page = listed.next


def called(topic: str, group: str | None) -> str:
    return f"SNS topic {topic_name(topic)}" if group is None else f"SQS queue {queue_name(group, topic)}"
