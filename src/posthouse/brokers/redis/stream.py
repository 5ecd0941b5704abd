"""One member of a consumer group: renews its lease, owns lanes, and reads each of them in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from posthouse.broker import Delivery, Start
from posthouse.brokers.group.assignment import assign, is_alive
from posthouse.brokers.redis.entries import Entry
from posthouse.brokers.redis.lane import Holding, Lane
from posthouse.brokers.redis.scripts import ACK, BEGIN, GIVE, RENEW, TAKE
from posthouse.brokers.redis.topics import bell_of, ledger_of
from posthouse.brokers.redis.wire import Asked, Read, Value, Wire
from posthouse.brokers.supervision import raise_if_ended
from posthouse.clock import Clock, new_id
from posthouse.errors import BrokerError

PULL = 2000
"""How many entries to ask for at once."""
BYTES = 4 * 1024 * 1024
"""The same, by the size of those that came last."""
LEAVING = 2.0
"""Seconds for giving everything back; then the lease runs out instead."""
Spot = tuple[str, int]
"""Topic and number of a lane."""


class View(NamedTuple):
    """The ledger of one topic, as the server has it: who lives, and of each lane its epoch, its owner, and whether the
    server has restarted since it was last taken."""

    run: str
    living: Sequence[str]
    epochs: Mapping[int, int]
    owners: Mapping[int, str]
    outlived: frozenset[int]


class RedisStream:
    """The port's Stream. `window` bounds the frames of each lane that are in hand."""

    def __init__(
        self,
        wire: Wire,
        group: str,
        lanes: Mapping[str, Sequence[str]],
        *,
        start: Start,
        clock: Clock,
        window: int,
        lease: float,
        on_beat: Callable[[], Awaitable[None]],
        on_close: Callable[[RedisStream], None],
    ) -> None:
        self._wire = wire
        self._group = group
        self._keys = lanes
        """The keys of the lanes of each topic."""
        self._start: Start = start
        self._clock = clock
        self._size = window
        self._lease = lease
        self._on_beat = on_beat
        self._on_close = on_close
        self._me = new_id()
        self._lanes: dict[Spot, Lane] = {}
        self._turn = 0
        self._until = 0.0
        """When this member's lease ends, by the loop's clock; it counts from before it was renewed."""
        self._stale = True
        """Something changed that only the ledger tells."""
        self._rung = "0-0"
        self._weight = 64 * 1024
        """Bytes of an entry, by those that came last."""
        self._ears: Mapping[str, str] = {}
        self._syncing, self._saving, self._reading = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._news, self._closed, self._left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._filling: asyncio.Task[bool] | None = None
        self._listening: asyncio.Task[list[str]] | None = None
        self._beating: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Become a member and take what is free; others hand over their surplus when they hear of it."""
        await self._sync()
        self._start = "earliest"  # of a group that is lost with the server: what was stored since then is news
        for topic in self._keys:
            await self._give(topic, [])
        self._beating = asyncio.create_task(self._beat(), name=f"posthouse redis member of {self._group}")

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed.is_set():
            raise BrokerError("this stream was closed")
        raise_if_ended(self._beating)
        await asyncio.sleep(0)  # a consumer with full lanes must still let other tasks run
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while not self._closed.is_set():
            if self._stale or loop.time() > self._until:
                await self._sync()  # whoever was silent for too long hands out nothing before it knows what is its own
            self._news.clear()
            deliveries = self._take(limit)
            if deliveries:
                if sum(lane.waiting for lane in self._lanes.values()) < limit:
                    self._read_ahead()
                return deliveries
            filled, left = await self._fill(), deadline - loop.time()
            if filled and (left > 0 or not self._stale):
                continue  # a lane that is ours runs dry after a few questions, one that we lose again and again never
            if left <= 0:
                break
            self._listen()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, max(0.01, self._until - loop.time()))):
                    await self._news.wait()
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledgements of tasks that are ready together share one round trip."""
        raise_if_ended(self._beating)
        for lane, number in _tokens(deliveries):
            lane.ack(number)
        self._news.set()
        await asyncio.sleep(0)
        await self._save()
        await self._hand_over()

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        for lane, number in _tokens(deliveries):
            lane.nack(number)
        self._news.set()
        await self._hand_over()

    async def aclose(self) -> None:
        if self._closed.is_set():
            await self._left.wait()
            return
        self._closed.set()
        self._news.set()
        try:
            await self._leave()
        finally:
            self._left.set()
            self._on_close(self)

    # Handing out

    def _take(self, limit: int) -> list[Delivery]:
        """Lanes take turns in going first, so that a busy one starves nobody."""
        lanes = self._working()
        self._turn += 1
        deliveries: list[Delivery] = []
        for turn in range(len(lanes)):
            if len(deliveries) == limit:
                break
            deliveries += lanes[(self._turn + turn) % len(lanes)].take(limit - len(deliveries))
        return deliveries

    def _working(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane.leaving_since is None]

    async def _fill(self) -> bool:
        """Whether anything may be handed out now. Whoever waits for it may be cancelled; what comes is kept."""
        filling = self._read_ahead()
        try:
            return await asyncio.shield(filling)
        except asyncio.CancelledError:
            if filling.cancelled():  # the stream was closed
                return False
            raise

    def _read_ahead(self) -> asyncio.Task[bool]:
        """Ask for more, unless somebody does already."""
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._read())
            self._filling.add_done_callback(_noticed)
        return self._filling

    async def _read(self) -> bool:
        """Ask for the next entries of all lanes that want any."""
        async with self._reading:
            lanes = [lane for lane in self._working() if lane.wants]
            flowing = sum(not lane.dry for lane in lanes)
            if not flowing:
                return False
            count = max(1, min(PULL // flowing, BYTES // (self._weight * flowing)))
            read = Read()
            try:
                read = await self._wire.read(self._group, self._me, count, [self._asked(lane) for lane in lanes])
            finally:
                self._settle(lanes, read, count)
            return True

    def _settle(self, lanes: Sequence[Lane], read: Read, count: int) -> None:
        if read.entries is not None:
            self._arrive(lanes, read.entries, count)
            return
        self._stale = True
        for index in read.lost:
            self._lanes.pop((lanes[index].topic, lanes[index].number), None)
        for lane in lanes if not read.lost else ():
            lane.unsure = True

    def _asked(self, lane: Lane) -> Asked:
        begin = lane.last if lane.pending else ">"
        holding = lane.holding
        return Asked(ledger_of(self._group, lane.topic), lane.key, lane.number, holding.epoch, holding.run, begin)

    def _arrive(self, lanes: Sequence[Lane], found: Mapping[bytes, Sequence[Entry]], count: int) -> None:
        bytes_ = entries = 0
        for lane in lanes:
            arrived, before = found.get(lane.key.encode(), ()), lane.bytes
            lane.arrive(arrived, more=len(arrived) == count)
            bytes_ += lane.bytes - before
            entries += len(arrived)
        if entries:
            self._weight = max(1, bytes_ // entries)

    def _listen(self) -> None:
        """Hear of new entries while all lanes are dry, and of everything that members should know."""
        ears = {lane.key: lane.heard for lane in self._working() if lane.wants}
        ears[bell_of(self._group)] = self._rung
        if self._listening is not None and not self._listening.done():
            if ears.keys() <= self._ears.keys():
                return
            self._listening.cancel()
        self._ears = ears
        self._listening = asyncio.create_task(self._wire.hear(ears))
        self._listening.add_done_callback(self._on_heard)

    def _on_heard(self, listening: asyncio.Task[list[str]]) -> None:
        if listening.cancelled():
            return
        heard = set() if listening.exception() else set(listening.result())
        self._stale = self._stale or listening.exception() is not None or bell_of(self._group) in heard
        for lane in self._lanes.values():
            if lane.key in heard:
                lane.dry = False
        self._news.set()

    async def _save(self, leaving: Sequence[Lane] = ()) -> None:
        """Acknowledge on the server. A lane that somebody else has now is not ours any more."""
        async with self._saving:
            lanes = [lane for lane in (*self._lanes.values(), *leaving) if lane.done]
            if not lanes:
                return
            batches = [list(lane.done) for lane in lanes]
            keys: list[str] = []
            arguments: list[Value] = [self._group, self._me]
            for lane, ids in zip(lanes, batches, strict=True):
                keys += (ledger_of(self._group, lane.topic), lane.key)
                arguments += (lane.number, lane.holding.epoch, lane.holding.run, len(ids), *ids)
            lost = await self._wire.run(ACK, keys, arguments)
            for lane, ids in zip(lanes, batches, strict=True):
                lane.saved(ids)
            self._stale = self._stale or bool(lost)

    # Sharing the work

    async def _sync(self) -> None:
        """Say that we live, learn what is ours, take what is free and give back what is too much."""
        async with self._syncing, self._reading:
            if self._closed.is_set():
                return  # we have left: renewing would join again
            began, self._stale = asyncio.get_running_loop().time(), False
            try:
                for topic in self._keys:
                    await self._share(topic)
            except BaseException:
                self._stale = True
                raise
            self._until = began + self._lease
        self._news.set()

    async def _share(self, topic: str) -> None:
        view = await self._renew(topic)
        mine = {number for number, owner in view.owners.items() if owner == self._me}
        for number, lane in self._of(topic).items():
            if number not in mine or view.epochs[number] != lane.holding.epoch:
                del self._lanes[topic, number]
        sure = {number for number, lane in self._of(topic).items() if not lane.unsure} - view.outlived
        owners = {(topic, number): view.owners.get(number) for number in view.epochs}
        wanted = assign(self._me, {topic: view.living}, owners)
        take = {number for _, number in wanted.take} | (mine - sure)
        await self._take_over(topic, view.run, {number: view.epochs[number] for number in sorted(take)})
        ready = self._ready_to_leave(topic, {number for _, number in wanted.leave})
        if ready:
            await self._give(topic, ready)

    async def _renew(self, topic: str) -> View:
        ledger, bell = ledger_of(self._group, topic), bell_of(self._group)
        await self._wire.run(BEGIN, [ledger, *self._keys[topic]], [self._group, self._start])
        answer = await self._wire.run(RENEW, [ledger, bell], [self._me, int(self._lease * 1000)])
        now, run, self._rung = int(answer[0]) / 1000, answer[1].decode(), answer[2].decode()
        fields = dict(zip(answer[3][::2], answer[3][1::2], strict=True))
        living, epochs, owners, outlived = [self._me], {}, {}, set()
        for field, value in fields.items():
            what, _, which = field.decode().partition(":")
            if what == "member" and which != self._me and is_alive(int(value) / 1000, now, self._lease):
                living.append(which)
            elif what == "epoch" and int(which) < len(self._keys[topic]):
                epochs[int(which)] = int(value)
            elif what == "owner":
                owners[int(which)] = value.decode()
            elif what == "run" and value.decode() != run:
                outlived.add(int(which))
        return View(run, living, epochs, owners, frozenset(outlived))

    def _of(self, topic: str) -> dict[int, Lane]:
        return {number: lane for (name, number), lane in self._lanes.items() if name == topic}

    async def _take_over(self, topic: str, run: str, epochs: Mapping[int, int]) -> None:
        """Lanes that are new to us, and those of which we are not sure: the new epoch ends every old question. What we know
        of a lane from another run of the server is worth nothing: its end may be lost, and its ids given again."""
        if not epochs:
            return
        keys = [ledger_of(self._group, topic), *(self._keys[topic][number] for number in epochs)]
        arguments: list[Value] = [self._me, run, self._group]
        for pair in epochs.items():
            arguments += pair
        for number, epoch, until, top, sure in await self._wire.run(TAKE, keys, arguments):
            holding = Holding(epoch, run, until.decode(), top.decode(), sure == 1)
            lane = self._lanes.get((topic, number))
            if lane is not None and (lane.holding.run, lane.holding.until) == (run, holding.until):
                lane.fence(holding)
            else:
                self._lanes[topic, number] = Lane(topic, number, self._keys[topic][number], holding, self._size)

    async def _give(self, topic: str, numbers: Sequence[int], *, leaving: bool = False) -> None:
        """Give lanes back; with none, or when leaving, just tell the others."""
        lanes = [self._lanes.pop((topic, number)) for number in numbers]
        await self._save(lanes)
        keys = [ledger_of(self._group, topic), bell_of(self._group), *(lane.key for lane in lanes)]
        arguments: list[Value] = [self._group, self._me, int(leaving)]
        for lane in lanes:
            place, unread = lane.unread()
            sure = int(lane.is_sure(closed=self._closed.is_set()))
            arguments += (lane.number, lane.holding.epoch, lane.holding.run, place, sure, len(unread), *unread)
        await self._wire.run(GIVE, keys, arguments)

    def _ready_to_leave(self, topic: str, leave: set[int]) -> list[int]:
        """Of the lanes that are too many: those with nothing in hand, and those whose handlers take too long."""
        now = asyncio.get_running_loop().time()
        ready = []
        for number, lane in self._of(topic).items():
            if number not in leave:
                lane.leaving_since = None
                continue
            lane.leaving_since = now if lane.leaving_since is None else lane.leaving_since
            if lane.idle or now - lane.leaving_since >= self._lease:
                ready.append(number)
        return ready

    async def _hand_over(self) -> None:
        """Give back at once what others wait for, as soon as the last frame of it is dealt with."""
        if any(lane.leaving_since is not None and lane.idle for lane in self._lanes.values()):
            await self._sync()

    async def _beat(self) -> None:
        while not await self._clock.wait(self._closed, self._lease / 3):
            with contextlib.suppress(BrokerError):
                await self._save()
                await self._sync()
                await self._on_beat()

    async def _leave(self) -> None:
        await _ended(self._beating, self._listening)
        with contextlib.suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(LEAVING), self._syncing, self._reading:
                for topic in self._keys:
                    await self._give(topic, list(self._of(topic)), leaving=True)
        await _ended(self._filling)
        self._lanes = {}


async def _ended(*tasks: asyncio.Task[Any] | None) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def _noticed(task: asyncio.Task[bool]) -> None:
    """Whoever waited may be gone; the error shows again at the next question."""
    if not task.cancelled():
        task.exception()


def _tokens(deliveries: Sequence[Delivery]) -> list[tuple[Lane, int]]:
    return [delivery.token for delivery in deliveries if isinstance(delivery.token, tuple)]
