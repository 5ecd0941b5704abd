"""PORT: what others ask of an archive: which events it has, and to have them again, in order per key.

Replay, projections, traces and the audit read through this; nobody else needs to know of files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from posthouse.broker import Frame


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Which events: those that fit everything that is said here. None says nothing.

    Times are seconds since 1970 and those of the log: when the broker took an event, never what its producer said. `since` is part of
    it, `until` is not. `positions` bounds some partitions: from the first number, which is part of it, to the second, which is not;
    a broker without partitions has the one of number 0. Partitions that are not named are not bounded.
    """

    topics: Collection[str] | None = None
    types: Collection[str] | None = None
    tenants: Collection[str] | None = None
    keys: Collection[str] | None = None
    ids: Collection[str] | None = None
    correlations: Collection[str] | None = None
    since: float | None = None
    until: float | None = None
    positions: Mapping[tuple[str, int], tuple[int, int]] | None = None


class Archived(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event of the archive: its frame byte for byte as it travelled, where it stood in the log and when that took it. What is said
    of it beside that was read from its envelope; `type` is empty where there was none to read."""

    frame: Frame
    position: int | str
    stored_at: float
    type: str
    tenant: str
    key: str | None
    sequence: int | None
    lineage: int
    retention: str
    """Its class: `hot`, `warm` or `cold`; `unread` where nobody could tell."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How far the archive goes in a topic: so many events, stored by the log between two moments, and of each partition the first and
    the last offset."""

    events: int
    first_at: float
    last_at: float
    partitions: Mapping[int, tuple[int, int]] = {}


class ArchiveReader(Protocol):
    """Every method may raise ArchiveUnavailable, or ArchiveDamaged where a file is not what was written."""

    def read(self, wanted: Range, *, batch: int = 500) -> AsyncIterator[Sequence[Archived]]:
        """The events of a range, each once, at most `batch` at a time; those of one topic and key in the order of their offsets,
        which is that of the log unless the topic was deleted and made anew. What is in the archive when it begins is read, whatever is compacted meanwhile. Memory does not grow with the range."""
        ...

    async def count(self, wanted: Range) -> int:
        """How many `read` would give."""
        ...

    async def reach(self) -> Mapping[str, Reach]:
        """How far it goes, by topic; what is still in the hands of the archive's members is not in it."""
        ...
