"""Backlog: more new rows than a relay takes at once, read page by page, each page while the one before is published."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from posthouse.store import OutboxShard
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.stuck import run_of

IN_A_ROW = 16
"""So many pages are read ahead before a poll looks again at what else is new."""

# The next rows of a backlog.
PAGE = "SELECT * FROM posthouse.page($1, $2::text[]::pg_snapshot[], $3::text::pg_snapshot, $4, $5, $6)"


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Everything visible in `s2`, and for each shard not in its s1; read up to `last_id`, up to `hi_id` in all. `number` is
    None until its first page was settled."""

    number: int | None
    s2: str
    last_id: int
    hi_id: int
    floor: int
    shards: tuple[int, ...]
    s1: tuple[str, ...]

    @property
    def since(self) -> list[str | None]:
        """The s1 of each shard, at the place of its number."""
        standing = dict(zip(self.shards, self.s1, strict=True))
        return [standing.get(shard) for shard in range(max(self.shards) + 1)]


class Page(msgspec.Struct, frozen=True):
    """Some rows of a backlog, and where it stands once they were dealt with."""

    backlog: Backlog
    rows: Sequence[Sequence[Any]]
    last_id: int
    in_a_row: int = 0


class _Ahead(msgspec.Struct):
    """A page that is being read before the one before it was settled, and what it rests on."""

    behind: Page
    shards: Sequence[OutboxShard]
    limit: int
    page: asyncio.Task[Page]
    number: int | None = None
    """The backlog's, once the page before was settled."""


class Pages:
    """Reads the pages of backlogs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ahead: _Ahead | None = None

    async def first(self, backlog: Backlog, shards: Sequence[OutboxShard], limit: int) -> Page:
        """The next page of a backlog that a poll has named."""
        return await self._and_on(await self._read(backlog, shards, limit, 0), shards, limit)

    async def next(self, shards: Sequence[OutboxShard], limit: int) -> Page | None:
        """The page that was read ahead. None when there is none, when the one before was not settled whole, or when shards
        have changed since, with the run of the server or without."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.number is None or ahead.shards != shards or ahead.limit > limit:
            return None
        page = await ahead.page
        backlog = msgspec.structs.replace(page.backlog, number=ahead.number)
        return await self._and_on(msgspec.structs.replace(page, backlog=backlog), shards, limit)

    def settled(self, page: Page, number: int) -> None:
        """All of a page was sent, and its backlog has this number: what follows may be sent too."""
        if self._ahead is not None and self._ahead.behind is page:
            self._ahead.number = number

    async def _and_on(self, page: Page, shards: Sequence[OutboxShard], limit: int) -> Page:
        if page.last_id < page.backlog.hi_id and page.in_a_row < IN_A_ROW:
            after = msgspec.structs.replace(page.backlog, last_id=page.last_id)
            task = asyncio.get_running_loop().create_task(self._read(after, shards, limit, page.in_a_row + 1))
            task.add_done_callback(_seen)
            self._ahead = _Ahead(page, shards, limit, task)
            await asyncio.sleep(0)  # it is on its way before this page is worked on
        return page

    async def _read(self, backlog: Backlog, shards: Sequence[OutboxShard], limit: int, in_a_row: int) -> Page:
        bounds = (backlog.since, backlog.s2, backlog.last_id, backlog.hi_id)
        rows = await self._database.fetch(PAGE, run_of(shards), *bounds, limit)
        last = rows[-1][0] if len(rows) == limit else backlog.hi_id
        return Page(backlog, rows, last, in_a_row)


def _seen(task: asyncio.Task[Page]) -> None:
    """Whoever waits for it hears of its error; when nobody does, it is of no matter."""
    if not task.cancelled():
        task.exception()
