"""Exchanges and queues: what they are called, how they are made, and what they must be like.

A topic is a topic exchange. What no group takes goes on to an exchange and a queue `<topic>.unread`, so that nothing is
confirmed and gone. A group has some lanes in each of its topics: quorum queues with one active consumer each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from functools import partial

from aiormq import Channel
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed
from pamqp.commands import Queue
from pamqp.common import FieldTable

from posthouse.brokers.rabbitmq.client import Client, mapped, together, within
from posthouse.brokers.rabbitmq.messages import BITS, FOREIGN_ROUTE, SHORT, pattern_of
from posthouse.errors import BrokerError, ConfigurationError

MEMBERS = "posthouse.members"
"""The exchange on which members of a group tell each other that they are there."""
WITHOUT_LIMIT = 1_000_000_000
"""Deliveries of one message: Posthouse counts. Unless told otherwise RabbitMQ 4 drops it after 20, and older ones put what
is handed back at the end of its queue."""
COUNTS = [1 << bits for bits in range(BITS + 1)]


class Topics:
    """Remembers what it has seen: `topics` that exist, and how many lanes a group has in a topic."""

    def __init__(self, client: Client, *, lanes: int, replicas: int | None, unread: int) -> None:
        self._client = client
        self.lanes = lanes
        self.replicas = replicas
        self.unread = unread
        self.topics: set[str] = set()
        self.groups: dict[tuple[str, str], int] = {}
        self.made = 0
        """How many were new."""

    async def make_topic(self, topic: str) -> None:
        """One that exists with other settings is left as it is; the checks judge it."""
        if not is_name(topic):
            raise ConfigurationError(f"{topic!r} cannot be a topic here: 1 to 150 bytes, and not amq. at the beginning")
        if not await self.has_topic(topic):
            await self.ask(lambda channel: self._declare_topic(channel, topic), f"making topic {topic!r}")
            self.topics.add(topic)
            self.made += 1

    async def has_topic(self, topic: str) -> bool:
        if topic not in self.topics and is_name(topic):
            found = await self.finds(lambda channel: channel.exchange_declare(topic, passive=True))
            if found is not None:
                self.topics.add(topic)
        return topic in self.topics

    async def make_group(self, group: str, topic: str) -> int:
        """The number of its lanes. A group that exists keeps those it has; one that lost some gets them again."""
        if (group, topic) in self.groups:
            return self.groups[group, topic]
        if not is_name(f"{group}{topic}"):
            raise ConfigurationError(f"{group!r} with {topic!r} makes the name of a queue too long: 150 bytes at most")
        lanes = await self.lanes_of(group, topic) or self.lanes
        found = await together(*(self.ready(lane_queue(group, topic, n, lanes)) for n in range(lanes)))
        missing = [lane for lane, there in enumerate(found) if there is None]
        # The first lane tells how many there are: it is made last.
        await together(*(self._make_lane(group, topic, lane, lanes) for lane in missing if lane))
        if 0 in missing:
            await self._make_lane(group, topic, 0, lanes)
        self.groups[group, topic] = lanes
        self.made += len(missing)
        return lanes

    async def lanes_of(self, group: str, topic: str) -> int:
        """How many lanes a group has in a topic; 0 where it was never made."""
        if (group, topic) in self.groups:
            return self.groups[group, topic]
        for lanes in sorted(COUNTS, key=lambda count: count != self.lanes) if is_name(f"{group}{topic}") else ():
            if await self.ready(lane_queue(group, topic, 0, lanes)) is not None:
                return lanes
        return 0

    async def ready(self, queue: str) -> int | None:
        """The messages of a queue that nobody has in hand; None when there is no such queue."""
        found = await self.look(queue)
        return None if found is None else found.message_count or 0

    async def look(self, queue: str) -> Queue.DeclareOk | None:
        """What the server counts of a queue; None when there is none."""
        found = await self.finds(lambda channel: channel.queue_declare(queue, passive=True))
        return found if isinstance(found, Queue.DeclareOk) else None

    async def complete_topic(self, topic: str) -> None:
        """Make what is missing of it, and bind it again. What differs stays as it is."""
        rest = unread_of(topic)
        for part in (
            lambda channel: channel.exchange_declare(rest, exchange_type="fanout", durable=True),
            lambda channel: channel.queue_declare(rest, durable=True, arguments=unread_arguments(self.unread)),
            lambda channel: channel.queue_bind(rest, rest),
        ):
            with contextlib.suppress(Unequal):
                await self.ask(part, f"mending topic {topic!r}")

    async def complete_group(self, group: str, topic: str) -> None:
        """Make the lanes that are missing, and bind all of them again."""
        lanes = await self.make_group(group, topic)
        for lane in range(lanes):
            queue = lane_queue(group, topic, lane, lanes)
            for pattern in patterns_of(lane, lanes):
                await self.ask(
                    partial(Channel.queue_bind, queue=queue, exchange=topic, routing_key=pattern), f"binding {queue!r}"
                )

    async def remember(self, topic: str, group: str | None) -> None:
        """What was seen to exist is judged by the checks from now on."""
        if group is None:
            self.topics.add(topic)
        else:
            self.groups[group, topic] = await self.lanes_of(group, topic)

    def forget(self, topic: str) -> None:
        """Look again before the next use, also for its groups."""
        self.topics.discard(topic)
        self.groups = {place: lanes for place, lanes in self.groups.items() if place[1] != topic}

    async def _make_lane(self, group: str, topic: str, lane: int, lanes: int) -> None:
        queue = lane_queue(group, topic, lane, lanes)

        async def make(channel: Channel) -> None:
            await self._declare_lane(channel, queue)
            for pattern in patterns_of(lane, lanes):
                await channel.queue_bind(queue, topic, pattern)

        await self.ask(make, f"making {queue!r}")

    async def _declare_topic(self, channel: Channel, topic: str) -> None:
        rest = unread_of(topic)
        await channel.exchange_declare(rest, exchange_type="fanout", durable=True)
        await channel.queue_declare(rest, durable=True, arguments=unread_arguments(self.unread))
        await channel.queue_bind(rest, rest)
        await channel.exchange_declare(topic, exchange_type="topic", durable=True, arguments=topic_arguments(topic))

    async def _declare_lane(self, channel: Channel, queue: str) -> None:
        await channel.queue_declare(queue, durable=True, arguments=lane_arguments(self.replicas))

    async def finds(self, ask: Callable[[Channel], Coroutine[object, object, object]]) -> object | None:
        """The answer to a passive declaration, or None."""
        try:
            return await self.ask(ask, "looking")
        except Missing:
            return None

    async def ask(self, ask: Callable[[Channel], Coroutine[object, object, object]], doing: str) -> object:
        with mapped(doing):
            try:
                async with self._client.errand() as channel:
                    return await within(self._client.timeout * 4, ask(channel))
            except ChannelNotFoundEntity as error:
                raise Missing(f"{doing}: {error}") from error
            except ChannelAccessRefused as error:
                raise BrokerError(f"RabbitMQ, {doing}: {error}") from error
            except ChannelPreconditionFailed as error:
                raise Unequal(f"RabbitMQ, {doing}: {error}") from error


class Missing(BrokerError):
    """There is no such exchange or queue."""


class Unequal(BrokerError):
    """There is one, and it is not as it should be, or not free to go."""


def topic_arguments(topic: str) -> FieldTable:
    return {"alternate-exchange": unread_of(topic)}


def unread_arguments(limit: int) -> FieldTable:
    return {"x-queue-type": "quorum", "x-max-length": limit}


def lane_arguments(replicas: int | None) -> FieldTable:
    arguments: FieldTable = {
        "x-queue-type": "quorum",
        "x-single-active-consumer": True,
        "x-delivery-limit": WITHOUT_LIMIT,
    }
    if replicas is not None:
        arguments["x-quorum-initial-group-size"] = replicas
    return arguments


def patterns_of(lane: int, lanes: int) -> list[str]:
    """What a lane is bound to. The first one also takes what others publish, who know nothing of lanes."""
    return [pattern_of(lane, lanes), *([FOREIGN_ROUTE] if lane == 0 else [])]


def lane_queue(group: str, topic: str, lane: int, lanes: int) -> str:
    return f"{group}.{topic}.{lane}of{lanes}"


def unread_of(topic: str) -> str:
    return f"{topic}.unread"


def is_name(text: str) -> bool:
    return 0 < len(text.encode(errors="replace")) <= SHORT - 100 and not text.startswith("amq.")
