"""nats-py as fast as it goes on its public API: one inbox for all confirmations, and one acknowledgement for 500."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api

from posthouse.broker import Frame
from posthouse.clock import new_id
from tests.kit.servers.nats import running

PULL = 500


class NatsBare:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._left = 0
        self._done = asyncio.Event()

    async def listen(self) -> None:
        await self._client.subscribe(self._inbox, cb=self._confirmed, pending_msgs_limit=0, pending_bytes_limit=0)

    async def publish(self, topic: str, frames: Sequence[Frame]) -> None:
        self._left = len(frames)
        self._done.clear()
        for number, frame in enumerate(frames):
            headers = {**frame.headers, "Nats-Msg-Id": frame.id}
            await self._client.publish(f"{topic}.{number % 8}", frame.body, self._inbox, headers)
        await self._done.wait()

    async def consume(self, topic: str, count: int) -> None:
        config = api.ConsumerConfig(ack_policy=api.AckPolicy.ALL, max_ack_pending=4 * PULL)
        stream = topic.replace(".", "_")
        consumer = await self._client.jetstream().pull_subscribe(
            f"{topic}.*", durable=f"bare-{new_id()}", stream=stream, config=config
        )
        left = count
        while left:
            messages = await consumer.fetch(min(PULL, left), timeout=10)
            await messages[-1].ack_sync()
            left -= len(messages)
        await consumer.unsubscribe()

    async def _confirmed(self, message: Msg) -> None:
        if b'"error"' in message.data:
            raise RuntimeError(message.data.decode())
        self._left -= 1
        if not self._left:
            self._done.set()


class NatsPlug:
    """nats-server on its default settings: file storage, one replica, synced every two minutes."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        with running() as server:
            yield server.url

    @contextlib.asynccontextmanager
    async def bare(self, url: str) -> AsyncIterator[NatsBare]:
        client = await nats.connect(url)
        bare = NatsBare(client)
        await bare.listen()
        yield bare
        await client.close()
