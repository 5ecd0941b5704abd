"""Sources: where a replay has the events from. A source may give an event twice, and those of a key in any order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from posthouse.broker import Broker, Delivery
from posthouse.errors import ConfigurationError
from posthouse.history.archive import ArchiveReader, Range
from posthouse.history.log import refusal, stored
from posthouse.seam.frames import frames_of
from posthouse.store import OutboxRow, SentFilter, Store
from posthouse.store.streams import Stream, StreamEvent

PAGE = 500
LOOKS = 10
EARLIER = 300.0
"""Seconds before the range from which on a log is read: it goes by the broker's clock, the range by that of whoever spoke."""


class Source(Protocol):
    """Events as they travelled. `Delivery.stored_at` is never anything that whoever said a fact has chosen: keys are judged by it."""

    name: str

    def events(self, topics: Sequence[str], since: float | None) -> AsyncGenerator[Delivery, None]:
        """Everything of these topics that was said from a time on, each at least once, in any order, and perhaps more. What comes
        after it has begun need not be there. BrokerError, StoreError or ArchiveError: then nothing is known of the rest."""
        ...

    def refuse(self) -> None:
        """ConfigurationError, with what to do instead, where it has nothing to read."""
        ...


class LogSource:
    """What a broker still keeps."""

    name = "log"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def is_there(self) -> bool:
        """Whether the broker keeps a log that can be read."""
        return refusal(self._broker) is None

    def refuse(self) -> None:
        if (why := refusal(self._broker)) is not None:
            raise ConfigurationError(
                f"{why}: replay from the archive (--from archive), or from the outbox of the producer (--from outbox)"
            )

    async def events(self, topics: Sequence[str], since: float | None) -> AsyncGenerator[Delivery, None]:
        async with aclosing(stored(self._broker, topics, None if since is None else since - EARLIER)) as deliveries:
            async for delivery in deliveries:
                yield delivery


class OutboxSource:
    """What the store still has of what was sent: that of the services in it. A fact arrived when its row was written, by the clock of
    the store."""

    name = "outbox"

    def __init__(self, store: Store, said_here: Sequence[str], now: Callable[[], float]) -> None:
        self._store = store
        self._said_here = said_here
        self._now = now

    def refuse(self) -> None:
        """There is always an outbox."""

    async def events(self, topics: Sequence[str], since: float | None) -> AsyncGenerator[Delivery, None]:
        if elsewhere := sorted(set(topics) - set(self._said_here)):
            raise ConfigurationError(
                f"{', '.join(elsewhere)}: said by a service whose outbox is in another store: replay from the log"
            )
        last = await self._store.outbox.newest()
        for topic in topics:
            after = 0
            while rows := await self._store.outbox.sent(SentFilter(topic=topic), after, PAGE):
                after = rows[-1].id
                written = await self._store.outbox.written([row.id for row in rows])
                for frame, row in zip(frames_of(rows), rows, strict=True):
                    if row.id <= last:
                        at = written.get(row.id, self._now())
                        yield Delivery(frame=frame, position=row.id, stored_at=at)


class ArchiveSource:
    """What was archived, and what the log still has: an archive is always a little behind."""

    name = "archive"

    def __init__(self, reader: ArchiveReader, log: LogSource) -> None:
        self._reader = reader
        self._log = log

    def refuse(self) -> None:
        """It was opened: it is there."""

    async def events(self, topics: Sequence[str], since: float | None) -> AsyncGenerator[Delivery, None]:
        wanted = Range(topics=topics, since=None if since is None else since - EARLIER)
        async for batch in self._reader.read(wanted):
            for one in batch:
                yield Delivery(frame=one.frame, position=one.position, stored_at=one.stored_at)
        if self._log.is_there:
            async with aclosing(self._log.events(topics, since)) as deliveries:
                async for delivery in deliveries:
                    yield delivery


class StreamSource:
    """What happened to the aggregates of services in the same store. A fact of a stream has no number of its key there: its version is
    that, as long as nothing but the aggregate speaks under the key. Nor does a stream know when a fact came: it arrives now."""

    name = "stream"

    def __init__(self, store: Store, types: Mapping[str, str], now: Callable[[], float]) -> None:
        self._store = store
        self._types = types
        self._now = now
        self._numbered: set[tuple[str, str, str]] = set()

    def refuse(self) -> None:
        if not self._types:
            raise ConfigurationError("no aggregate of a service in this store has such events: replay from the log")

    async def events(self, topics: Sequence[str], since: float | None) -> AsyncGenerator[Delivery, None]:
        types = [kind for kind, topic in self._types.items() if topic in topics]
        if left := sorted(set(topics) - {self._types[kind] for kind in types}):
            raise ConfigurationError(
                f"{', '.join(left)}: not all of its events are in streams here: replay from the log"
            )
        cursor, more = "", bool(types)
        while more:
            page = await self._store.streams.read_all(cursor, PAGE, types=types)
            for one in page.events:
                topic = self._types[one.type]
                await self._refuse_other_numbers(topic, one)
                [frame] = frames_of([_row(topic, one)])
                yield Delivery(frame=frame, position=one.version, stored_at=self._now())
            cursor, more = page.cursor, page.more

    async def _refuse_other_numbers(self, topic: str, one: StreamEvent) -> None:
        """Unless the last number of the key is the version of its stream: then each has been that of the other. It is looked again
        while somebody appends."""
        place = (topic, one.tenant, one.stream)
        if place in self._numbered:
            return
        for _ in range(LOOKS):
            async with self._store.begin(tenant=one.tenant) as tx:
                version = await self._store.streams.version(tx, Stream(one.tenant, one.aggregate, one.stream))
            number, lineage = await self._store.outbox.last_number(topic, one.tenant, one.stream)
            if (number, lineage) == (version, 1):
                self._numbered.add(place)
                return
        raise ConfigurationError(
            f"{one.aggregate} {one.stream} of {one.tenant} is at version {version}, and its key in {topic} at number {number} of "
            f"lineage {lineage}: its versions are not the numbers of its key, so replay from the log"
        )


def _row(topic: str, one: StreamEvent) -> OutboxRow:
    return OutboxRow(
        topic=topic,
        tenant=one.tenant,
        event_id=one.event_id,
        body=one.body,
        headers=one.headers,
        key=one.stream,
        sequence=one.version,
        lineage=1,
    )
