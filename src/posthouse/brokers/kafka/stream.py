"""One member of a consumer group, as the port has it: hands out, acknowledges, and follows where the group is told to go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

import msgspec
from confluent_kafka import Consumer, Message

from posthouse.broker import Delivery
from posthouse.brokers.background import Background
from posthouse.brokers.kafka.buffer import PartitionBuffer
from posthouse.brokers.kafka.client import CONSUMER, Client, configured
from posthouse.brokers.kafka.committed_offsets import ALL, Claim, CommittedOffsets, Note, Spot, is_other, placed
from posthouse.brokers.kafka.member import Again, Member, OnCommit
from posthouse.brokers.kafka.offsets import Offsets
from posthouse.brokers.kafka.topics import Topics
from posthouse.clock import Clock
from posthouse.errors import BrokerError, BrokerUnavailable

FOLLOW = 1.0
"""Seconds after which a member looks at the latest where its group was told to go."""
FETCHING: Mapping[str, object] = {
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16 * 1024,  # for all partitions together; the driver's own default is 64 MiB
    "fetch.queue.backoff.ms": 10,  # its default is a second, in which a fast reader waits
}


class KafkaStream:
    """The port's Stream. `window` bounds, per partition, the frames from the oldest unacknowledged one on."""

    def __init__(
        self,
        client: Client,
        places: CommittedOffsets,
        topics: Topics,
        names: Sequence[str],
        *,
        clock: Clock,
        window: int,
        lease: float,
        on_close: Callable[[KafkaStream], None],
    ) -> None:
        self._client = client
        self._places = places
        self._topics = topics
        self._offsets = Offsets(client)
        self._clock = clock
        self._size = window
        self._lease = lease
        self._on_close = on_close
        self._lanes: dict[Spot, PartitionBuffer] = {}
        self._found: dict[Spot, Claim] = {}
        self._turn = 0
        self._trouble = ""
        self._gone: set[str] = set()
        """Topics from which the group was removed."""
        self._saving = asyncio.Lock()
        self._bell = asyncio.Event()
        self._settled = asyncio.Event()
        self._closed = asyncio.Event()
        self._left = asyncio.Event()
        self._background = Background()
        self._member = Member(self._consumer, names, self, lease=lease, timeout=client.timeout)

    def join(self) -> None:
        self._member.start()
        self._background.start(self._beat(), self._follow())

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed.is_set():
            raise BrokerError("this stream was closed")
        await asyncio.sleep(0)  # a consumer with full lanes must still let other tasks run
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while not self._closed.is_set():
            self._bell.clear()
            self._check()
            if self._gone:
                await self._member.leave()
                raise BrokerError(self._removal())
            deliveries = self._take(limit)
            left = deadline - loop.time()
            if deliveries or left <= 0:
                self._raise_trouble(deliveries)
                return deliveries
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left if self._member.sure else min(left, 0.1)):
                    await self._bell.wait()
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledgements of tasks that are ready together share one commit."""
        self._check()
        for lane, number in self._tokens(deliveries):
            lane.ack(number)
        self._settled.set()
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(
                self._lease + self._client.timeout
            ):  # whoever waits longer was replaced long ago
                await self._save()
        except TimeoutError as error:
            raise BrokerUnavailable("Kafka, committing: no answer in time") from error

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        for lane, number in self._tokens(deliveries):
            lane.window.nack(number)
        self._settled.set()
        self._bell.set()

    async def aclose(self) -> None:
        if self._closed.is_set():
            await self._left.wait()
            return
        self._closed.set()
        self._bell.set()
        try:
            await self._background.aclose()
            await self._member.leave()
        finally:
            self._lanes = {}
            self._left.set()
            self._on_close(self)

    def _check(self) -> None:
        """Raises BrokerUnavailable when something has ended that this stream lives by."""
        self._member.check()
        self._background.check()

    # Handing out

    def _take(self, limit: int) -> list[Delivery]:
        """Partitions take turns in going first, so that a busy one starves nobody. Whoever was silent for too long hands
        out nothing before it knows what is its own."""
        if not self._member.sure:
            return []
        lanes = [lane for lane in self._lanes.values() if not lane.leaving]
        self._turn += 1
        deliveries: list[Delivery] = []
        for turn in range(len(lanes)):
            if len(deliveries) == limit:
                break
            deliveries += lanes[(self._turn + turn) % len(lanes)].take(limit - len(deliveries))
        self._throttle()
        return deliveries

    def _tokens(self, deliveries: Sequence[Delivery]) -> list[tuple[PartitionBuffer, int]]:
        """Those that are still ours; an acknowledgement that came too late finds nobody."""
        found: list[tuple[PartitionBuffer, int]] = []
        for delivery in deliveries:
            if isinstance(delivery.token, tuple):
                lane, number = delivery.token
                if isinstance(lane, PartitionBuffer) and self._lanes.get(lane.spot) is lane:
                    found.append((lane, number))
        return found

    def _throttle(self) -> None:
        """Full partitions are paused, so that the thread can go on polling."""
        full = [lane for lane in self._lanes.values() if lane.full and not lane.paused]
        roomy = [lane for lane in self._lanes.values() if lane.paused and lane.roomy]
        for lanes, paused in ((full, True), (roomy, False)):
            for lane in lanes:
                lane.paused = paused
            if lanes:
                self._member.pause([lane.spot for lane in lanes], paused)

    def _removal(self) -> str:
        return f"group {self._places.group!r} was removed from {', '.join(sorted(self._gone))}: subscribe again"

    def _raise_trouble(self, deliveries: Sequence[Delivery]) -> None:
        trouble, self._trouble = self._trouble, ""
        if trouble and not deliveries:
            raise BrokerUnavailable(f"Kafka, reading: {trouble}")

    async def _save(self) -> None:
        """Commit the cursors that moved; what somebody else owns by now is left to them."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._lease
        async with self._saving:
            while lanes := {spot: lane for spot, lane in self._lanes.items() if lane.unsaved}:
                claims = {spot: (lane.progressed(), lane.epoch) for spot, lane in lanes.items()}
                try:
                    written = await self._member.commit(claims)
                except Again as error:
                    if loop.time() > deadline:
                        raise BrokerUnavailable(f"Kafka, committing: {error}") from error
                    await asyncio.sleep(0.02)
                    continue
                for spot in written:
                    lanes[spot].saved(claims[spot][0])
                self._bell.set()
                if written != set(claims):
                    break

    # What the member's thread asks for: see Desk

    async def claims(self, spots: Sequence[Spot]) -> Mapping[Spot, Claim]:
        topic_ids = await self._topics.ids(
            {topic for topic, _ in spots}
        )  # before anything else: see CommittedOffsets.words
        words = await self._places.words(spots, topic_ids)
        self._gone |= {spot[0] for spot, claim in words.items() if claim is not None and claim.note.state == "removed"}
        if self._gone:
            raise BrokerError(self._removal())
        found = {spot: placed(claim) for spot, claim in words.items()}
        ends = await self._offsets.ends(spots)
        firsts = await self._offsets.firsts([spot for spot in spots if found[spot] is None])
        self._found |= {
            spot: known(found[spot], firsts.get(spot, 0), ends[spot], topic_ids.get(spot[0], "")) for spot in spots
        }
        return {spot: taken(self._found[spot], self._size) for spot in spots}

    def begin(self, claims: Mapping[Spot, Claim]) -> None:
        for spot in claims:
            self._lanes[spot] = PartitionBuffer(spot, self._found.pop(spot), self._size)

    async def give_back(self, spots: Sequence[Spot], patience: float) -> Mapping[Spot, Claim]:
        lanes = {spot: self._lanes[spot] for spot in spots if spot in self._lanes}
        for lane in lanes.values():
            lane.leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not all(lane.window.idle for lane in lanes.values()):
                    self._settled.clear()
                    await self._settled.wait()
        self.lose(spots)
        closed = self._closed.is_set()
        return {spot: lane.progressed(leaving=True, closed=closed) for spot, lane in lanes.items()}

    def lose(self, spots: Sequence[Spot]) -> None:
        for spot in spots:
            self._lanes.pop(spot, None)
        self._settled.set()

    def arrived(self, messages: Sequence[Message]) -> None:
        for message in messages:
            spot = (message.topic() or "", message.partition() or 0)
            lane = self._lanes.get(spot)
            if lane is None:
                continue
            if not lane.fits(message):
                lane = self._lanes[spot] = lane.anew(message)
            lane.arrive(message)
        self._throttle()
        self._bell.set()

    def complain(self, reason: str) -> None:
        self._trouble = reason
        self._bell.set()

    # In the background

    def _consumer(self, on_commit: OnCommit) -> Consumer:
        milliseconds = int(self._lease * 1000)
        own = {
            "group.id": self._places.group,
            "session.timeout.ms": milliseconds,
            "heartbeat.interval.ms": max(1, min(1000, milliseconds // 10)),
            "max.poll.interval.ms": milliseconds,
            "on_commit": on_commit,
        }
        with configured():
            return Consumer({**FETCHING, **self._client.config(own, CONSUMER)})

    async def _beat(self) -> None:
        while not await self._clock.wait(self._closed, self._lease / 10):
            self._member.sign()

    async def _follow(self) -> None:
        while not await self._clock.wait(self._closed, min(FOLLOW, self._lease / 4)):
            with contextlib.suppress(BrokerError):
                await self._save()
                told = await self._places.told(list(self._lanes))
                topic_ids = await self._topics.ids({topic for topic, _ in self._lanes})
                moved = [
                    spot
                    for spot, lane in self._lanes.items()
                    if (spot in told and told[spot].note.move != lane.claim.note.move)
                    or is_other(lane.claim, topic_ids.get(spot[0], ""))
                ]
                if moved:
                    await self._member.renew(moved)


def known(claim: Claim | None, first: int, end: int, topic_id: str = "") -> Claim:
    """A place in numbers: where nothing is written, the beginning. An owner that did not say how far it came has handed out
    nothing behind the log's present end, however wide its window was."""
    if claim is None:
        return Claim(first, Note(began=first, until=end, topic_id=topic_id))
    note = msgspec.structs.replace(claim.note, topic_id=topic_id or claim.note.topic_id)
    until = end if note.until == ALL else note.until
    unsure = max(0, end - claim.cursor) if note.end is None and note.handed else note.unsure
    end = end if note.end is None else note.end
    return Claim(claim.cursor, msgspec.structs.replace(note, until=until, end=end, unsure=unsure))


def taken(claim: Claim, window: int) -> Claim:
    """As its new owner writes it: it may hand out a whole window before it writes again."""
    handed = max(claim.note.handed, window)
    return Claim(claim.cursor, msgspec.structs.replace(claim.note, handed=handed, end=None))
