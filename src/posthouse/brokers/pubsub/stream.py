"""One member of a group: a streaming pull for each subscription, and a lease on everything that came through it."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial

import msgspec
from google.pubsub_v1.types import (
    AcknowledgeRequest,
    ModifyAckDeadlineRequest,
    ReceivedMessage,
    StreamingPullRequest,
    StreamingPullResponse,
)

from posthouse.broker import Delivery
from posthouse.brokers.handing import handed
from posthouse.brokers.pubsub.client import Client, mapped
from posthouse.brokers.pubsub.messages import frame_of
from posthouse.clock import Clock
from posthouse.errors import BrokerError, BrokerUnavailable

AcknowledgePb = AcknowledgeRequest.pb()
"""The bare protobuf class: its wrapper looks at every id."""
TOGETHER = 1000
"""Ids in one request, which Pub/Sub limits to 512 KiB."""
SHARE = 0.8
"""Of the ack deadline: our own lease ends before the server's."""
PAUSE = 0.1
"""Seconds before a pull that failed is begun again."""


class Held(msgspec.Struct, eq=False):
    """A message that is ours until the lease ends: `handed` to the consumer, or waiting. `done`: the consumer is through
    with it, and the server may not know yet."""

    ack_id: str
    message_id: str
    number: int
    delivery: Delivery
    handed: bool = False
    done: bool = False

    def __lt__(self, other: Held) -> bool:
        return self.number < other.number


class Lane:
    """What this member has of one subscription. `waiting` is a heap: what was handed back comes first."""

    def __init__(self, subscription: str, topic: str) -> None:
        self.subscription = subscription
        self.topic = topic
        self.held: dict[str, Held] = {}
        self.waiting: list[Held] = []
        self.room = asyncio.Event()
        self.pull: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        self._numbers = itertools.count()

    def put(self, received: ReceivedMessage) -> None:
        """The newest delivery of a message counts; an older one of it cannot be acknowledged any more."""
        message = received.message
        published = message.publish_time
        delivery = handed(
            partial(frame_of, self.topic, message),
            topic=self.topic,
            body=message.data,
            position=published.seconds * 1_000_000 + published.nanos // 1000,
            stored_at=published.seconds + published.nanos / 1e9,
            redelivered=received.delivery_attempt != 1,  # 0: the subscription does not count, so it may be a repeat
            token=None,
        )
        held = Held(received.ack_id, message.message_id, next(self._numbers), delivery)
        held.delivery = msgspec.structs.replace(delivery, token=(self, held))
        self.held[held.message_id] = held
        heapq.heappush(self.waiting, held)

    def take(self, limit: int) -> list[Delivery]:
        taken: list[Delivery] = []
        while self.waiting and len(taken) < limit:
            held = heapq.heappop(self.waiting)
            if self.owns(held):
                held.handed = True
                taken.append(held.delivery)
        return taken

    def give_back(self, held: Held) -> None:
        if self.owns(held) and held.handed and not held.done:
            held.handed = False
            held.delivery = msgspec.structs.replace(held.delivery, redelivered=True)
            heapq.heappush(self.waiting, held)

    def done(self) -> list[Held]:
        return [held for held in self.held.values() if held.done]

    def owns(self, held: Held) -> bool:
        return self.held.get(held.message_id) is held

    def drop(self, gone: Sequence[Held]) -> None:
        for held in gone:
            if self.owns(held):
                del self.held[held.message_id]
        self.room.set()

    def forget(self) -> None:
        self.held.clear()
        self.waiting.clear()
        self.room.set()


class PubSubStream:
    """The port's Stream. `lease` is the ack deadline in whole seconds; `window` bounds what is held per subscription."""

    def __init__(
        self,
        client: Client,
        lanes: Sequence[Lane],
        *,
        clock: Clock,
        window: int,
        lease: int,
        on_close: Callable[[PubSubStream], None],
    ) -> None:
        self.lanes = lanes
        self._client = client
        self._clock = clock
        self._window = window
        self._lease = lease
        self._on_close = on_close
        self._until = 0.0
        """When our lease ends, by the loop's clock, unless it is renewed."""
        self._alarm: asyncio.TimerHandle | None = None
        self._leased = asyncio.Event()
        self._bell = asyncio.Event()
        self._closed = asyncio.Event()
        self._left = asyncio.Event()
        self._trouble: BaseException | None = None
        self._turn = 0
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        self._renewed(asyncio.get_running_loop().time())
        self._tasks = [asyncio.create_task(self._follow(lane)) for lane in self.lanes]
        self._tasks.append(asyncio.create_task(self._keep()))
        for task in self._tasks:
            task.add_done_callback(lambda _: self._bell.set())

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed.is_set():
            raise BrokerError("this stream was closed")
        await asyncio.sleep(0)  # a consumer that always finds something must still let other tasks run
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while not self._closed.is_set():
            self._supervise()
            if loop.time() > self._until:
                self._lapse()  # whoever slept hands out nothing that may be another's by now
            self._bell.clear()
            deliveries = self._take(limit)
            left = deadline - loop.time()
            if deliveries or left <= 0:
                return deliveries
            if self._trouble is not None:
                trouble, self._trouble = self._trouble, None
                raise trouble
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._bell.wait()
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """One that the server did not hear of is told again with the next renewal, also where another lane was in the way."""
        self._supervise()
        mine = list(self._mine(deliveries))
        for held in (held for _, helds in mine for held in helds):
            held.done = True
        for lane, helds in mine:
            await self._settle(lane, helds)

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        """They stay leased to this member, which hands them out again: the server would send all later ones of their
        keys a second time."""
        for lane, helds in self._mine(deliveries):
            for held in helds:
                lane.give_back(held)
        self._bell.set()

    async def aclose(self) -> None:
        if self._closed.is_set():
            await self._left.wait()
            return
        self._closed.set()
        self._bell.set()
        try:
            await self._leave()
        finally:
            self._left.set()
            self._on_close(self)

    def lapse(self) -> None:
        """Forget everything: a seek made it stale."""
        for lane in self.lanes:
            lane.forget()

    # Handing out

    def _take(self, limit: int) -> list[Delivery]:
        """Lanes take turns in going first, so that a busy one starves nobody."""
        self._turn += 1
        deliveries: list[Delivery] = []
        for turn in range(len(self.lanes)):
            deliveries += self.lanes[(self._turn + turn) % len(self.lanes)].take(limit - len(deliveries))
        return deliveries

    def _mine(self, deliveries: Sequence[Delivery]) -> Iterator[tuple[Lane, list[Held]]]:
        """What is still ours, by lane; each once."""
        found: dict[Lane, dict[str, Held]] = {}
        if asyncio.get_running_loop().time() > self._until:
            self._lapse()
        for delivery in deliveries:
            if isinstance(delivery.token, tuple):
                lane, held = delivery.token
                if lane.owns(held):
                    found.setdefault(lane, {})[held.message_id] = held
        for lane, helds in found.items():
            yield lane, list(helds.values())

    # The lease

    def _supervise(self) -> None:
        """Without its tasks a member receives nothing, for ever and without an error."""
        ended = [task for task in self._tasks if task.done()]
        if ended and not self._closed.is_set():
            error = None if ended[0].cancelled() else ended[0].exception()
            raise BrokerUnavailable(f"Pub/Sub: a task of this member ended, subscribe again: {error!r}") from error

    async def _keep(self) -> None:
        """Renew the lease on everything in hand, three times in its length."""
        while not await self._clock.wait(self._closed, self._lease * SHARE / 3):
            began = asyncio.get_running_loop().time()
            if began > self._until:
                self._lapse()
            try:
                for lane in self.lanes:
                    await self._settle(lane, lane.done())
                    await self._postpone(lane, self._lease)
            except BrokerError as error:
                self._trouble = error
                self._bell.set()
            else:
                self._renewed(began)

    async def _settle(self, lane: Lane, helds: list[Held]) -> None:
        for some in _chunks(helds):
            request = AcknowledgePb(subscription=lane.subscription, ack_ids=[held.ack_id for held in some])
            with mapped("acknowledging"):
                await self._client.subscriber.acknowledge(
                    AcknowledgeRequest.wrap(request), retry=None, timeout=self._client.timeout
                )
            lane.drop(some)

    async def _postpone(self, lane: Lane, seconds: int) -> None:
        for some in _chunks(list(lane.held.values())):
            request = ModifyAckDeadlineRequest(
                subscription=lane.subscription, ack_ids=[held.ack_id for held in some], ack_deadline_seconds=seconds
            )
            with mapped("keeping the lease"):
                await self._client.subscriber.modify_ack_deadline(request, retry=None, timeout=self._client.timeout)

    def _renewed(self, began: float) -> None:
        self._until = began + self._lease * SHARE
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(self._until, self._lapse)
        self._leased.set()

    def _lapse(self) -> None:
        """The lease ended: nothing in hand is ours any more, and nothing more is asked for until it holds again."""
        self._leased.clear()
        for lane in self.lanes:
            lane.forget()
            if lane.pull is not None:
                lane.pull.cancel()

    # Reading

    async def _follow(self, lane: Lane) -> None:
        """Pull, and pull again when that ended: the service closes every stream once in a while."""
        while not self._closed.is_set():
            await self._leased.wait()
            if self._closed.is_set():
                return
            lane.pull = asyncio.create_task(self._pull(lane))
            await asyncio.wait([lane.pull])
            if not lane.pull.cancelled() and (error := lane.pull.exception()) is not None:
                self._trouble = error
                self._bell.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._closed.wait()

    async def _pull(self, lane: Lane) -> None:
        lane.over = over = asyncio.Event()
        try:
            with mapped(f"pulling from {lane.subscription}"):
                requests = self._requests(lane, over)
                async for answer in await self._client.subscriber.streaming_pull(requests, retry=None, timeout=None):
                    for received in StreamingPullResponse.pb(answer).received_messages:
                        lane.put(received)
                    self._bell.set()
                    while len(lane.held) >= self._window and not self._closed.is_set():
                        lane.room.clear()
                        await lane.room.wait()
        finally:
            over.set()

    async def _requests(self, lane: Lane, over: asyncio.Event) -> AsyncIterator[StreamingPullRequest]:
        """One, and when this member leaves the end: the server then sends what is on its way, and ends too."""
        yield StreamingPullRequest(
            subscription=lane.subscription,
            stream_ack_deadline_seconds=self._lease,
            max_outstanding_messages=self._window,
        )
        await over.wait()

    async def _leave(self) -> None:
        """Hand everything back at once; what cannot be told comes back when its deadline ends."""
        for lane in self.lanes:
            lane.room.set()
            lane.over.set()
        self._leased.set()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        for task in (*self._tasks, *(lane.pull for lane in self.lanes if lane.pull is not None)):
            task.cancel()
            await asyncio.wait([task])
        with contextlib.suppress(BrokerError):
            for lane in self.lanes:
                await self._settle(lane, lane.done())
                await self._postpone(lane, 0)
        self.lapse()


def _chunks(helds: list[Held]) -> Iterator[list[Held]]:
    for first in range(0, len(helds), TOGETHER):
        yield helds[first : first + TOGETHER]
