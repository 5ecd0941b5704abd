"""Consumer: frames come in, pass the key gate, are applied, and are acknowledged after the commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable

from posthouse.broker import Broker, Delivery, Start, Stream
from posthouse.clock import Clock
from posthouse.errors import BrokerError, StoreError
from posthouse.receiving.applying import NOTHING_KNOWN, Applier
from posthouse.receiving.gate import Gate
from posthouse.receiving.policy import Policy
from posthouse.receiving.work import Work

log = logging.getLogger("posthouse.consumer")

Item = tuple[Delivery, Work]
Run = tuple[Hashable | None, list[Item]]
"""Events of one key, in their order."""

RECEIVE_WAIT = 1.0
ACK_BATCH = 100
PAUSE = 0.5
"""Seconds between two tries while the broker or the database is away."""


class Consumer:
    """One member of a consumer group: a task that receives, and as many workers as the store can use."""

    def __init__(
        self, applier: Applier, broker: Broker, clock: Clock, *, start: Start = "earliest", in_flight: int = 1000
    ) -> None:
        self.name = applier.consumer
        self._applier = applier
        self._broker = broker
        self._clock = clock
        self._start = start
        self._in_flight = in_flight
        self._topics = sorted(applier.ordered)
        self._gate: Gate[Item] = Gate(in_flight)
        self._acks: list[Delivery] = []
        self._sleepers: list[asyncio.Future[None]] = []
        """Workers that wait for work."""
        self._drained = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Nothing received is waiting to be applied or acknowledged."""
        return self._gate.idle and not self._acks

    async def take(self, delivery: Delivery) -> None:
        """Deal with a frame that was brought here and did not come through a stream. Returning means: committed, as
        applied or held or known already. What it raises is the database's trouble, and then nothing is known."""
        await self._applier.apply(self._applier.read(delivery))

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop`: what is in flight is finished and acknowledged, the rest goes back to the broker."""
        while not stop.is_set():
            try:
                stream = await self._broker.subscribe(
                    self.name, self._topics, start=self._start, window=self._in_flight
                )
            except BrokerError as error:
                log.warning("%s cannot subscribe, next try in %.1f s: %s", self.name, PAUSE, error)
                await self._clock.wait(stop, PAUSE)
                continue
            try:
                await self._consume(stream, stop)
            finally:
                await stream.aclose()
                self._gate = Gate(self._in_flight)
                self._acks.clear()

    async def _consume(self, stream: Stream, stop: asyncio.Event) -> None:
        """Until `stop`, or until the broker or the database is in trouble: then everything starts over from what is
        acknowledged."""
        halt = asyncio.Event()
        workers = [asyncio.create_task(self._work(stream, halt)) for _ in range(self._applier.workers)]
        receiver = asyncio.create_task(self._receive(stream))
        stopper = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([receiver, stopper, *workers], return_when=asyncio.FIRST_COMPLETED)
        finally:
            receiver.cancel()
            stopper.cancel()
            halt.set()
            while self._sleepers:
                self._wake_one()
            results = await asyncio.gather(receiver, *workers, return_exceptions=True)
        troubles = [r for r in results if isinstance(r, Exception)]
        await self._flush(stream)
        for trouble in troubles:
            if not isinstance(trouble, BrokerError | StoreError):
                raise trouble
            log.warning("%s starts over in %.1f s: %s", self.name, PAUSE, trouble)
        if troubles:
            await self._clock.wait(stop, PAUSE)

    async def _receive(self, stream: Stream) -> None:
        while True:
            room = self._gate.room
            if room <= self._in_flight // 2:
                self._drained.clear()
                await self._drained.wait()
                continue
            for delivery in await stream.receive(room, RECEIVE_WAIT):
                work = self._applier.read(delivery)
                self._gate.put(work.arrival.tenant, _line(work), (delivery, work))
            if self._gate.ready:
                self._wake_one()
            await asyncio.sleep(0)

    async def _work(self, stream: Stream, halt: asyncio.Event) -> None:
        while not halt.is_set():
            if not self._gate.ready:
                await self._flush(stream)
                await self._refilled(halt)
                continue
            taken = self._take()
            if self._gate.ready:
                self._wake_one()
            items = [item for _, run in taken for item in run]
            try:
                await self._applier.apply_group([work for _, work in items])
                self._acks += [delivery for delivery, _ in items]
            except NOTHING_KNOWN:
                await stream.nack([delivery for delivery, _ in items])
                raise
            finally:
                for key, run in taken:
                    self._gate.done(key, len(run))
                if self._gate.room > self._in_flight // 2:  # a few at a time would cost a look at the broker each
                    self._drained.set()
            if len(self._acks) >= ACK_BATCH:
                await self._flush(stream)

    async def _refilled(self, halt: asyncio.Event) -> None:
        """Wait for work; the flush before may have let some in."""
        if not self._gate.ready and not halt.is_set():
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

    def _take(self) -> list[Run]:
        """The next event. With a handler that takes several, as many as are ready: first of different keys, so that
        tenants keep their turns, then what waits behind these."""
        taken: list[Run] = [_run_of(self._gate.take())]
        handler = taken[0][1][0][1].handler
        room = _group_limit(handler.policy, handler.many) - 1 if handler is not None else 0
        while room > 0 and (following := self._gate.peek()) and following[1].handler is handler:
            taken.append(_run_of(self._gate.take()))
            room -= 1
        for key, run in taken:
            while room > 0 and (following := self._gate.following(key)) and following[1].handler is handler:
                run.append(self._gate.take_following(key))
                room -= 1
        return taken

    async def _flush(self, stream: Stream) -> None:
        if not self._acks:
            return
        acks, self._acks = self._acks, []
        try:
            await stream.ack(acks)
        except BrokerError as error:
            log.warning("%s: %d acknowledgements were lost, the inbox will know them: %s", self.name, len(acks), error)


def _run_of(taken: tuple[Hashable | None, Item]) -> Run:
    key, item = taken
    return key, [item]


def _line(work: Work) -> Hashable | None:
    """Events of one line are applied one at a time."""
    arrival = work.arrival
    return None if arrival.sequence is None else (arrival.topic, arrival.tenant, arrival.key)


def _group_limit(policy: Policy, many: bool) -> int:
    return policy.group_size if policy.grouped or many else 1
