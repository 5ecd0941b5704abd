"""MemoryBroker: the port in a dict, for tests. Nothing outlives the process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult

import msgspec

from posthouse.broker import Capabilities, Delivery, Frame, Progress, Start, Stream, Topology, Verdict
from posthouse.brokers.admission import admit
from posthouse.brokers.options import options_of, said_in
from posthouse.checks import Check
from posthouse.clock import Clock
from posthouse.errors import BrokerError, ConfigurationError, did_you_mean
from posthouse.survey import Resource, wanted


class Stored(msgspec.Struct, frozen=True):
    frame: Frame
    at: float


class Reader(msgspec.Struct, eq=False):
    """A group's place in one topic. Positions count from 0; `done` holds those acknowledged past the cursor."""

    cursor: int
    started: int
    done: set[int] = msgspec.field(default_factory=set)
    holders: dict[int, MemoryStream] = msgspec.field(default_factory=dict)
    given: set[int] = msgspec.field(default_factory=set)
    """Those handed out and not acknowledged since."""
    returned: set[int] = msgspec.field(default_factory=set)
    """Those handed back and not acknowledged since."""
    seen: int = 0
    """Everything below it may have been handed out before the last seek."""
    fresh: bool = False
    """Declared, and never read nor moved: whoever reads first says where it begins."""


class MemoryLog:
    """What several MemoryBrokers of one process may share, as processes share a server."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Stored]] = {}
        self.readers: dict[tuple[str, str], Reader] = {}
        self.members: set[tuple[str, str, MemoryStream]] = set()
        """Group, topic and stream of all who read."""
        self.changed = asyncio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def topic(self, name: str) -> list[Stored]:
        if name not in self.topics:
            raise BrokerError(f"topic {name!r} does not exist.{did_you_mean(name, self.topics)}")
        return self.topics[name]

    def declare(self, group: str, topic: str) -> None:
        self.readers.setdefault((group, topic), Reader(0, 0, fresh=True))

    def reader(self, group: str, topic: str, start: Start = "earliest") -> Reader:
        first = 0 if start == "earliest" else len(self.topic(topic))
        known = self.readers.get((group, topic))
        if known is None or known.fresh:
            known = self.readers[group, topic] = Reader(first, first)
        return known


class MemoryBroker:
    """Keeps the whole contract but durability: order per key, one member per key at a time, window, seek, progress."""

    def __init__(self, *, clock: Clock, log: MemoryLog | None = None) -> None:
        self.sheet = Capabilities(
            name="memory", durable_ack=False, ordered_publish=True, ordered_redelivery=True, seek=True
        )
        self.log = log or MemoryLog()
        self._clock = clock
        self._streams: list[MemoryStream] = []

    async def ensure(self, topology: Topology) -> None:
        groups = [(group, topic) for group, topics in topology.groups.items() for topic in topics]
        for topic in (*topology.topics, *(topic for _, topic in groups)):
            self.log.topics.setdefault(topic, [])
        for group, topic in groups:
            self.log.declare(group, topic)

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        verdicts = admit(frames, self.log.topics, self.sheet.max_bytes)
        for frame, verdict in zip(frames, verdicts, strict=True):
            if verdict.accepted:
                self.log.topics[frame.topic].append(Stored(frame, self._clock.now()))
        self.log.wake()
        return verdicts

    async def subscribe(
        self, group: str, topics: Sequence[str], *, start: Start = "earliest", window: int = 1000
    ) -> Stream:
        for topic in topics:
            self.log.topic(topic)
            self.log.reader(group, topic, start)
        stream = MemoryStream(self.log, group, topics, clock=self._clock, window=window)
        self._streams.append(stream)
        self.log.members |= {(group, topic, stream) for topic in topics}
        return stream

    async def seek(
        self, group: str, topic: str, *, position: int | str | None = None, time: float | None = None
    ) -> None:
        if (position is None) == (time is None):
            raise BrokerError("seek takes either a position or a time")
        frames = self.log.topic(topic)
        if time is not None:
            target = next((n for n, stored in enumerate(frames) if stored.at >= time), len(frames))
        elif isinstance(position, int):
            target = min(max(position, 0), len(frames))
        else:
            raise BrokerError(f"position {position!r} is not one of this log: it takes whole numbers")
        old = self.log.reader(group, topic)
        # A new object, so that an acknowledgement from before the seek changes nothing.
        self.log.readers[group, topic] = Reader(target, old.started, seen=len(frames))
        self.log.wake()

    async def progress(self, group: str, topics: Sequence[str]) -> Mapping[str, Progress]:
        return {topic: self._progress(group, topic) for topic in topics}

    async def checks(self, *, today: bool = True) -> Sequence[Check]:
        frames = sum(map(len, self.log.topics.values()))
        return [Check(name="memory", found=f"{frames:,} frames, which nothing but this process knows")]

    async def survey(self, topology: Topology) -> Sequence[Resource]:
        places = wanted(topology) | {(topic, None) for topic in self.log.topics}
        places |= {(topic, group) for group, topic in self.log.readers}
        return [
            self._thing(topic, group) for topic, group in sorted(places, key=lambda place: (place[0], place[1] or ""))
        ]

    async def repair(self, resource: Resource) -> None:
        """Nothing here has a setting."""

    async def remove(self, resources: Sequence[Resource]) -> None:
        for resource in sorted(resources, key=lambda resource: resource.group is None):
            if resource.group is not None and self._at_work(resource.topic, resource.group):
                raise BrokerError(f"group {resource.group!r} has members at work in {resource.topic}: stop them first")
            if resource.group is None and (groups := [g for g, topic in self.log.readers if topic == resource.topic]):
                raise BrokerError(f"topic {resource.topic!r} is read by {', '.join(groups)}: remove these groups first")
            if resource.group is None:
                self.log.topics.pop(resource.topic, None)
            else:
                self.log.readers.pop((resource.group, resource.topic), None)

    async def aclose(self) -> None:
        for stream in self._streams:
            await stream.aclose()

    def _thing(self, topic: str, group: str | None) -> Resource:
        frames = len(self.log.topics.get(topic, ()))
        return Resource(
            topic=topic,
            group=group,
            called=f"topic {topic}" if group is None else f"group {group} in {topic}",
            exists=topic in self.log.topics if group is None else (group, topic) in self.log.readers,
            frames=frames if group is None else self._progress(group, topic).pending,
            at_work=group is not None and self._at_work(topic, group),
        )

    def _at_work(self, topic: str, group: str) -> bool:
        return any(place[:2] == (group, topic) for place in self.log.members)

    def _progress(self, group: str, topic: str) -> Progress:
        stored = len(self.log.topics.get(topic, ()))
        reader = self.log.readers.get((group, topic)) or Reader(0, 0)
        pending = stored - reader.cursor - len(reader.done)
        late = reader.started > 0
        seen = set(range(reader.cursor, reader.seen)) - reader.done
        unsure = len(seen | reader.returned | reader.holders.keys())
        first = next((at for at in range(reader.cursor, stored) if at not in reader.done), None)
        return Progress(
            stored=stored,
            pending=pending,
            truncated=late,
            whole=not late,
            unsure=unsure,
            behind=(pending,),
            oldest=0.0 if first is None else max(0.0, self._clock.now() - self.log.topics[topic][first].at),
        )


class MemoryStream:
    def __init__(self, log: MemoryLog, group: str, topics: Sequence[str], *, clock: Clock, window: int) -> None:
        self._log = log
        self._group = group
        self._topics = topics
        self._clock = clock
        self._window = window
        self._closed = False

    async def receive(self, limit: int, wait: float) -> Sequence[Delivery]:
        if self._closed:
            raise BrokerError("this stream was closed")
        await asyncio.sleep(0)
        deadline = self._clock.monotonic() + wait
        while not self._closed:
            changed = self._log.changed
            deliveries: list[Delivery] = []
            for topic in self._topics:
                deliveries += self._take(topic, limit - len(deliveries))
            left = deadline - self._clock.monotonic()
            if deliveries or left <= 0:
                return deliveries
            await self._clock.wait(changed, left)
        return []

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for reader, position in self._mine(deliveries):
            reader.holders.pop(position, None)
            reader.given.discard(position)
            reader.returned.discard(position)
            reader.done.add(position)
            while reader.cursor in reader.done:
                reader.done.remove(reader.cursor)
                reader.cursor += 1
        self._log.wake()

    async def nack(self, deliveries: Sequence[Delivery]) -> None:
        for reader, position in self._mine(deliveries):
            reader.holders.pop(position, None)
            reader.returned.add(position)
        self._log.wake()

    async def aclose(self) -> None:
        self._closed = True
        self._log.members -= {(self._group, topic, self) for topic in self._topics}
        for reader in self._readers():
            reader.holders = {n: holder for n, holder in reader.holders.items() if holder is not self}
        self._log.wake()

    def _readers(self) -> list[Reader]:
        places = ((self._group, topic) for topic in self._topics)
        return [self._log.readers[place] for place in places if place in self._log.readers]

    def _take(self, topic: str, limit: int) -> list[Delivery]:
        """A key of which another member has a frame in hand waits, with all that follows of it."""
        frames, reader = self._log.topics[topic], self._log.reader(self._group, topic)
        busy = {frames[n].frame.key for n, holder in reader.holders.items() if holder is not self} - {None}
        deliveries: list[Delivery] = []
        for n in range(reader.cursor, min(len(frames), reader.cursor + self._window)):
            if len(deliveries) >= limit:
                break
            if n in reader.done or n in reader.holders or frames[n].frame.key in busy:
                continue
            again = n in reader.given or n < reader.seen
            reader.holders[n] = self
            reader.given.add(n)
            deliveries.append(
                Delivery(frame=frames[n].frame, position=n, stored_at=frames[n].at, redelivered=again, token=reader)
            )
        return deliveries

    def _mine(self, deliveries: Sequence[Delivery]) -> list[tuple[Reader, int]]:
        """Those still in this member's hands, each with its group's place; none from before a seek."""
        found = []
        for delivery in deliveries:
            reader, position = self._log.reader(self._group, delivery.frame.topic), int(delivery.position)
            if delivery.token is reader and reader.holders.get(position) is self:
                found.append((reader, position))
        return found


class MemoryOptions(msgspec.Struct, frozen=True):
    """What may follow the `?`. `single_host` is for those who choose a broker, as that of an `embedded:` URL."""

    single_host: bool = False


def from_url(parts: SplitResult, clock: Clock) -> MemoryBroker:
    """`memory://` is all that there is to say. Raises ConfigurationError with every problem."""
    problems: list[str] = []
    options_of("memory", said_in(parts), MemoryOptions(), problems)
    if problems:
        raise ConfigurationError(*problems)
    return MemoryBroker(clock=clock)
