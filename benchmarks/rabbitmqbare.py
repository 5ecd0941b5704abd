"""aio-pika as fast as it goes on its public API: all publishes of a call at once, a wide prefetch, and one
acknowledgement for many."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractExchange, AbstractIncomingMessage, AbstractQueue

from posthouse.broker import Frame
from posthouse.clock import new_id
from tests.kit.servers.rabbitmq import running

PREFETCH = 4000
TOGETHER = 500


class RabbitmqBare:
    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._exchanges: dict[str, AbstractExchange] = {}
        self._waiting: dict[str, list[AbstractQueue]] = defaultdict(list)

    async def expect(self, topic: str, times: int) -> None:
        for _ in range(times):
            channel = await self._connection.channel(publisher_confirms=False)
            await channel.set_qos(prefetch_count=PREFETCH)
            queue = await channel.declare_queue(f"bare-{new_id()}", durable=True, arguments={"x-queue-type": "quorum"})
            await queue.bind(topic, "#")
            self._waiting[topic].append(queue)

    async def publish(self, topic: str, frames: Sequence[Frame]) -> None:
        exchange = await self._exchange(topic)
        await asyncio.gather(*(exchange.publish(_message(frame), "0.0.0.0.0.0", mandatory=True) for frame in frames))

    async def consume(self, topic: str, count: int) -> None:
        queue, left, done = self._waiting[topic].pop(), count, asyncio.Event()

        async def take(message: AbstractIncomingMessage) -> None:
            nonlocal left
            left -= 1
            if left % TOGETHER == 0:
                await message.ack(multiple=True)
            if not left:
                done.set()

        tag = await queue.consume(take)
        await done.wait()
        await queue.cancel(tag)

    async def _exchange(self, topic: str) -> AbstractExchange:
        if topic not in self._exchanges:
            self._exchanges[topic] = await (await self._connection.channel()).get_exchange(topic)
        return self._exchanges[topic]


def _message(frame: Frame) -> aio_pika.Message:
    return aio_pika.Message(
        frame.body,
        content_type=frame.headers["content-type"],
        message_id=frame.id,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


class RabbitmqPlug:
    """A node on its default settings. Quorum queues on both sides."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        with running() as server:
            yield f"{server.url}?settle=0"

    @contextlib.asynccontextmanager
    async def bare(self, url: str) -> AsyncIterator[RabbitmqBare]:
        address = url.replace("rabbitmq", "amqp").partition("?")[0]
        async with await aio_pika.connect(address) as connection:
            yield RabbitmqBare(connection)
