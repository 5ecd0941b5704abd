"""Google's own clients: the batching publisher with ordering keys, and pulls of 1,000 acknowledged together."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from urllib.parse import parse_qs, urlsplit

import google.cloud.pubsub_v1 as pubsub_v1  # type: ignore[import-untyped]  # the package has no types
import grpc
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from posthouse.broker import Frame
from posthouse.clock import new_id
from tests.kit.servers.pubsub import running

PULL = 1000


class PubSubBare:
    def __init__(self, project: str, address: str) -> None:
        self._project = project
        channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
        self._publisher = pubsub_v1.PublisherClient(
            publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True),
            batch_settings=pubsub_v1.types.BatchSettings(max_messages=PULL, max_latency=0.005),
            transport=PublisherGrpcTransport(channel=channel),
        )
        self._subscriber = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        self._waiting: dict[str, list[str]] = defaultdict(list)

    async def expect(self, topic: str, times: int) -> None:
        for _ in range(times):
            name = f"projects/{self._project}/subscriptions/bare-{new_id()}"
            request = {"name": name, "topic": self._path(topic), "enable_message_ordering": True}
            self._subscriber.create_subscription(request={**request, "ack_deadline_seconds": 60})
            self._waiting[topic].append(name)

    async def publish(self, topic: str, frames: Sequence[Frame]) -> None:
        await asyncio.to_thread(self._publish, self._path(topic), frames)

    async def consume(self, topic: str, count: int) -> None:
        await asyncio.to_thread(self._consume, self._waiting[topic].pop(), count)

    def close(self) -> None:
        self._publisher.stop()
        self._publisher.transport.close()
        self._subscriber.close()

    def _path(self, topic: str) -> str:
        return f"projects/{self._project}/topics/{topic}"

    def _publish(self, path: str, frames: Sequence[Frame]) -> None:
        futures = [
            self._publisher.publish(path, frame.body, ordering_key=frame.key or "", **frame.headers) for frame in frames
        ]
        for future in futures:
            future.result()

    def _consume(self, subscription: str, count: int) -> None:
        left = count
        while left:
            answer = self._subscriber.pull(subscription=subscription, max_messages=PULL)
            ids = [received.ack_id for received in answer.received_messages]
            if ids:
                self._subscriber.acknowledge(subscription=subscription, ack_ids=ids)
            left -= len(ids)


class PubSubPlug:
    """The emulator of the tests: what is measured is the clients."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        with running() as server:
            yield server.url

    @contextlib.asynccontextmanager
    async def bare(self, url: str) -> AsyncIterator[PubSubBare]:
        parts = urlsplit(url)
        bare = PubSubBare(parts.netloc, parse_qs(parts.query)["emulator"][0])
        yield bare
        bare.close()
