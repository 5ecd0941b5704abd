"""PORT: where event-sourced aggregates are kept: streams of facts, and snapshots as a cache of what they come to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from posthouse.errors import StreamArchived, StreamDeleted
from posthouse.store.transaction import Transaction


class Stream(msgspec.Struct, frozen=True, gc=False):
    """The name of a stream: everything that happened to one thing of a tenant."""

    tenant: str
    aggregate: str
    id: str

    def __str__(self) -> str:
        return f"{self.aggregate} {self.id!r} of tenant {self.tenant!r}"


StreamState = Literal["open", "archived", "deleted"]
"""open: takes events. archived: can be read, its events are out of the way. deleted: only its last fact is left."""


class StreamHead(msgspec.Struct, frozen=True, gc=False):
    """Where a stream stands. What is up to `base` was deleted: a thing that was begun again is the sum of what is behind it."""

    version: int
    base: int = 0
    state: StreamState = "open"


class StreamEvent(msgspec.Struct, frozen=True, gc=False):
    """One fact in its stream. `headers` and `body` are the envelope as it was published, but for the number that the outbox
    gives. Versions of a stream begin at 1 and have no gaps. `position` is filled by the store: it grows along a stream."""

    tenant: str
    aggregate: str
    stream: str
    version: int
    event_id: str
    type: str
    headers: Mapping[str, str]
    body: bytes
    position: int = 0

    @property
    def name(self) -> Stream:
        """The stream that it is in."""
        return Stream(self.tenant, self.aggregate, self.stream)


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """What a stream came to at a version. `shape` says how `state` was written: it is of use only to whoever writes it in
    the same way."""

    version: int
    shape: str
    state: bytes


class StreamPage(msgspec.Struct, frozen=True):
    """A part of all streams. `cursor` is where the next part begins: text of the store's own. `more`: there is more already,
    so ask again at once."""

    events: Sequence[StreamEvent]
    cursor: str
    more: bool


def refuse_closed(stream: Stream, head: StreamHead | None) -> None:
    """Raises what an append to a stream that stands so meets."""
    if head is not None and head.state == "archived":
        raise StreamArchived(str(stream))
    if head is not None and head.state == "deleted":
        raise StreamDeleted(str(stream), head.version)


class BodyPage(msgspec.Struct, frozen=True):
    """A StreamPage of which only the bodies were asked for."""

    bodies: Sequence[bytes]
    cursor: str
    more: bool


class StreamTable(Protocol):
    """Append-only streams. A snapshot is never needed: deleting all changes nothing but the time to load."""

    async def append(self, tx: Transaction, events: Sequence[StreamEvent]) -> None:
        """Add events of one stream with the versions that they have, without gaps. VersionConflict when the stream is not
        at the version before the first, StreamArchived or StreamDeleted when it takes none: then nothing was added, and `tx` can be used further. Who appends first holds the
        stream until his transaction ends; the next waits for him, so that versions follow commits."""
        ...

    async def version(self, tx: Transaction, stream: Stream, *, hold: bool = False) -> int:
        """The last version of a stream, 0 when it has none. `hold`: nobody else appends to it until `tx` ends; one that is
        not there yet cannot be held."""
        ...

    async def head(self, tx: Transaction, stream: Stream, *, hold: bool = False) -> StreamHead | None:
        """Where a stream stands; None when nothing ever happened in it. `hold` as in `version`."""
        ...

    async def archive(self, tx: Transaction, stream: Stream) -> None:
        """Put the events of a stream that `tx` holds out of the way, forget its snapshot, and take no more. Nobody who reads
        it, or everything, notices: each event is found once, whenever it moves."""
        ...

    async def delete(self, tx: Transaction, stream: Stream) -> None:
        """Delete the events of a stream that `tx` holds, all but the last, with its snapshot, and take no more. Its version
        stays."""
        ...

    async def reopen(self, tx: Transaction, stream: Stream) -> None:
        """Let a stream that `tx` holds take events again: one that was archived goes on, one that was deleted begins again
        behind its last version. What was archived stays where it is."""
        ...

    async def read(
        self, tx: Transaction, stream: Stream, *, after: int = 0, limit: int = 10_000
    ) -> Sequence[StreamEvent]:
        """Events behind a version, in order, with what `tx` has added itself; archived ones too. Versions follow one another
        but where the stream was deleted."""
        ...

    async def snapshot(self, tx: Transaction, stream: Stream) -> Snapshot | None:
        """What was kept last of a stream."""
        ...

    async def keep(self, tx: Transaction, stream: Stream, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before, unless that has the same shape and a later version."""
        ...

    async def drop_snapshots(self, aggregate: str | None = None) -> int:
        """Delete the snapshots of one aggregate, or all; how many there were."""
        ...

    async def read_all(self, after: str = "", limit: int = 10_000, *, types: Collection[str] = ()) -> StreamPage:
        """Committed events of all streams and tenants, in pages: each exactly once, however late its transaction commits,
        and those of one stream in the order of their versions. `after` is the cursor of the page before, empty for the
        beginning; it is good for ever and in any process, with the same `types` (none given: all). StoreError when it is
        from before a restore of the database: begin again then."""
        ...

    async def read_bodies(
        self, headers: Mapping[str, str], after: str = "", limit: int = 10_000, *, types: Collection[str] = ()
    ) -> BodyPage | None:
        """The bodies of what `read_all` reads, with the same cursors, at half of what that costs. None when an event of the
        page has other headers than these: `read_all` has it."""
        ...
