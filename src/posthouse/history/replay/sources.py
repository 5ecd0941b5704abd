"""Sources: where a replay has the events from. A source may give an event twice, and those of a key in any order."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from posthouse.broker import Broker, Delivery
from posthouse.errors import ConfigurationError
from posthouse.history.archive import ArchiveReader, Range
from posthouse.history.log import refusal, stored
from posthouse.seam.frames import frames_of
from posthouse.store import SentFilter, Store
from posthouse.store.inbox import drawn_at

PAGE = 500
EARLIER = 300.0
"""Seconds before the range from which on a log is read: it goes by the broker's clock, the range by that of whoever spoke."""


class Source(Protocol):
    """Events as they travelled."""

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
    """What the store still has of what was sent: that of the services in it."""

    name = "outbox"

    def __init__(self, store: Store, said_here: Sequence[str]) -> None:
        self._store = store
        self._said_here = said_here

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
                for frame, row in zip(frames_of(rows), rows, strict=True):
                    if row.id <= last:
                        yield Delivery(
                            frame=frame, position=row.id, stored_at=drawn_at(row.event_id) / 1000 or math.inf
                        )


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
