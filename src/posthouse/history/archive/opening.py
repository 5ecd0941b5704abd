"""Opening: what an App has of an archive. What reads and writes its files is an extra, imported when there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from posthouse.broker import Broker, Capabilities, Start
from posthouse.clock import Clock, new_id
from posthouse.errors import ConfigurationError
from posthouse.history.archive.places import Place
from posthouse.history.archive.reading import ArchiveReader
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.outage import Outages
from posthouse.pulse import Pulse
from posthouse.store import ArchiveTable

SUFFIX = "event-archive"


class ArchiveMember(Protocol):
    """Writes the archive, beside others of its group."""

    name: str
    """Of its group."""
    pulse: Pulse
    idle: bool
    """Nothing that it received waits to be written."""
    written: int
    """Events that are in the archive because of it."""

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; what is in hand then is written first."""
        ...

    async def tidy(self) -> None:
        """One round of housekeeping. May raise ArchiveError."""
        ...


def group_of(service: str) -> str:
    """What the consumer group of the archive of an App is called, by the first of its services. No handler can be called so."""
    return f"{service}.{SUFFIX}"


def reader_of(place: Place) -> ArchiveReader:
    """Reads an archive."""
    try:
        from posthouse.history.archive.reader import Reader
    except ModuleNotFoundError as error:
        raise lacking(error) from error
    return Reader(place)


def member_of(
    name: str,
    topics: Sequence[str],
    broker: Broker,
    place: Place,
    table: ArchiveTable,
    clock: Clock,
    *,
    process: str,
    settings: ArchiveSettings,
    start: Start,
    outages: Outages,
) -> ArchiveMember:
    """A member of the group that writes it."""
    try:
        from posthouse.history.archive.archiver import Archiver
    except ModuleNotFoundError as error:
        raise lacking(error) from error
    member = f"{process} {new_id()}"
    return Archiver(
        name, topics, broker, place, table, clock, member=member, settings=settings, start=start, outages=outages
    )


def lacking(error: ModuleNotFoundError) -> ConfigurationError:
    """What to install."""
    return ConfigurationError(f"an archive needs the package {error.name}: pip install 'posthouse[archive]'")


def forgets_too_soon(settings: ArchiveSettings, kept: float, sheet: Capabilities) -> list[str]:
    """Why an event could come again after the store has forgotten that it is archived; nothing where all is well."""
    longest = max(kept, sheet.redelivery_s)
    if settings.remembers > longest:
        return []
    return [
        f"the archive remembers events for {settings.remembers:g} s, and they may come again for {longest:g} s (outbox_retention, and what "
        f"the {sheet.name} broker says): set ArchiveSettings(remembers={longest + 86_400:g})"
    ]
