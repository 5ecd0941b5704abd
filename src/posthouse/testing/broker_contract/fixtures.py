"""What an adapter gives to the tests, and what the tests are written with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, Protocol

import pytest

from posthouse.broker import Broker, Delivery, Frame, Stream, Topology
from posthouse.clock import new_id
from posthouse.errors import BrokerUnavailable


class Server(Protocol):
    """The broker's server, where a test may end it. Both return when it takes connections again."""

    async def restart(self) -> None:
        """Stop it in good order, and start it on the same data."""
        ...

    async def kill(self) -> None:
        """End it by SIGKILL, and start it on the same data."""
        ...


class Link(Protocol):
    """The way between one instance and its server."""

    async def cut(self) -> None:
        """Drop the connections, and refuse new ones."""
        ...

    async def stall(self) -> None:
        """Keep the connections, and let no byte pass: the peer has vanished without a word."""
        ...

    async def slow(self, seconds: float) -> None:
        """Let everything pass, so much later, each way."""
        ...

    def after(self, said: int, fault: Literal["cut", "stall"]) -> None:
        """Let the client say so many things more, as they come in from the socket, and then cut or stall: a call that asks
        several things fails half-way. `heal` forgets it."""
        ...

    async def heal(self) -> None:
        """Let everything pass again at once; what was stalled goes on or was given up by then."""
        ...


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

    async def linked(self) -> tuple[Broker, Link]:
        broker, link = await self._contract.make_linked()
        self.brokers.append(broker)
        return broker, link

    async def restricted(self, topic: str) -> Broker:
        self.brokers.append(await self._contract.make_restricted(topic))
        return self.brokers[-1]


class BrokerFixtures:
    """Brokers on one log, and topics and groups that no other test has."""

    pytestmark = pytest.mark.asyncio

    deadline: float = 20.0
    """Seconds after which something that should have come counts as lost."""
    stress: int = 10_000
    """How many frames are sent and received in one go; fewer where an emulator would be measured."""
    quiet: float = 0.3
    """Seconds without a frame that count as proof that none will come."""
    server: Server | None = None
    """The server that all instances use, where it may be ended and started again."""
    survives_kill: bool = False
    """Whether what was accepted outlives the server's process though not its machine; `durable_ack` implies it."""
    knows_what_was_given_back: bool = True
    """Whether it knows of a member that left in good order that what it had in hand was not dealt with."""
    tells_ages: bool = True
    """Whether it knows how old the oldest frame is that a group has not acknowledged."""
    hears_of_a_seek_late: bool = False
    """Whether a member may hand out what it had asked for until it hears of a seek, so that the next one must take what is
    published meanwhile for a repeat."""
    most_in_hand: int = 300
    """How many frames of eight keys a member can have in hand, and not acknowledged, at once."""
    standstill: float = 3.0
    """Seconds for which a member stands still: longer than the lease of `make_broker` and `make_linked`. With POSTHOUSE_LONG
    they are 20."""

    async def make_broker(self) -> Broker:
        """A new instance on the one log of this test, as another process would open it."""
        raise NotImplementedError("give make_broker()")

    async def make_doomed(self) -> Broker:
        """An instance that the group gives up within `deadline` though nobody closes it: it hangs, or was killed."""
        pytest.skip("a member of this broker cannot fall silent")

    async def make_linked(self) -> tuple[Broker, Link]:
        """An instance, and the link to its server that this test may cut."""
        pytest.skip("this broker has no link that a test could cut")

    async def make_restricted(self, topic: str) -> Broker:
        """An instance whose rights on the server do not reach to this topic."""
        pytest.skip("this broker knows no rights of its own")

    async def expire(self, broker: Broker) -> None:
        """Delete now whatever retention allows to delete."""
        pytest.skip("retention of this broker cannot be hurried")

    async def lose_frames(self, topic: str, group: str) -> int:
        """Remove on the server, behind our back, at least one frame that this group has not received; say how many."""
        pytest.skip("nothing can be taken out of this broker by hand")

    async def spoil_frame(self, topic: str) -> None:
        """Spoil on the server one stored frame of the topic, or add one, so that no frame can be made of it."""
        pytest.skip("nothing that this broker can store fails to become a frame, or a test cannot store it")

    async def outlast_dedup(self, broker: Broker) -> None:
        """Come back when the broker has forgotten the ids that it has seen."""
        pytest.skip("this broker's memory for ids cannot be outlasted in a test")

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

    async def group(self, broker: Broker, *topics: str) -> str:
        """A group that gets all that is published from now on, also where a broker has no history."""
        group = self.name("group")
        await broker.ensure(Topology(groups={group: topics}))
        return group

    async def publish(self, broker: Broker, topic: str, count: int, *, keys: int = 1) -> list[Frame]:
        frames = [
            Frame(topic=topic, id=new_id(), key=f"key-{n % keys}", body=b"%d" % n, headers={"n": str(n)})
            for n in range(count)
        ]
        assert all(verdict.accepted for verdict in await broker.publish(frames))
        return frames

    async def collect(self, stream: Stream, count: int, *, ack: bool = True) -> list[Delivery]:
        """Exactly `count` deliveries, or TimeoutError that says how many came."""
        got: list[Delivery] = []
        try:
            async with asyncio.timeout(self.deadline):
                while len(got) < count:
                    batch = await stream.receive(count - len(got), self.deadline)
                    got += batch
                    if ack:
                        await stream.ack(batch)
        except TimeoutError as error:
            last = f"the last at position {got[-1].position!r}" if got else "none at all"
            said = f"{len(got)} of {count} frames came within {self.deadline:g} s, {last}"
            raise TimeoutError(f"{said}; `deadline` of the test class may be raised") from error
        return got

    async def insist(self, broker: Broker, frames: Sequence[Frame]) -> None:
        """Publish as the relay does: again and again, everything after an unknown outcome, until all are accepted."""
        left = list(frames)
        async with asyncio.timeout(self.deadline):
            while left:
                with contextlib.suppress(BrokerUnavailable):
                    verdicts = await broker.publish(left)
                    left = [frame for frame, verdict in zip(left, verdicts, strict=True) if not verdict.accepted]
                await asyncio.sleep(0.01)

    async def gather_ids(self, stream: Stream, wanted: set[str]) -> list[Delivery]:
        """Everything that comes until every wanted id was among it; whatever fails on the way is tried again."""
        got: list[Delivery] = []
        async with asyncio.timeout(self.deadline):
            while not wanted <= {delivery.frame.id for delivery in got}:
                try:
                    batch = await stream.receive(100, 1.0)
                    got += batch
                    await stream.ack(batch)
                except BrokerUnavailable:
                    await asyncio.sleep(0.01)
        return got

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it, at most the deadline."""
        async with asyncio.timeout(self.deadline):
            while not condition():  # noqa: ASYNC110 - the frames that change it set no event
                await asyncio.sleep(0.01)

    def controlled(self) -> Server:
        """The server, or the test is skipped."""
        if self.server is None:
            pytest.skip("this broker has no server that a test could end")
        return self.server

    async def nothing_more(self, stream: Stream) -> None:
        assert list(await stream.receive(10, self.quiet)) == []
