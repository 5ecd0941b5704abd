"""What the server holds of ours, and how it is removed."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.broker import Topology
from posthouse.brokers.rabbitmq.listing import Listing
from posthouse.brokers.rabbitmq.management import Management
from posthouse.brokers.rabbitmq.questions import Questions
from posthouse.brokers.rabbitmq.sight import Sight
from posthouse.brokers.rabbitmq.topics import Topics, Unequal, lane_queue, unread_of
from posthouse.checks import Check
from posthouse.errors import BrokerError
from posthouse.survey import Resource, wanted

NAMELESS = "queues that AMQP does not name (say management=… in the broker's URL)"


class Inventory:
    """Of one virtual host. Names, settings and bindings come from the management API, where there is one; what waits and who
    reads is asked by AMQP, which knows it to the moment."""

    def __init__(self, places: Topics, questions: Questions, management: Management | None) -> None:
        self._places = places
        self._questions = questions
        self._management = management

    def check(self) -> Check:
        """What a survey can know."""
        if self._management is None:
            found = (
                "names, arguments and readers of what is asked for; AMQP tells no policies, bindings or other queues"
            )
            return Check(name="survey", found=found, fix="say management=http://host:15672 in the URL to see all of it")
        return Check(name="survey", found="everything, by the management API")

    async def found(self, topology: Topology) -> list[Resource]:
        """Without the management API: what the topology names."""
        sight = await self._sight(topology)
        resources = []
        for topic, drift in sight.topics.items():
            unread = await self._places.ready(unread_of(topic)) or 0
            resources.append(Resource(topic=topic, called=called(topic, None), frames=unread, drift=drift))
        for (group, topic), lanes in sight.places.items():
            at_work = await self._readers_of(group, topic, lanes.count)
            name = called(topic, group)
            resources.append(Resource(topic=topic, group=group, called=name, at_work=at_work, drift=lanes.drift))
        return resources

    async def remove(self, resources: Sequence[Resource]) -> None:
        """One after the other; the first that cannot go ends it."""
        for resource in sorted(resources, key=lambda resource: resource.group is None):
            self._places.forget(resource.topic)
            if resource.group is not None:
                await self._remove_place(resource.group, resource.topic)
            else:
                await self._remove_topic(resource.topic)

    async def _remove_place(self, group: str, topic: str) -> None:
        """The first lane tells how many there are: it goes last."""
        lanes = await self._places.lanes_of(group, topic)
        if await self._readers_of(group, topic, lanes):
            raise BrokerError(f"group {group!r} has members at work in {topic}: stop them first")
        for lane in reversed(range(lanes)):
            queue = lane_queue(group, topic, lane, lanes)
            await self._places.ask(lambda channel, queue=queue: channel.queue_delete(queue), f"removing {queue!r}")  # type: ignore[misc]  # a default is no parameter here

    async def _remove_topic(self, topic: str) -> None:
        """The server itself refuses while a queue or an exchange is bound to it, whoever made that."""
        doing, rest = f"removing topic {topic!r}", unread_of(topic)
        try:
            await self._places.ask(lambda channel: channel.exchange_delete(topic, if_unused=True), doing)
        except Unequal as error:
            raise BrokerError(f"topic {topic!r} is read by {await self._readers(topic)}: remove these first") from error
        await self._places.ask(lambda channel: channel.exchange_delete(rest), doing)
        await self._places.ask(lambda channel: channel.queue_delete(rest), doing)

    async def _readers(self, topic: str) -> str:
        return (
            NAMELESS if self._management is None else ", ".join((await self._listing(self._management)).readers(topic))
        )

    async def _readers_of(self, group: str, topic: str, lanes: int) -> bool:
        """Whether somebody stands in line at any of the lanes."""
        for lane in range(lanes):
            found = await self._places.look(lane_queue(group, topic, lane, lanes))
            if found is not None and found.consumer_count:
                return True
        return False

    async def _sight(self, topology: Topology) -> Sight:
        asked = wanted(topology)
        topics = {topic for topic, _ in asked}
        places = {(group, topic) for topic, group in asked if group is not None}
        if self._management is None:
            return await self._questions.sight(topics, places)
        return (await self._listing(self._management)).sight(topics, places)

    async def _listing(self, management: Management) -> Listing:
        return Listing(
            self._places, await management.exchanges(), await management.queues(), await management.bindings()
        )


def called(topic: str, group: str | None) -> str:
    return f"exchange {topic}" if group is None else f"queues {lane_queue(group, topic, 0, 0).removesuffix('0of0')}*"
