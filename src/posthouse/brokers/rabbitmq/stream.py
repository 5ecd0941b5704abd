"""One member of a group: a connection of its own, a place in the line of every lane, and word from the other members."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
from aiormq import Channel
from aiormq.abc import DeliveredMessage

from posthouse.broker import Delivery
from posthouse.brokers.rabbitmq.buffer import PartitionBuffer, Token
from posthouse.brokers.rabbitmq.client import Client, mapped, together, within
from posthouse.brokers.rabbitmq.members import Members, Notice
from posthouse.brokers.rabbitmq.topics import MEMBERS, Topics, lane_queue
from posthouse.clock import Clock, new_id
from posthouse.errors import BrokerError, BrokerUnavailable
from posthouse.events.limits import UNREADABLE

_notice = msgspec.json.Decoder(Notice)


class RabbitmqStream:
    """The server gives a lane to whoever stood in line first. A member that has one too many goes to the end of that
    line as soon as nothing of the lane is in hand."""

    def __init__(
        self,
        client: Client,
        places: Topics,
        group: str,
        topics: Sequence[str],
        *,
        clock: Clock,
        window: int,
        on_close: Callable[[RabbitmqStream], None],
    ) -> None:
        self._client = client
        self._places = places
        self.group = group
        self._topics = list(topics)
        self._clock = clock
        self._window = window
        self._on_close = on_close
        self._beat = client.heartbeat / 2
        self._lanes: list[PartitionBuffer] = []
        self._turn = 0
        self._circle: Channel | None = None
        self._members = Members(new_id(), topics, lease=3 * self._beat)
        self._stirred = asyncio.Event()
        self._restless = asyncio.Event()
        self._joining = asyncio.Lock()
        self._proven = 0.0
        self._tending: asyncio.Task[None] | None = None
        self._closed = False

    async def join(self) -> None:
        """Connect, stand in line everywhere, then say so. Whoever stands in some lines only, and reads nothing, keeps others
        from reading: when one step fails all that was opened is closed before the error leaves."""
        async with self._joining:
            if self._closed or self._is_joined():
                return
            await self._leave()
            try:
                await self._stand_in_line()
            except BaseException:
                self._give_up()
                raise
            if self._tending is None:
                self._tending = asyncio.create_task(self._tend())

    async def _stand_in_line(self) -> None:
        self._members = Members(new_id(), self._topics, lease=3 * self._beat)
        for topic in self._topics:
            self._places.forget(topic)
        counts = {topic: await self._places.make_group(self.group, topic) for topic in self._topics}
        self._lanes = [
            PartitionBuffer(
                topic, n, lane_queue(self.group, topic, n, count), clock=self._clock, stir=self._stirred.set
            )
            for topic, count in counts.items()
            for n in range(count)
        ]
        asked = self._now()
        await together(*(lane.join(self._client, self._window) for lane in self._lanes))
        await self._meet()
        self._proven = asked

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed:
            raise BrokerError("this stream was closed")
        await asyncio.sleep(0)
        deadline = self._clock.monotonic() + wait
        while not self._closed:
            await self._be_sure()
            self._stirred.clear()
            found = self._take(limit)
            left = deadline - self._clock.monotonic()
            if found or left <= 0:
                return found
            await self._clock.wait(self._stirred, min(left, self._beat))
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Those of a connection that is gone are somebody else's by now."""
        self._supervise()
        lanes = self._mine(deliveries)
        try:
            for lane, tags in lanes.items():
                await lane.ack(tags, self._client.timeout)
            for lane in [*lanes][:1]:
                asked = self._now()
                await lane.prove(self._client.timeout)  # the connection is read in order: one answer stands for all
                self._proven = asked
        except BaseException:
            self._give_up()  # what the server has not read comes again
            raise
        self._look_after(lanes)

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        """They stay here, to be handed out again first: the server would change their order."""
        lanes = self._mine(deliveries)
        for lane, tags in lanes.items():
            for tag in tags:
                lane.nack(tag)
        self._stirred.set()
        self._look_after(lanes)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stirred.set()
        self._on_close(self)
        try:
            if self._tending is not None:
                self._tending.cancel()
                await asyncio.wait([self._tending], timeout=self._client.timeout)
            with contextlib.suppress(BrokerUnavailable):
                await self._say(leaving=True)
            async with self._joining:
                await self._leave()
            await self._client.aclose()
        finally:
            self._client.close_at_once()

    def abandon(self) -> None:
        """As `aclose`, at once: for a member that never came to be."""
        self._closed = True
        self._stirred.set()
        self._on_close(self)
        if self._tending is not None:
            self._tending.cancel()
        self._give_up()
        self._client.close_at_once()

    def reads(self, topic: str) -> bool:
        return topic in self._topics

    def held(self, topic: str) -> int:
        """Frames of a topic that are here and not acknowledged."""
        return sum(lane.held for lane in self._lanes if lane.topic == topic and lane.is_open)

    def _take(self, limit: int) -> list[Delivery]:
        """From every lane in turn, so that none waits for ever."""
        found: list[Delivery] = []
        for step in range(len(self._lanes)):
            if len(found) >= limit:
                break
            found += self._lanes[(self._turn + step) % len(self._lanes)].take(limit - len(found))
        self._turn += 1
        return found

    def _mine(self, deliveries: Sequence[Delivery]) -> dict[PartitionBuffer, list[int]]:
        """The tags that still mean something, by lane."""
        found: dict[PartitionBuffer, list[int]] = defaultdict(list)
        for delivery in deliveries:
            token = delivery.token
            if isinstance(token, Token) and token.lane.reads(token.channel):
                found[token.lane].append(token.tag)
        return found

    async def _be_sure(self) -> None:
        """Nothing is handed out that may be another's by now: whoever was silent for a while asks first."""
        self._supervise()
        if not self._is_joined():
            await self.join()
        elif self._now() - self._proven > self._beat:
            asked = self._now()
            try:
                # The driver ends a channel whose question was cancelled, and with it what is in hand: so it goes on.
                answer = asyncio.ensure_future(self._lanes[0].prove(self._client.timeout))
                answer.add_done_callback(lambda done: done.cancelled() or done.exception())
                await asyncio.shield(answer)
                self._proven = asked
            except BrokerUnavailable:
                self._give_up()
                await self.join()

    def _is_joined(self) -> bool:
        return bool(self._lanes) and all(lane.is_open for lane in self._lanes)

    def _now(self) -> float:
        """Monotonic: a lease that the server counts has nothing to do with our calendar."""
        return asyncio.get_running_loop().time()

    async def _leave(self) -> None:
        self._forget()
        await self._client.drop()

    def _give_up(self) -> None:
        """Leave at once, without a word: the server hears it from the socket."""
        self._forget()
        self._client.abandon()

    def _forget(self) -> None:
        lanes, self._lanes, self._circle = self._lanes, [], None
        for lane in lanes:
            lane.forget()

    def _supervise(self) -> None:
        """A member that tells nobody of itself any more must not go on in silence."""
        task = self._tending
        if task is not None and task.done() and not self._closed:
            self._tending = None
            self._give_up()
            error = None if task.cancelled() else task.exception()
            raise BrokerUnavailable(f"RabbitMQ: the task of this member ended: {error!r}") from error

    # The other members

    async def _tend(self) -> None:
        """Say from time to time that we are there; give up lanes that are another's."""
        while not self._closed:
            await self._clock.wait(self._restless, self._beat)
            self._restless.clear()
            with contextlib.suppress(BrokerUnavailable):
                await self._say()
                self._members.bury(self._clock.monotonic())
                async with self._joining:  # or what is renewed here would be joined twice
                    for lane in self._lanes:
                        await self._step_back(lane)

    async def _step_back(self, lane: PartitionBuffer) -> None:
        """Once for every change of the circle: the other one then stands before us."""
        lane.leaving = lane.circle != self._members.changes and not self._members.is_mine(lane.topic, lane.number)
        if lane.leaving and lane.idle and lane.is_open:
            changes = self._members.changes
            await lane.leave(self._client.timeout)
            await lane.join(self._client, self._window)
            lane.circle, lane.leaving = changes, False

    def _look_after(self, lanes: dict[PartitionBuffer, list[int]]) -> None:
        if any(lane.leaving and lane.idle for lane in lanes):
            self._restless.set()

    async def _meet(self) -> None:
        channel = await self._client.channel()
        with mapped("meeting the other members"):
            await within(self._client.timeout, self._listen(channel))
        self._circle = channel
        await self._say()

    async def _listen(self, channel: Channel) -> None:
        await channel.exchange_declare(MEMBERS, exchange_type="direct", durable=True)
        queue = (await channel.queue_declare(exclusive=True, auto_delete=True)).queue
        assert queue is not None
        await channel.queue_bind(queue, MEMBERS, self.group)
        await channel.basic_consume(queue, self._hear, no_ack=True)

    async def _say(self, *, leaving: bool = False) -> None:
        channel = self._circle
        if channel is None or channel.is_closed:
            return
        notice = Notice(id=self._members.me, topics=self._topics, leaving=leaving)
        with mapped("telling the other members"):
            saying = channel.basic_publish(msgspec.json.encode(notice), exchange=MEMBERS, routing_key=self.group)
            await within(self._client.timeout, saying)

    async def _hear(self, message: DeliveredMessage) -> None:
        with contextlib.suppress(*UNREADABLE):  # whoever says that is no member
            if self._members.hear(_notice.decode(message.body), self._clock.monotonic()):
                self._restless.set()
