"""confluent-kafka as fast as it goes: an idempotent producer with one flush per batch, a consumer that commits behind 500."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from posthouse.broker import Frame
from posthouse.clock import new_id
from tests.kit.servers.kafka import running

PULL = 500


class KafkaBare:
    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": "murmur2_random",
                "linger.ms": 50,
            }
        )
        self._stored = 0

    async def publish(self, topic: str, frames: Sequence[Frame]) -> None:
        self._stored = 0
        await asyncio.to_thread(self._publish, topic, frames)
        if self._stored != len(frames):
            raise RuntimeError(f"{len(frames) - self._stored} frames were not confirmed")

    async def consume(self, topic: str, count: int) -> None:
        await asyncio.to_thread(self._consume, topic, count)

    def _publish(self, topic: str, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self._producer.produce(
                topic, frame.body, key=frame.key, headers=dict(frame.headers), on_delivery=self._confirmed
            )
        self._producer.flush()

    def _consume(self, topic: str, count: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"bare-{new_id()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        left = count
        while left:
            messages = consumer.consume(min(PULL, left), 10)
            left -= len(messages)
            consumer.commit(asynchronous=True)
        with contextlib.suppress(KafkaException):  # an earlier commit has covered everything
            consumer.commit(asynchronous=False)
        consumer.close()

    def _confirmed(self, error: KafkaError | None, message: Message) -> None:
        self._stored += error is None


class KafkaPlug:
    """One node on its default settings: the page cache of one machine."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        with running(quick_start=False) as server:
            yield server.url

    @contextlib.asynccontextmanager
    async def bare(self, url: str) -> AsyncIterator[KafkaBare]:
        yield KafkaBare(url.removeprefix("kafka://"))
