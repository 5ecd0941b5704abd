"""The log in Redis as one member of a group uses it. Leases are by the server's clock; what was handed out and not
acknowledged is kept by the server's own groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from posthouse.broker import Start
from posthouse.brokers.group.assignment import TopicPartition, is_alive
from posthouse.brokers.group.log import Answer, Group, Owned, Want
from posthouse.brokers.redis.buffer import Holding, PartitionBuffer
from posthouse.brokers.redis.client import Asked, Client, Read, Value
from posthouse.brokers.redis.entries import Entry
from posthouse.brokers.redis.scripts import ACK, BEGIN, GIVE, RENEW, TAKE
from posthouse.brokers.redis.topics import bell_of, ledger_of
from posthouse.clock import new_id
from posthouse.local.notifier import LocalNotifier

PULL = 2000
"""How many entries to ask for at once."""
BYTES = 4 * 1024 * 1024
"""The same, by the size of those that came last."""
LEAVING = 2.0
"""Seconds for giving everything back; then the lease runs out instead."""
POLL = 1.0
"""Seconds after which to look again though nothing was heard."""


class View(NamedTuple):
    """The ledger of one topic, as the server has it: who lives, and of each lane its owner and epoch, and whether the
    server has restarted since it was last taken."""

    living: Sequence[str]
    lanes: Mapping[TopicPartition, Owned]
    outlived: frozenset[TopicPartition]


class RedisLog:
    """The port `GroupLog`."""

    def __init__(
        self,
        client: Client,
        group: str,
        keys: Mapping[str, Sequence[str]],
        *,
        start: Start,
        window: int,
        lease: float,
    ) -> None:
        self.me = new_id()
        self.notifier = LocalNotifier(None)
        self.polls = POLL, POLL
        self.stale = False
        self._client = client
        self._group = group
        self._keys = keys
        """The keys of the lanes of each topic."""
        self._start: Start = start
        self._size = window
        self._lease = lease
        self._joined = False
        self._run = ""
        self._lanes: dict[TopicPartition, PartitionBuffer] = {}
        self._rung = "0-0"
        self._weight = 64 * 1024
        """Bytes of an entry, by those that came last."""
        self._ears: Mapping[str, str] = {}
        self._asking = asyncio.Lock()
        """Nothing is taken or given back while a question is under way."""
        self._filling: asyncio.Task[bool] | None = None
        self._listening: asyncio.Task[list[str]] | None = None

    async def renew(self, held: Mapping[TopicPartition, PartitionBuffer]) -> Group:
        members: dict[str, Sequence[str]] = {}
        lanes: dict[TopicPartition, Owned] = {}
        outlived: set[TopicPartition] = set()
        async with self._asking:  # a renewal changes what a question watches
            self.stale = False
            for topic in self._keys:
                view = await self._renew(topic)
                members[topic] = view.living
                lanes.update(view.lanes)
                outlived |= view.outlived
        self._start = "earliest"  # of a group that is lost with the server: what was stored since then is news
        self._lanes = {place: lane for place, lane in held.items() if lanes.get(place) == (self.me, lane.epoch)}
        for place, lane in self._lanes.items():
            lane.doubtful |= lane.unsure or place in outlived
        if not self._joined:
            for topic in self._keys:
                await self._give(topic, [])
            self._joined = True
        return Group(lanes, members)

    async def settle(
        self, group: Group, give: Sequence[PartitionBuffer], take: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionBuffer]:
        """Each lane for itself: what somebody else was faster with is missing in the answer."""
        taken: dict[TopicPartition, PartitionBuffer] = {}
        async with self._asking:
            for topic in self._keys:
                wanted = {number: group.partitions[topic, number].epoch for name, number in take if name == topic}
                if wanted:
                    taken |= await self._take(topic, wanted)
                given = [lane for lane in give if lane.topic == topic]
                if given:
                    await self._give(topic, given)
            for lane in give:
                self._lanes.pop(lane.place, None)
            self._lanes |= taken
        return taken

    async def read(self, wants: Sequence[Want[PartitionBuffer]]) -> Sequence[Answer]:
        asked = sum(want.last + 1 - want.first for want in wants if not want.hopeful)
        if asked:
            if sum(lane.arrived - lane.window.read for lane in self._lanes.values()) < asked:
                self._read_ahead()
                self._listen()
        else:
            while not (self.stale or any(want.partition.waiting for want in wants)) and await self._fill():
                pass  # a lane that is ours runs dry after a few questions
            self._listen()
        return [want.partition.answer(want) for want in wants]

    async def commit(self, held: Iterable[PartitionBuffer], *, durable: bool) -> None:
        lanes = [lane for lane in held if lane.done]
        if not lanes:
            return
        batches = [list(lane.done) for lane in lanes]
        keys: list[str] = []
        arguments: list[Value] = [self._group, self.me]
        for lane, ids in zip(lanes, batches, strict=True):
            keys += (ledger_of(self._group, lane.topic), lane.key)
            arguments += (lane.number, lane.holding.epoch, lane.holding.run, len(ids), *ids)
        lost = await self._client.run(ACK, keys, arguments)
        for lane, ids in zip(lanes, batches, strict=True):
            lane.saved(ids)
        self.stale = self.stale or bool(lost)

    async def leave(self, held: Sequence[PartitionBuffer]) -> None:
        await _ended(self._listening)
        try:
            async with asyncio.timeout(LEAVING), self._asking:
                for topic in self._keys:
                    await self._give(topic, [lane for lane in held if lane.topic == topic], leaving=True)
        finally:
            await _ended(self._filling)

    # Reading

    async def _fill(self) -> bool:
        """Whether anything was asked. Whoever waits for it may be cancelled; what comes is kept."""
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
            self._filling = asyncio.create_task(self._ask())
            self._filling.add_done_callback(_noticed)
        return self._filling

    async def _ask(self) -> bool:
        """Ask for the next entries of all lanes that want any."""
        async with self._asking:
            lanes = [lane for lane in self._lanes.values() if lane.works and lane.wants]
            flowing = sum(not lane.dry for lane in lanes)
            if not flowing:
                return False
            count = max(1, min(PULL // flowing, BYTES // (self._weight * flowing)))
            read = Read()
            try:
                read = await self._client.read(self._group, self.me, count, [self._question(lane) for lane in lanes])
            finally:
                self._answered(lanes, read, count)
            return True

    def _question(self, lane: PartitionBuffer) -> Asked:
        begin = lane.last if lane.pending else ">"
        holding = lane.holding
        return Asked(ledger_of(self._group, lane.topic), lane.key, lane.number, holding.epoch, holding.run, begin)

    def _answered(self, lanes: Sequence[PartitionBuffer], read: Read, count: int) -> None:
        if read.entries is not None:
            self._arrive(lanes, read.entries, count)
            return
        self.stale = True
        for index in read.lost:
            lanes[index].doubtful = True
        for lane in lanes if not read.lost else ():
            lane.unsure = True

    def _arrive(self, lanes: Sequence[PartitionBuffer], found: Mapping[bytes, Sequence[Entry]], count: int) -> None:
        bytes_ = entries = 0
        for lane in lanes:
            arrived, before = found.get(lane.key.encode(), ()), lane.bytes
            lane.arrive(arrived, more=len(arrived) == count)
            bytes_ += lane.bytes - before
            entries += len(arrived)
        if entries:
            self._weight = max(1, bytes_ // entries)
            self.notifier.wake()

    def _listen(self) -> None:
        """Hear of new entries while all lanes are dry, and of everything that members should know."""
        ears = {lane.key: lane.newest for lane in self._lanes.values() if lane.works and lane.wants}
        ears[bell_of(self._group)] = self._rung
        if self._listening is not None and not self._listening.done():
            if ears.keys() <= self._ears.keys():
                return
            self._listening.cancel()
        self._ears = ears
        self._listening = asyncio.create_task(self._client.hear(ears))
        self._listening.add_done_callback(self._on_heard)

    def _on_heard(self, listening: asyncio.Task[list[str]]) -> None:
        if listening.cancelled():
            return
        if listening.exception() is not None:
            self.stale = True  # and no wake: the server is away, and the next look is soon enough
            return
        heard = set(listening.result())
        self.stale = self.stale or bell_of(self._group) in heard
        for lane in self._lanes.values():
            if lane.key in heard:
                lane.dry = False
        self.notifier.wake()

    # Sharing the work

    async def _renew(self, topic: str) -> View:
        ledger, bell = ledger_of(self._group, topic), bell_of(self._group)
        await self._client.run(BEGIN, [ledger, *self._keys[topic]], [self._group, self._start])
        answer = await self._client.run(RENEW, [ledger, bell], [self.me, int(self._lease * 1000)])
        now, self._run, self._rung = int(answer[0]) / 1000, answer[1].decode(), answer[2].decode()
        fields = dict(zip(answer[3][::2], answer[3][1::2], strict=True))
        living, epochs, owners, outlived = [self.me], {}, {}, set()
        for field, value in fields.items():
            what, _, which = field.decode().partition(":")
            if what == "member" and which != self.me and is_alive(int(value) / 1000, now, self._lease):
                living.append(which)
            elif what == "epoch" and int(which) < len(self._keys[topic]):
                epochs[int(which)] = int(value)
            elif what == "owner":
                owners[int(which)] = value.decode()
            elif what == "run" and value.decode() != self._run:
                outlived.add((topic, int(which)))
        lanes = {(topic, number): Owned(owners.get(number), epoch) for number, epoch in sorted(epochs.items())}
        return View(living, lanes, frozenset(outlived))

    async def _take(self, topic: str, epochs: Mapping[int, int]) -> dict[TopicPartition, PartitionBuffer]:
        """Lanes that are new to us, and those of which we are not sure: the new epoch ends every old question. What we know
        of a lane from another run of the server is worth nothing: its end may be lost, and its ids given again."""
        keys = [ledger_of(self._group, topic), *(self._keys[topic][number] for number in epochs)]
        arguments: list[Value] = [self.me, self._run, self._group]
        for pair in epochs.items():
            arguments += pair
        taken: dict[TopicPartition, PartitionBuffer] = {}
        for number, epoch, until, top, sure in await self._client.run(TAKE, keys, arguments):
            holding = Holding(epoch, self._run, until.decode(), top.decode(), sure == 1)
            lane = self._lanes.get((topic, number))
            if lane is not None and (lane.holding.run, lane.holding.until) == (self._run, holding.until):
                lane.fence(holding)
            else:
                lane = PartitionBuffer(topic, number, self._keys[topic][number], holding, self._size)
            taken[topic, number] = lane
        return taken

    async def _give(self, topic: str, lanes: Sequence[PartitionBuffer], *, leaving: bool = False) -> None:
        """Give lanes back; with none, or when leaving, just tell the others."""
        await self.commit(lanes, durable=True)
        keys = [ledger_of(self._group, topic), bell_of(self._group), *(lane.key for lane in lanes)]
        arguments: list[Value] = [self._group, self.me, int(leaving)]
        for lane in lanes:
            place, unread = lane.unread()
            sure = int(lane.is_sure(closed=leaving))
            arguments += (lane.number, lane.holding.epoch, lane.holding.run, place, sure, len(unread), *unread)
        await self._client.run(GIVE, keys, arguments)


async def _ended(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def _noticed(task: asyncio.Task[bool]) -> None:
    """Whoever waited may be gone; the error shows again at the next question."""
    if not task.cancelled():
        task.exception()
