"""Sweep: rows that nobody needs any more leave the store, written into a folder or a bucket before where one was named.

Read, written, deleted, in this order and in batches: whoever dies in between begins with the same rows again, and writes the
same file under the same name. While the folder takes nothing, rows stay.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from posthouse.errors import ArchiveDamaged, ArchiveUnavailable, AuditUnavailable
from posthouse.history.audit.place import Place
from posthouse.store import CoreStore, HeldEvent

PURGE_BATCH = 5_000
"""Rows that are deleted at once where nothing is written."""
BATCH = 1_000
"""Rows of one file."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Of one store. `held_retention` None: given-up events stay for ever. `folder` None: rows are only deleted."""

    store: CoreStore
    inbox_retention: float
    held_retention: float | None = None
    folder: Place | None = None

    async def inbox(self) -> tuple[int, bool]:
        """One batch of what was applied longest ago: how many left, and whether there may be more. ArchiveUnavailable: none did."""
        if self.folder is None:
            gone = await self.store.inbox.purge(self.inbox_retention, PURGE_BATCH)
            return gone, gone == PURGE_BATCH
        await self.store.inbox.purge(math.inf, PURGE_BATCH)  # deletes nothing, and sums up the lines of its counts
        rows = await self.store.retention.old_seen(self.inbox_retention, BATCH)
        if not rows:
            return 0, False
        await self._write("inbox", rows[0].received_at, rows)
        return await self.store.retention.forget_seen(rows), len(rows) == BATCH

    async def held(self) -> tuple[int, bool]:
        """The same of events that were given up."""
        if self.held_retention is None:
            return 0, False
        events = await self.store.retention.old_held(self.held_retention, BATCH)
        if not events:
            return 0, False
        if self.folder is not None:
            await self._write("held", events[0].last_at, events)
        gone = await self.store.retention.forget_held(events)
        return gone, len(events) == BATCH and gone > 0

    async def _write(self, what: str, first: float, rows: Sequence[msgspec.Struct]) -> None:
        """A name that its content alone decides: the same rows are the same file."""
        assert self.folder is not None
        data = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        day = f"{datetime.fromtimestamp(first, UTC):%Y/%m/%d}"
        name = f"{what}/{day}/{hashlib.sha256(data).hexdigest()[:32]}.jsonl"
        try:
            written = await asyncio.to_thread(self.folder.put, name, data)
        except AuditUnavailable as error:
            why = str(error).removeprefix(f"the audit log in {self.folder.name}: ")
            raise ArchiveUnavailable(
                f"{name} cannot be written in {self.folder.name}: {why}: make room, or give the right to write there"
            ) from error
        if not written:
            raise ArchiveUnavailable(
                f"{name} in {self.folder.name} does not hold the rows that it is named after: somebody changed it. The rows stay in the "
                "store: move that file away, and they are written again"
            )


def held_in(folder: Place) -> Iterator[Sequence[HeldEvent]]:
    """The events that were given up and written before they were deleted, file by file. Blocking. AuditUnavailable where the folder
    does not answer, ArchiveDamaged for what is no such file."""
    for path in folder.list("held/"):
        try:
            yield [msgspec.json.decode(line, type=HeldEvent) for line in (folder.get(path) or b"").splitlines()]
        except msgspec.MsgspecError as error:
            raise ArchiveDamaged(f"{path} in {folder.name} is no file of given-up events: {error}") from error
