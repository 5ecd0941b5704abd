"""What an adapter gives to the tests, and what the tests are written with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from posthouse.broker import Broker, Delivery, Frame, Stream, Topology
from posthouse.clock import new_id


class Opened:
    """Opens brokers for one test and remembers them, so that all are closed in the end."""

    def __init__(self, contract: BrokerFixtures) -> None:
        self._contract = contract
        self.brokers: list[Broker] = []

    async def __call__(self) -> Broker:
        self.brokers.append(await self._contract.make_broker())
        return self.brokers[-1]

    async def doomed(self) -> Broker:
        self.brokers.append(await self._contract.make_doomed())
        return self.brokers[-1]


class BrokerFixtures:
    """Brokers on one log, and topics and groups that no other test has."""

    pytestmark = pytest.mark.asyncio

    deadline: float = 20.0
    """Seconds after which something that should have come counts as lost."""
    quiet: float = 0.3
    """Seconds without a frame that count as proof that none will come."""

    async def make_broker(self) -> Broker:
        """A new instance on the one log of this test, as another process would open it."""
        raise NotImplementedError("give make_broker()")

    async def make_doomed(self) -> Broker:
        """An instance that the group gives up within `deadline` though nobody closes it: it hangs, or was killed."""
        pytest.skip("a member of this broker cannot fall silent")

    async def expire(self, broker: Broker) -> None:
        """Delete now whatever retention allows to delete."""
        pytest.skip("retention of this broker cannot be hurried")

    # What the tests are written with

    @contextlib.asynccontextmanager
    async def brokers(self) -> AsyncIterator[Opened]:
        opened = Opened(self)
        try:
            yield opened
        finally:
            for broker in opened.brokers:
                await broker.aclose()

    def name(self, what: str) -> str:
        return f"contract-{what}-{new_id()[-12:]}"

    async def topic(self, broker: Broker) -> str:
        topic = self.name("topic")
        await broker.ensure(Topology(topics=[topic]))
        await broker.ensure(Topology(topics=[topic]))
        return topic

    async def publish(self, broker: Broker, topic: str, count: int, *, keys: int = 1) -> list[Frame]:
        frames = [
            Frame(topic=topic, id=new_id(), key=f"key-{n % keys}", body=b"%d" % n, headers={"n": str(n)})
            for n in range(count)
        ]
        assert all(verdict.accepted for verdict in await broker.publish(frames))
        return frames

    async def collect(self, stream: Stream, count: int, *, ack: bool = True) -> list[Delivery]:
        """Exactly `count` deliveries, or TimeoutError."""
        got: list[Delivery] = []
        async with asyncio.timeout(self.deadline):
            while len(got) < count:
                batch = await stream.receive(count - len(got), self.deadline)
                got += batch
                if ack:
                    await stream.ack(batch)
        return got

    async def nothing_more(self, stream: Stream) -> None:
        assert list(await stream.receive(10, self.quiet)) == []
