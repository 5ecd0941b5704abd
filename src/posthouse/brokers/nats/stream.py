"""One member of a consumer group: signs the ledger, owns partitions, and reads each of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from zlib import crc32

import msgspec
from nats.aio.msg import Msg

from posthouse.broker import Delivery
from posthouse.brokers.background import Background
from posthouse.brokers.nats.lane import Lane
from posthouse.brokers.nats.ledger import Claim, Ledger, Line, Presence, Snapshot, Spot
from posthouse.brokers.nats.reader import Reader
from posthouse.brokers.nats.topics import Topic, Topics
from posthouse.brokers.nats.wire import Refused, Wire
from posthouse.brokers.shares import Claim as Share
from posthouse.brokers.shares import plan
from posthouse.clock import Clock, new_id
from posthouse.errors import BrokerError


class NatsStream:
    """The port's Stream. `window` bounds, per partition, the frames from the oldest unacknowledged one on."""

    def __init__(
        self,
        wire: Wire,
        topics: Topics,
        group: str,
        names: Sequence[str],
        *,
        clock: Clock,
        window: int,
        lease: float,
        on_close: Callable[[NatsStream], None],
    ) -> None:
        self._wire = wire
        self._topics = topics
        self._group = group
        self._ledger = Ledger(wire, group)
        self._names = list(names)
        self._clock = clock
        self._size = window
        self._lease = lease
        self._on_close = on_close
        self._me = new_id()
        self._lanes: dict[Spot, Lane] = {}
        self._readers: dict[Lane, Reader] = {}
        self._turn = 0
        self._until = 0.0
        """When this member's lease ends, by the loop's clock; it counts from before the sign was sent."""
        self._syncing = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._bell = asyncio.Event()
        self._news = asyncio.Event()
        self._closed = asyncio.Event()
        self._left = asyncio.Event()
        self._background = Background()
        self._end_hints: Callable[[], Awaitable[None]] | None = None

    async def join(self) -> None:
        """Become a member and take what is free; others hand over their surplus when they hear of it."""
        _, self._end_hints = await self._wire.listen(self._on_hint, self._ledger.hint)
        await self._sync()
        await self._wire.tell(self._ledger.hint)
        self._background.start(self._beat(), self._follow())

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed.is_set():
            raise BrokerError("this stream was closed")
        await asyncio.sleep(0)  # a consumer with full lanes must still let other tasks run
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while not self._closed.is_set():
            self._background.check()
            if loop.time() > self._until:
                await self._sync()  # whoever was silent for too long hands out nothing before it knows what is its own
            self._bell.clear()
            deliveries = self._take(limit)
            left = deadline - loop.time()
            if deliveries or left <= 0:
                return deliveries
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, max(0.01, self._until - loop.time()))):
                    await self._bell.wait()
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledgements of tasks that are ready together share one round trip."""
        self._background.check()
        for lane, number in _tokens(deliveries):
            lane.ack(number)
        await asyncio.sleep(0)
        await self._save()
        await self._hand_over()

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        for lane, number in _tokens(deliveries):
            lane.window.nack(number)
        self._bell.set()
        await self._hand_over()

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

    # Handing out

    def _take(self, limit: int) -> list[Delivery]:
        """Partitions take turns in going first, so that a busy one starves nobody."""
        lanes = [lane for lane in self._lanes.values() if lane.leaving_since is None]
        self._turn += 1
        deliveries: list[Delivery] = []
        for turn in range(len(lanes)):
            if len(deliveries) == limit:
                break
            deliveries += lanes[(self._turn + turn) % len(lanes)].take(limit - len(deliveries))
        return deliveries

    async def _save(self) -> None:
        """Write the cursors that moved. A line that somebody else changed is not ours any more."""
        async with self._saving:
            claims = {spot: lane.progressed(self._me) for spot, lane in self._lanes.items() if lane.unsaved}
            lanes = {spot: self._lanes[spot] for spot in claims}
            changed = await self._ledger.change(
                {spot: Line(claim, lanes[spot].version) for spot, claim in claims.items()}
            )
            for spot, version in changed.items():
                lanes[spot].saved(claims[spot], version)
        if len(changed) < len(claims):
            await self._sync()
        for spot in changed:
            reader = self._readers.get(lanes[spot])
            if reader is not None:
                await reader.ask()

    # Sharing the work

    async def _sync(self) -> None:
        """Say that we live, learn what is ours, take what is free and give back what is too much."""
        async with self._syncing:
            if self._closed.is_set():
                return
            began = asyncio.get_running_loop().time()
            await self._ledger.sign(self._me, Presence(self._names), self._lease)
            async with self._saving:
                snapshot = await self._ledger.snapshot(self._names, self._me, self._lease)
                self._refuse_when_removed(snapshot)
                await self._adopt(snapshot)
                told = await self._rebalance(snapshot)
                await self._find_ends()
            self._until = began + self._lease
            await self._read_all()
        if told:
            await self._wire.tell(self._ledger.hint)

    def _refuse_when_removed(self, snapshot: Snapshot) -> None:
        """Without lines it would wait for ever; whoever subscribes again gets new ones, or hears that the topic is gone."""
        gone = sorted(set(self._names) - {topic for topic, _ in snapshot.lines})
        if gone:
            raise BrokerError(f"group {self._group!r} was removed from {', '.join(gone)}: subscribe again")

    async def _adopt(self, snapshot: Snapshot) -> None:
        """Keep what the ledger says is ours; after a seek with a fresh lane."""
        for spot, lane in list(self._lanes.items()):
            line = snapshot.lines.get(spot)
            if line is None or line.claim.owner != self._me or line.claim.epoch != lane.claim.epoch:
                await self._drop(spot)
            elif line.version > lane.version:
                lane.saved(line.claim, line.version)  # our own write, whose answer was lost
        for spot, line in snapshot.lines.items():
            if line.claim.owner == self._me and spot not in self._lanes:
                self._lanes[spot] = Lane(*spot, line.claim, line.version, self._size)

    async def _rebalance(self, snapshot: Snapshot) -> bool:
        """True when others should look: something was given back."""
        living = {number_of(topic): members for topic, members in snapshot.living.items() if topic in self._names}
        spots = {(number_of(topic), partition): (topic, partition) for topic, partition in snapshot.lines}
        shares = [Share(*key, snapshot.lines[spot].claim.owner) for key, spot in spots.items()]
        wanted = plan(self._me, living, shares)
        take = {spots[share.topic, share.partition] for share in wanted.take}
        leave = self._ready_to_leave({spots[share.topic, share.partition] for share in wanted.leave})
        await self._take_over({spot: snapshot.lines[spot] for spot in take})
        return bool(await self._give_back(leave))

    async def _take_over(self, lines: Mapping[Spot, Line]) -> None:
        claims = {}
        for spot, (claim, _) in lines.items():
            handed = max(claim.handed, self._size)
            claims[spot] = msgspec.structs.replace(
                claim, owner=self._me, epoch=claim.epoch + 1, handed=handed, end=None
            )
        changed = await self._ledger.change({spot: Line(claim, lines[spot].version) for spot, claim in claims.items()})
        for spot, version in changed.items():
            before = lines[spot].claim
            unsure = before.unsure if before.owner is None else before.handed
            claim = msgspec.structs.replace(claims[spot], handed=before.handed, end=before.end, unsure=unsure)
            self._lanes[spot] = Lane(*spot, claim, version, self._size)

    async def _find_ends(self) -> None:
        """Where the last owner did not say how far it came: what is stored now, when it hands out nothing any more. What is
        stored later is no repeat, however wide its window was."""
        for topic in {topic for (topic, _), lane in self._lanes.items() if lane.end is None}:
            with contextlib.suppress(Refused):  # a topic that was deleted stops nothing but itself
                last = (await self._topics.look(topic)).last
                for (name, _), lane in self._lanes.items():
                    if name == topic and lane.end is None:
                        lane.end = last

    async def _give_back(self, spots: Sequence[Spot]) -> dict[Spot, int]:
        lanes = {spot: self._lanes[spot] for spot in spots}
        for spot in spots:
            await self._drop(spot)
        return await self._ledger.change(
            {
                spot: Line(lane.progressed(None, closed=self._closed.is_set()), lane.version)
                for spot, lane in lanes.items()
            }
        )

    def _ready_to_leave(self, leave: set[Spot]) -> list[Spot]:
        """Of the partitions that are too many: those with nothing in hand, and those whose handlers take too long."""
        now = asyncio.get_running_loop().time()
        ready = []
        for spot, lane in self._lanes.items():
            if spot not in leave:
                lane.leaving_since = None
                continue
            lane.leaving_since = now if lane.leaving_since is None else lane.leaving_since
            if lane.window.idle or now - lane.leaving_since >= self._lease:
                ready.append(spot)
        return ready

    async def _hand_over(self) -> None:
        """Give back at once what others wait for, as soon as the last frame of it is dealt with."""
        if any(lane.leaving_since is not None and lane.window.idle for lane in self._lanes.values()):
            await self._sync()

    async def _read_all(self) -> None:
        """Every lane of ours has a reader that lives. A topic that was deleted stops nothing but itself."""
        for spot in list(self._lanes):
            with contextlib.suppress(Refused):
                await self._read(spot)

    async def _read(self, spot: Spot) -> None:
        lane = self._lanes[spot]
        reader = self._readers.get(lane)
        if reader is None or reader.silent:
            info = await self._topics.look(spot[0])
            same = info.created == lane.claim.born
            if not same or not await self._topics.remembers(info, lane.last, lane.last_at):
                await self._begin_again(spot, info)
                return
            if reader is None:
                reader = Reader(self._wire, lane, info.partitions, bell=self._bell.set, lost=self._news.set)
                self._readers[lane] = reader
            await reader.open()

    async def _begin_again(self, spot: Spot, info: Topic) -> None:
        """The stream is another one now, or its end was lost and written anew: what it took since must not be hidden.
        Behind the cursor if that still stands, else from the beginning: repeats are for the inbox, gaps for nobody."""
        lane = self._lanes[spot]
        await self._drop(spot)
        before = lane.claim
        stands = info.created == before.born and await self._topics.remembers(info, before.cursor, before.at)
        claim = Claim(
            born=info.created,
            owner=self._me,
            epoch=lane.claim.epoch + 1,
            cursor=before.cursor if stands else 0,
            at=before.at if stands else 0.0,
            started=before.started if stands else 0,
            handed=self._size,
            until=info.last,
        )
        for version in (await self._ledger.change({spot: Line(claim, lane.version)})).values():
            self._lanes[spot] = Lane(*spot, claim, version, self._size)
        self._news.set()

    async def _drop(self, spot: Spot) -> None:
        reader = self._readers.pop(self._lanes.pop(spot), None)
        if reader is not None:
            await reader.aclose()

    # In the background

    async def _on_hint(self, message: Msg) -> None:
        self._news.set()

    async def _beat(self) -> None:
        while not await self._clock.wait(self._closed, self._lease / 3):
            with contextlib.suppress(BrokerError):
                await self._save()
                await self._sync()

    async def _follow(self) -> None:
        """Look at once when somebody joined, left or sought, when a reader lost its way, and after a reconnection."""
        while not self._closed.is_set():
            reconnected = asyncio.ensure_future(self._wire.reconnected.wait())
            news = asyncio.ensure_future(self._news.wait())
            try:
                await asyncio.wait([reconnected, news], return_when=asyncio.FIRST_COMPLETED)
            finally:
                reconnected.cancel()
                news.cancel()
            self._news.clear()
            with contextlib.suppress(BrokerError):
                await self._sync()

    async def _leave(self) -> None:
        await self._background.aclose()
        with contextlib.suppress(BrokerError):  # then the lease runs out instead
            async with self._syncing, self._saving:
                await self._give_back(list(self._lanes))
                await self._ledger.sign(self._me, Presence(self._names, left=True), self._lease)
            await self._wire.tell(self._ledger.hint)
        if self._end_hints is not None:
            await self._end_hints()
        self._lanes = {}


def number_of(topic: str) -> int:
    return crc32(topic.encode())


def _tokens(deliveries: Sequence[Delivery]) -> list[tuple[Lane, int]]:
    return [delivery.token for delivery in deliveries if isinstance(delivery.token, tuple)]
