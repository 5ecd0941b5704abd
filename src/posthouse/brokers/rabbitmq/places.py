"""Exchanges and queues: what they are called, how they are made, and what they must be like.

A topic is a topic exchange. What no group takes goes on to an exchange and a queue `<topic>.unread`, so that nothing is
confirmed and gone. A group has some lanes in each of its topics: quorum queues with one active consumer each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from aiormq import Channel
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed
from pamqp.commands import Queue
from pamqp.common import FieldTable

from posthouse.brokers.rabbitmq.messages import BITS, FOREIGN_ROUTE, SHORT, pattern_of
from posthouse.brokers.rabbitmq.wire import Wire, mapped
from posthouse.errors import BrokerError, ConfigurationError

MEMBERS = "posthouse.members"
"""The exchange on which members of a group tell each other that they are there."""
WITHOUT_LIMIT = 1_000_000_000
"""Deliveries of one message: Posthouse counts. Unless told otherwise RabbitMQ 4 drops it after 20, and older ones put what
is handed back at the end of its queue."""
COUNTS = [1 << bits for bits in range(BITS + 1)]


class Places:
    """Remembers what it has seen: `topics` that exist, and how many lanes a group has in a topic."""

    def __init__(self, wire: Wire, *, lanes: int, replicas: int | None, unread: int) -> None:
        self._wire = wire
        self._lanes = lanes
        self._replicas = replicas
        self._unread = unread
        self.topics: set[str] = set()
        self.groups: dict[tuple[str, str], int] = {}
        self.made = 0
        """How many were new."""

    async def make_topic(self, topic: str) -> None:
        """One that exists with other settings is left as it is; the checks judge it."""
        if not is_name(topic):
            raise ConfigurationError(f"{topic!r} cannot be a topic here: 1 to 150 bytes, and not amq. at the beginning")
        if not await self.has_topic(topic):
            await self._ask(lambda channel: self._declare_topic(channel, topic), f"making topic {topic!r}")
            self.topics.add(topic)
            self.made += 1

    async def has_topic(self, topic: str) -> bool:
        if topic not in self.topics and is_name(topic):
            found = await self._finds(lambda channel: channel.exchange_declare(topic, passive=True))
            if found is not None:
                self.topics.add(topic)
        return topic in self.topics

    async def make_group(self, group: str, topic: str) -> int:
        """The number of its lanes. A group that exists keeps those it has; one that lost some gets them again."""
        if (group, topic) in self.groups:
            return self.groups[group, topic]
        if not is_name(f"{group}{topic}"):
            raise ConfigurationError(f"{group!r} with {topic!r} makes the name of a queue too long: 150 bytes at most")
        lanes = await self.lanes_of(group, topic) or self._lanes
        found = await asyncio.gather(*(self.ready(lane_queue(group, topic, n, lanes)) for n in range(lanes)))
        missing = [lane for lane, there in enumerate(found) if there is None]
        # The first lane tells how many there are: it is made last.
        await asyncio.gather(*(self._make_lane(group, topic, lane, lanes) for lane in missing if lane))
        if 0 in missing:
            await self._make_lane(group, topic, 0, lanes)
        self.groups[group, topic] = lanes
        self.made += len(missing)
        return lanes

    async def lanes_of(self, group: str, topic: str) -> int:
        """How many lanes a group has in a topic; 0 where it was never made."""
        if (group, topic) in self.groups:
            return self.groups[group, topic]
        for lanes in sorted(COUNTS, key=lambda count: count != self._lanes) if is_name(f"{group}{topic}") else ():
            if await self.ready(lane_queue(group, topic, 0, lanes)) is not None:
                return lanes
        return 0

    async def ready(self, queue: str) -> int | None:
        """The messages of a queue that nobody has in hand; None when there is no such queue."""
        found = await self._finds(lambda channel: channel.queue_declare(queue, passive=True))
        return found.message_count or 0 if isinstance(found, Queue.DeclareOk) else None

    async def differs(self, topic: str, group: str | None = None) -> str:
        """In the server's words, how a topic or a group's lanes are not as we would have made them; empty when they are."""
        names: list[Callable[[Channel], Coroutine[object, object, None]]] = []
        if group is None:
            names.append(lambda channel: self._declare_topic(channel, topic))
        else:
            lanes = self.groups[group, topic]
            for lane in range(lanes):
                name = lane_queue(group, topic, lane, lanes)
                if await self.ready(name) is None:
                    return f"the queue {name} is gone"
                names.append(lambda channel, name=name: self._declare_lane(channel, name))  # type: ignore[misc]
        for declare in names:
            try:
                async with self._wire.errand() as channel:
                    await declare(channel)
            except ChannelPreconditionFailed as error:
                return str(error)
        return ""

    def forget(self, topic: str) -> None:
        """Look again before the next use, also for its groups."""
        self.topics.discard(topic)
        self.groups = {place: lanes for place, lanes in self.groups.items() if place[1] != topic}

    async def _make_lane(self, group: str, topic: str, lane: int, lanes: int) -> None:
        queue = lane_queue(group, topic, lane, lanes)

        async def make(channel: Channel) -> None:
            await self._declare_lane(channel, queue)
            await channel.queue_bind(queue, topic, pattern_of(lane, lanes))
            if lane == 0:
                await channel.queue_bind(queue, topic, FOREIGN_ROUTE)

        await self._ask(make, f"making {queue!r}")

    async def _declare_topic(self, channel: Channel, topic: str) -> None:
        rest = unread_of(topic)
        await channel.exchange_declare(rest, exchange_type="fanout", durable=True)
        limits: FieldTable = {"x-queue-type": "quorum", "x-max-length": self._unread}
        await channel.queue_declare(rest, durable=True, arguments=limits)
        await channel.queue_bind(rest, rest)
        await channel.exchange_declare(
            topic, exchange_type="topic", durable=True, arguments={"alternate-exchange": rest}
        )

    async def _declare_lane(self, channel: Channel, queue: str) -> None:
        arguments: FieldTable = {
            "x-queue-type": "quorum",
            "x-single-active-consumer": True,
            "x-delivery-limit": WITHOUT_LIMIT,
        }
        if self._replicas is not None:
            arguments["x-quorum-initial-group-size"] = self._replicas
        await channel.queue_declare(queue, durable=True, arguments=arguments)

    async def _finds(self, ask: Callable[[Channel], Coroutine[object, object, object]]) -> object | None:
        """The answer to a passive declaration, or None."""
        try:
            return await self._ask(ask, "looking")
        except Missing:
            return None

    async def _ask(self, ask: Callable[[Channel], Coroutine[object, object, object]], doing: str) -> object:
        with mapped(doing):
            try:
                async with self._wire.errand() as channel, asyncio.timeout(self._wire.timeout * 4):
                    return await ask(channel)
            except ChannelNotFoundEntity as error:
                raise Missing(f"{doing}: {error}") from error
            except (ChannelAccessRefused, ChannelPreconditionFailed) as error:
                raise BrokerError(f"RabbitMQ, {doing}: {error}") from error


class Missing(BrokerError):
    """There is no such exchange or queue."""


def lane_queue(group: str, topic: str, lane: int, lanes: int) -> str:
    return f"{group}.{topic}.{lane}of{lanes}"


def unread_of(topic: str) -> str:
    return f"{topic}.unread"


def is_name(text: str) -> bool:
    return 0 < len(text.encode(errors="replace")) <= SHORT - 100 and not text.startswith("amq.")
