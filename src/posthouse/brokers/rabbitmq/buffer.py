"""A lane as one member has it: a channel, its one consumer, and what of it is here. At most `window` frames are."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from aiormq import Channel
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from posthouse.broker import Delivery
from posthouse.brokers.handing import handed
from posthouse.brokers.rabbitmq.client import Client, mapped, quietly, within
from posthouse.brokers.rabbitmq.messages import defect_of, frame_of, stored_at
from posthouse.clock import Clock

MOST = 65_535
"""The largest prefetch count."""


class Token(NamedTuple):
    """Which message a delivery was: tags count from 1 on every channel."""

    lane: PartitionBuffer
    channel: object
    tag: int


class PartitionBuffer:
    """`queue` is read as soon as the server makes this member its active one. `circle`: how often the group's circle had
    changed when it stood in line."""

    def __init__(self, topic: str, number: int, queue: str, *, clock: Clock, stir: Callable[[], None]) -> None:
        self.topic = topic
        self.number = number
        self.queue = queue
        self.circle = 0
        self.leaving = False
        self._clock = clock
        self._stir = stir
        self._channel: Channel | None = None
        self._fresh: deque[DeliveredMessage] = deque()
        self._again: list[int] = []
        self._here: dict[int, DeliveredMessage] = {}
        """Everything that is not acknowledged, by its tag, in the order of the queue."""
        self._in_hand: set[int] = set()
        self._given: set[int] = set()
        """Tags that were handed out once."""

    @property
    def is_open(self) -> bool:
        channel = self._channel
        return channel is not None and not channel.is_closed and not channel.connection.is_closed

    @property
    def idle(self) -> bool:
        return not self._in_hand

    @property
    def held(self) -> int:
        """Frames that the server counts as handed to us."""
        return len(self._here)

    async def join(self, client: Client, window: int) -> None:
        """Stand in line."""
        channel = self._channel = await client.channel()
        channel.closing.add_done_callback(lambda _: self._stir())
        channel.on_consumer_cancel_callbacks.add(self._lost)
        with mapped(f"reading {self.queue!r}"):
            await within(client.timeout, channel.basic_qos(prefetch_count=min(window, MOST)))
            await within(client.timeout, channel.basic_consume(self.queue, self._arrived))

    def reads(self, channel: object) -> bool:
        """Whether what came on this channel is still ours to acknowledge."""
        return channel is self._channel and self.is_open

    async def leave(self, timeout: float) -> None:
        """What is here goes back to the server, in its order; whoever is next in line gets it."""
        channel = self._channel
        self.forget()
        if channel is not None:
            await quietly(channel.close(), timeout)

    def forget(self) -> None:
        """The connection is gone, and all that came with it is another's."""
        self._channel = None
        self._fresh.clear()
        self._again.clear()
        self._here.clear()
        self._in_hand.clear()
        self._given.clear()

    def take(self, limit: int) -> list[Delivery]:
        """Those handed back come first, and while some of them wait nothing else does."""
        tags: list[int] = []
        if self.leaving or not self.is_open:
            return []
        again = self._again[:limit]
        del self._again[:limit]
        tags += again
        while not self._again and self._fresh and len(tags) < limit:
            tag = self._fresh.popleft().delivery_tag
            assert tag is not None
            tags.append(tag)
        self._in_hand.update(tags)
        return [self._delivery(tag) for tag in tags]

    def nack(self, tag: int) -> None:
        if tag in self._in_hand:
            self._in_hand.remove(tag)
            insort(self._again, tag)

    async def ack(self, tags: Iterable[int], timeout: float) -> None:
        """All up to the oldest that is still open go in one word, the others in one each. Where it raises nobody knows which
        the server has read: the connection has to go."""
        done = sorted(tag for tag in tags if self._here.pop(tag, None) is not None)
        self._in_hand.difference_update(done)
        self._given.difference_update(done)
        again = set(done) & set(self._again)
        self._again = [tag for tag in self._again if tag not in again]
        channel = self._channel
        if not done or channel is None:
            return
        oldest = next(iter(self._here), done[-1] + 1)
        whole = [tag for tag in done if tag < oldest]
        with mapped(f"acknowledging in {self.queue!r}"):
            await within(timeout, _say(channel, whole[-1:], done[len(whole) :]))

    async def prove(self, timeout: float) -> None:
        """Return when the server has read all that we sent; raises BrokerUnavailable when it is not there any more."""
        channel = self._channel
        if channel is not None:
            with mapped("waiting for an answer"):
                await within(timeout, channel.flow(True))

    async def _lost(self, _: Basic.Cancel) -> None:
        """The queue was deleted, and all that came from it."""
        self.forget()
        self._stir()

    async def _arrived(self, message: DeliveredMessage) -> None:
        tag = message.delivery_tag
        if message.channel is self._channel and tag is not None:
            self._here[tag] = message
            self._fresh.append(message)
            self._stir()

    def _delivery(self, tag: int) -> Delivery:
        message = self._here[tag]
        properties = message.header.properties
        at = stored_at(properties, self._clock.now())
        again = bool(message.delivery.redelivered) or tag in self._given  # type: ignore[union-attr]  # consumed, not got
        self._given.add(tag)
        return handed(
            partial(frame_of, self.topic, f"{self.queue}:{at:.6f}:{tag}", properties, message.body),
            topic=self.topic,
            body=message.body,
            position=int(at * 1e6),
            stored_at=at,
            redelivered=again,
            token=Token(self, self._channel, tag),
            defect=defect_of(properties),
        )


async def _say(channel: Channel, whole: list[int], single: list[int]) -> None:
    for tag in whole:
        await channel.basic_ack(tag, multiple=True, wait=False)
    for tag in single:
        await channel.basic_ack(tag, wait=False)
