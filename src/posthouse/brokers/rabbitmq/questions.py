"""What is there, as AMQP answers for each name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine

from aiormq import Channel
from aiormq.exceptions import ChannelAccessRefused, ChannelPreconditionFailed
from pamqp.common import FieldTable

from posthouse.brokers.rabbitmq.client import Client, mapped
from posthouse.brokers.rabbitmq.drift import HIDDEN, missing, once, said
from posthouse.brokers.rabbitmq.sight import Lanes, Place, Sight
from posthouse.brokers.rabbitmq.topics import (
    Topics,
    lane_arguments,
    lane_queue,
    topic_arguments,
    unread_arguments,
    unread_of,
)
from posthouse.survey import Drift, partition_drift


class Questions:
    """By AMQP alone: each name is asked for, and then compared by saying again how we would make it, which changes nothing
    that exists. The server names the first difference of each; policies and bindings nobody sees."""

    def __init__(self, client: Client, places: Topics) -> None:
        self._client = client
        self._places = places

    async def sight(self, asked: Collection[str], places: Collection[Place]) -> Sight:
        topics = {topic: await self.topic(topic) for topic in sorted(asked) if await self._has_exchange(topic)}
        counts = {place: await self._places.lanes_of(*place) for place in sorted(places)}
        lanes = {place: Lanes(count, await self.lanes(*place, count)) for place, count in counts.items() if count}
        return Sight(topics, lanes)

    async def topic(self, topic: str) -> list[Drift]:
        rest, drift = unread_of(topic), []
        drift += await self._compare_exchange(topic, "topic", topic_arguments(topic))
        drift += await self._compare_exchange(rest, "fanout", {})
        drift += await self._compare_queue(rest, unread_arguments(self._places.unread))
        return once(drift)

    async def lanes(self, group: str, topic: str, count: int) -> list[Drift]:
        drift, there = partition_drift(count, self._places.lanes), 0
        for lane in range(count):
            name = lane_queue(group, topic, lane, count)
            if await self._places.ready(name) is not None:
                there += 1
                drift += await self._compare_queue(name, lane_arguments(self._places.replicas))
        return once([*drift, *([missing("lanes", str(there), str(count))] if there < count else [])])

    async def _has_exchange(self, name: str) -> bool:
        return await self._places.finds(lambda channel: channel.exchange_declare(name, passive=True)) is not None

    async def _compare_exchange(self, name: str, kind: str, arguments: FieldTable) -> list[Drift]:
        if not await self._has_exchange(name):
            return [missing(f"exchange {name}")]
        return await self._compare(
            lambda channel: channel.exchange_declare(name, exchange_type=kind, durable=True, arguments=arguments)
        )

    async def _compare_queue(self, name: str, arguments: FieldTable) -> list[Drift]:
        if await self._places.ready(name) is None:
            return [missing(f"queue {name}")]
        return await self._compare(lambda channel: channel.queue_declare(name, durable=True, arguments=arguments))

    async def _compare(self, declare: Callable[[Channel], Coroutine[object, object, object]]) -> list[Drift]:
        with mapped("comparing"):
            try:
                async with self._client.errand() as channel:
                    await declare(channel)
            except ChannelPreconditionFailed as error:
                return [said(str(error))]
            except ChannelAccessRefused:
                return [HIDDEN]
        return []
