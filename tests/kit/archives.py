"""What tests of the archive share: events on their way, members that write it, and what is in it in the end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Literal

from posthouse.broker import Broker, Frame, Topology
from posthouse.clock import ManualClock, new_id
from posthouse.events import STRUCTURED, Event, Metadata, timestamp
from posthouse.history.archive.archiver import Archiver
from posthouse.history.archive.files import digests_in, opened
from posthouse.history.archive.log import read_manifest
from posthouse.history.archive.places import Object, Place
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.store import ArchiveTable

NAME = "shop.archive"
TOPICS = ("shop.orders.order", "shop.stock.item")
CLASSES: Sequence[Literal["hot", "warm", "cold"]] = ("hot", "cold")
SETTINGS = ArchiveSettings(every=0.0, lease=30.0, look=0.0)


def fact(number: int, topic: str = TOPICS[0], *, keys: int = 3, size: int = 20) -> Frame:
    """One event, as it travels."""
    event = Event(
        id=new_id(),
        type=f"{topic}.placed.v{1 + number % 2}",
        source="/shop/orders",
        data=b'{"number":%d,"text":"%s"}' % (number, b"x" * size),
        time=timestamp(1_800_000_000.0 + number),
        tenant=f"t{number // keys % 2}",
        key=f"k{number % keys}",
        sequence=number // (2 * keys) + 1,
        metadata=Metadata(retention=CLASSES[number % len(CLASSES)]),
    )
    encoded = STRUCTURED.encode(event)
    return Frame(topic=topic, id=event.id, key=event.ordering_key, headers=encoded.headers, body=encoded.body)


async def published(broker: Broker, count: int, *, twice: int = 0, first: int = 0) -> list[Frame]:
    """So many events in each topic; the first so many of each are published once more at the end, as a relay does that died between."""
    await broker.ensure(Topology(topics=TOPICS, groups={NAME: TOPICS}))
    frames = [fact(number, topic) for topic in TOPICS for number in range(first, first + count)]
    again = [frame for topic in TOPICS for frame in [each for each in frames if each.topic == topic][:twice]]
    verdicts = await broker.publish([*frames, *again])
    assert all(verdict.accepted for verdict in verdicts)
    return frames


def member(
    broker: Broker,
    place: Place,
    table: ArchiveTable,
    clock: ManualClock,
    *,
    name: str = "one",
    settings: ArchiveSettings = SETTINGS,
) -> Archiver:
    """One that archives both topics."""
    return Archiver(NAME, TOPICS, broker, place, table, clock, member=name, settings=settings)


async def pending(broker: Broker) -> int:
    """Frames that the archive has still to acknowledge."""
    return sum(found.pending for found in (await broker.progress(NAME, TOPICS)).values())


async def until_archived(
    broker: Broker, clock: ManualClock, *members: Archiver, within: float = 30.0, step: float = 1.0
) -> None:
    """Let members work until nothing is left to be archived, while time passes."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task(each.run(stop)) for each in members]
    try:
        async with asyncio.timeout(within):
            while await pending(broker):
                clock.advance(step)
                await asyncio.sleep(0.001)
                for task in tasks:
                    if task.done():
                        task.result()
    finally:
        stop.set()
        moving = asyncio.create_task(_move(clock))
        await asyncio.gather(*tasks, return_exceptions=True)
        moving.cancel()


async def _move(clock: ManualClock) -> None:
    while True:
        clock.advance(1.0)
        await asyncio.sleep(0.001)


def archived(place: Place) -> Counter[str]:
    """How often each event is in a live file, by its id."""
    found: Counter[str] = Counter()
    for file in read_manifest(place).files.values():
        with opened(place, file) as rows:
            found.update(rows.read(columns=["id"])["id"].to_pylist())
        assert file.rows == len(set(digests_in(place, file)))
    return found


def doubled_and_lost(place: Place, frames: Iterable[Frame]) -> tuple[list[str], list[str]]:
    """Events that are in the archive more than once, and those that are not."""
    found, committed = archived(place), {frame.id for frame in frames}
    assert found.keys() <= committed
    return [id for id, count in found.items() if count > 1], sorted(committed - found.keys())


class Crash(BaseException):
    """The end of a process."""


class Fuse:
    """Counts what is asked of store, place and broker, and ends the process before or after one of these steps; or halts it there
    until somebody lets it go on."""

    def __init__(self, at: int = 0, *, after: bool = False, halts: bool = False) -> None:
        self.at, self.after, self.halts = at, after, halts
        self.steps: list[str] = []
        self.blown = threading.Event()
        self.go_on = threading.Event()

    def step(self, what: str, *, after: bool) -> None:
        """In a thread, where it may wait."""
        if not after:
            self.steps.append(what)
        if self._is_here(after):
            self.blown.set()
            if not self.halts:
                raise Crash(what)
            self.go_on.wait(60.0)

    async def async_step(self, what: str, *, after: bool) -> None:
        if not after:
            self.steps.append(what)
        if self._is_here(after):
            self.blown.set()
            if not self.halts:
                raise Crash(what)
            await asyncio.to_thread(self.go_on.wait, 60.0)

    def _is_here(self, after: bool) -> bool:
        return not self.blown.is_set() and len(self.steps) == self.at and after == self.after


class FusedTable:
    """The store's table with a fuse before and after each transaction."""

    def __init__(self, table: ArchiveTable, fuse: Fuse) -> None:
        self._table, self._fuse = table, fuse

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._table, name)

        async def call(*positional: object, **named: object) -> object:
            await self._fuse.async_step(f"store.{name}", after=False)
            found = await real(*positional, **named)
            await self._fuse.async_step(f"store.{name}", after=True)
            return found

        return call


class FusedPlace:
    """A place with a fuse before and after each call; one that halts, halts the thread."""

    def __init__(self, place: Place, fuse: Fuse) -> None:
        self._place, self._fuse, self.url = place, fuse, place.url

    def put_new(self, name: str, data: bytes) -> bool:
        self._fuse.step(f"place.put {name.split('/')[0]}", after=False)
        found = self._place.put_new(name, data)
        self._fuse.step(f"place.put {name.split('/')[0]}", after=True)
        return found

    def get(self, name: str) -> bytes | None:
        self._fuse.step("place.get", after=False)
        found = self._place.get(name)
        self._fuse.step("place.get", after=True)
        return found

    def size(self, name: str) -> int | None:
        return self._place.size(name)

    def open(self, name: str, size: int) -> IO[bytes]:
        self._fuse.step("place.open", after=False)
        with contextlib.ExitStack() as closing:
            found = closing.enter_context(self._place.open(name, size))
            self._fuse.step("place.open", after=True)
            closing.pop_all()
        return found

    def names(self, prefix: str) -> Iterator[Object]:
        return self._place.names(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self._fuse.step("place.delete", after=False)
        self._place.delete(names)
        self._fuse.step("place.delete", after=True)


class FusedBroker:
    """A broker whose streams have a fuse before and after they acknowledge."""

    def __init__(self, broker: Broker, fuse: Fuse) -> None:
        self._broker, self._fuse = broker, fuse
        self.streams: list[Any] = []

    async def subscribe(self, *positional: Any, **named: Any) -> Any:
        stream = _FusedStream(await self._broker.subscribe(*positional, **named), self._fuse)
        self.streams.append(stream)
        return stream


class _FusedStream:
    def __init__(self, stream: Any, fuse: Fuse) -> None:
        self.real, self._fuse = stream, fuse

    async def receive(self, limit: int, wait: float) -> Any:
        return await self.real.receive(limit, wait)

    async def ack(self, deliveries: Any) -> None:
        await self._fuse.async_step("broker.ack", after=False)
        await self.real.ack(deliveries)
        await self._fuse.async_step("broker.ack", after=True)

    async def aclose(self) -> None:
        await self.real.aclose()
