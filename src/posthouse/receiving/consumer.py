"""Consumer: receives frames, has them executed side by side, and acknowledges what was committed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from posthouse.broker import Broker, Delivery, Start, Stream
from posthouse.clock import Clock, backoff
from posthouse.errors import BrokerError, StoreError
from posthouse.outage import Outages
from posthouse.pulse import Pulse
from posthouse.receiving.acknowledge import Acknowledger
from posthouse.receiving.ahead import TURN, Ahead, Part
from posthouse.receiving.executor import NOTHING_KNOWN, Executor
from posthouse.receiving.inbound import InboundEvent
from posthouse.receiving.key_queue import KeyQueue
from posthouse.receiving.order import ordering_key
from posthouse.seam.inward import BegunFrame
from posthouse.seam.seals import Seals

log = logging.getLogger("posthouse.consumer")

Item = tuple[Delivery, InboundEvent]

RECEIVE_WAIT = 1.0
FIRST_PAUSE, LAST_PAUSE = 0.5, 5.0
"""Seconds between the first two tries while the broker or the database is away, and at the most."""


class Consumer:
    """One member of a consumer group, again and again: whenever broker or database are in trouble it starts over."""

    def __init__(
        self,
        executor: Executor,
        broker: Broker,
        clock: Clock,
        *,
        start: Start = "earliest",
        in_flight: int = 1000,
        outages: Outages | None = None,
    ) -> None:
        self.name = executor.consumer
        self.service = executor.builder.service
        self.pulse = Pulse()
        self.start = start
        self.begun = asyncio.Event()
        """It has joined its group once: where the group begins is settled."""
        self._outages = outages or Outages(clock)
        self._failures = 0
        """Memberships in a row that ended in trouble, or could not begin."""
        self._executor = executor
        self._broker = broker
        self._clock = clock
        self.in_flight = in_flight
        """So many deliveries it holds at once, at most."""
        self._topics = sorted(executor.ordered)
        self._membership: Membership | None = None

    @property
    def idle(self) -> bool:
        """Nothing received is waiting to be applied or acknowledged."""
        return self._membership is None or self._membership.idle

    @property
    def in_hand(self) -> int:
        """So many deliveries it holds, not applied yet."""
        return 0 if self._membership is None else self._membership.in_hand

    async def take(self, delivery: Delivery) -> None:
        """Deal with a frame that was brought here and did not come through a stream. Returning means: committed, as
        applied or held or known already. What it raises is the database's trouble, and then nothing is known."""
        await self._executor.execute([self._executor.decoder.from_delivery(delivery)])

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop`: what is in flight is finished and acknowledged, the rest goes back to the broker. Cancelled,
        it gives up whatever does not end in a few seconds."""
        while not stop.is_set():
            try:
                with self.pulse.doing("subscribing"):
                    stream = await self._broker.subscribe(
                        self.name, self._topics, start=self.start, window=self.in_flight
                    )
            except BrokerError as error:
                await self._back_off(stop, error)
                continue
            self.begun.set()
            membership = self._membership = Membership(
                self._executor, stream, self.pulse, self.in_flight, self._answered
            )
            patience = self.pulse.last_words
            try:
                if troubles := await membership.last(stop):
                    await self._back_off(stop, *troubles)
                patience = self.pulse.patience
            finally:
                self._membership = None
                await self._leave(stream, patience)
        self._outages.left(self.name)

    async def _back_off(self, stop: asyncio.Event, *troubles: Exception) -> None:
        for trouble in troubles:
            self._outages.failed(self.name, trouble)
        self._failures += 1
        await self._clock.wait(stop, backoff(self._failures, FIRST_PAUSE, LAST_PAUSE))

    def _answered(self) -> None:
        """An event was dealt with, or the broker has nothing for us."""
        self._failures = 0
        self._outages.answered(self.name)

    async def _leave(self, stream: Stream, patience: float) -> None:
        """A stream that does not close is left behind: the broker replaces it when its lease is over."""
        leaving = asyncio.create_task(stream.aclose())
        done, _ = await asyncio.wait([leaving], timeout=patience)
        if not done:
            leaving.cancel()
            log.error("%s: leaving the group takes longer than %g s and is given up", self.name, patience)
        elif not leaving.cancelled() and (error := leaving.exception()) is not None:
            if not isinstance(error, BrokerError):
                raise error
            log.info("%s left the group without a word: %s", self.name, error)


class Membership:
    """From subscribing to leaving: a task that receives, and as many workers as the store can use. What is given up
    keeps to itself: nothing of it is seen by the next one."""

    def __init__(
        self, executor: Executor, stream: Stream, pulse: Pulse, in_flight: int, answered: Callable[[], None]
    ) -> None:
        self.name = executor.consumer
        self._answered = answered
        """Told when an event was dealt with, or the broker has none."""
        self._executor = executor
        self._stream = stream
        self._pulse = pulse
        self._in_flight = in_flight
        deadlines = [handler.policy.deadline for handler in executor.handlers.values()]
        self._longest = max(deadlines, default=0.0)
        """Seconds that a handler may rightly take; the executor is alive between two of its calls."""
        self._queue: KeyQueue[Item] = KeyQueue(in_flight)
        self._acks = Acknowledger(self.name, stream, pulse)
        self._at_work: list[Sequence[Delivery]] = []
        """What handlers have in hand: whether it was committed is known when they return."""
        self._sleepers: list[asyncio.Future[None]] = []
        """Workers that wait for work."""
        self._drained = asyncio.Event()
        self._proves = executor.seam.seals is not None or executor.seam.verify is not None
        self._ahead = Ahead()
        self._unread = 0
        """Frames that it has and did not look at yet."""

    @property
    def idle(self) -> bool:
        return not self._unread and self._queue.idle and self._acks.idle

    @property
    def in_hand(self) -> int:
        return self._in_flight - self._queue.room + self._unread

    async def last(self, stop: asyncio.Event) -> Sequence[Exception]:
        """Until `stop`, or until the broker or the database is in trouble, which is returned: then everything starts over
        from what is acknowledged."""
        halt = asyncio.Event()
        workers = [asyncio.create_task(self._work(halt)) for _ in range(self._executor.workers)]
        receiver = asyncio.create_task(self._receive())
        tasks = [receiver, asyncio.create_task(self._acks.run(halt)), *workers]
        stopper = asyncio.create_task(stop.wait())
        patience = self._pulse.last_words
        try:
            await asyncio.wait([stopper, *tasks], return_when=asyncio.FIRST_COMPLETED)
            halt.set()
            self._acks.wake()
            receiver.cancel()
            while self._sleepers:
                self._wake_one()
            await asyncio.wait(tasks)
            patience = self._pulse.patience
        finally:
            self._ahead.close()
            stopper.cancel()
            await _given_up(tasks, self._pulse.last_words)
            await self._say_all(patience)
        troubles = [error for task in tasks if (error := _error(task)) is not None]
        for trouble in troubles:
            if not isinstance(trouble, BrokerError | StoreError):
                raise trouble
        return troubles

    async def _receive(self) -> None:
        """Frames from the broker, decoded, into the queue of their keys."""
        while True:
            room = self._queue.room
            if room <= self._in_flight // 2:
                self._drained.clear()
                await self._drained.wait()
                continue
            with self._pulse.doing("receiving", longer=RECEIVE_WAIT):
                received = await self._executor.seam.receive(self._stream, self.name, room, RECEIVE_WAIT)
            if not received and self.idle:
                self._answered()
            seals = self._executor.seam.seals
            if seals is not None and self._ahead.pays(received):
                await self._take_in_proved(seals, received)
            elif self._proves:
                await self._take_in_turns(received)
            else:
                for delivery in received:
                    self._take_in(delivery)
            if self._queue.ready:
                self._wake_one()
            await asyncio.sleep(0)

    def _take_in(self, delivery: Delivery, begun: BegunFrame | None = None) -> None:
        inbound = self._executor.decoder.from_delivery(delivery, begun)
        entry = inbound.entry
        key = None if entry.sequence is None else ordering_key(entry)
        self._queue.put(entry.tenant, key, (delivery, inbound))

    async def _take_in_proved(self, seals: Seals, received: Sequence[Delivery]) -> None:
        """All of them, in their order, verified in threads. Workers begin with the first while the last are on their way."""

        def take(part: Part) -> None:
            for delivery, begun in part:
                self._take_in(delivery, begun)
            self._unread -= len(part)
            self._wake_one()

        self._unread = len(received)
        await self._ahead.take_in(received, partial(self._executor.decoder.begin, seals), take)

    async def _take_in_turns(self, received: Sequence[Delivery]) -> None:
        """All of them, in their order, and the loop is left to others now and then: to prove hundreds takes a tenth of a second."""
        now = asyncio.get_running_loop().time
        began = now()
        for place, delivery in enumerate(received, start=1):
            self._take_in(delivery)
            if now() - began >= TURN:
                self._unread = len(received) - place
                await asyncio.sleep(0)
                began = now()
        self._unread = 0

    async def _work(self, halt: asyncio.Event) -> None:
        while not halt.is_set():
            if not self._queue.ready:
                await self._acks.flush()
                await self._refilled(halt)
                continue
            taken = self._take()
            if self._queue.ready:
                self._wake_one()
            try:
                await self._execute([item for _, run in taken for item in run])
            finally:
                for key, run in taken:
                    self._queue.done(key, len(run))
                if self._queue.room > self._in_flight // 2:  # a few at a time would cost a look at the broker each
                    self._drained.set()
            if self._acks.full:
                await self._acks.flush()

    async def _execute(self, items: Sequence[Item]) -> None:
        """Execute events, and have them acknowledged: after the commit, never before. Of what the database does not tell
        anything, the broker is told to deliver it again."""
        deliveries = [delivery for delivery, _ in items]
        self._at_work.append(deliveries)
        try:
            with self._pulse.doing("applying events", longer=self._longest):
                await self._executor.execute([inbound for _, inbound in items])
        except NOTHING_KNOWN:
            with self._pulse.doing("handing events back"):
                await self._stream.nack(deliveries)
            self._done_with(deliveries)
            raise
        self._answered()
        self._done_with(deliveries)
        self._acks.add(deliveries)

    async def _refilled(self, halt: asyncio.Event) -> None:
        """Wait for work; the flush before may have let some in."""
        if not self._queue.ready and not halt.is_set():
            sleeper = asyncio.get_running_loop().create_future()
            self._sleepers.append(sleeper)
            await sleeper

    def _wake_one(self) -> None:
        """There is work, perhaps for one only: whoever takes some of it and leaves some wakes the next."""
        while self._sleepers:
            sleeper = self._sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                return

    def _take(self) -> list[tuple[Hashable | None, list[Item]]]:
        """The next event, under its key. With a handler that takes several, as many as are ready: first of different keys,
        so that tenants keep their turns, then what waits behind these."""
        key, item = self._queue.take()
        taken = [(key, [item])]
        handler = item[1].handler
        room = handler.most_at_once - 1 if handler is not None else 0
        while room > 0 and (following := self._queue.peek()) and following[1].handler is handler:
            key, item = self._queue.take()
            taken.append((key, [item]))
            room -= 1
        for key, run in taken:
            while room > 0 and (following := self._queue.following(key)) and following[1].handler is handler:
                run.append(self._queue.take_following(key))
                room -= 1
        return taken

    def _done_with(self, deliveries: Sequence[Delivery]) -> None:
        self._at_work = [others for others in self._at_work if others is not deliveries]

    async def _say_all(self, patience: float) -> None:
        """Before leaving: hand back what was given up, of which nobody knows whether it was committed, and acknowledge the
        rest. Whatever the broker does not hear comes again."""
        with contextlib.suppress(TimeoutError, BrokerError):
            async with asyncio.timeout(patience):
                await self._acks.flush()
                for deliveries in self._at_work:
                    await self._stream.nack(deliveries)


async def _given_up(tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Cancel what is left, and let it be when it does not hear that."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=seconds)
    for task in tasks:
        _error(task)  # asked, so that asyncio does not report it as never retrieved where we are cancelled ourselves


def _error(task: asyncio.Task[None]) -> Exception | None:
    error = None if task.cancelled() or not task.done() else task.exception()
    return error if isinstance(error, Exception) else None
