"""Receiving: the task that keeps a stream open, hands on what it brings, and looks after its slot."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol

from posthouse.clock import backoff, new_id
from posthouse.errors import StoreError, StoreUnavailable
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.wal.cursor import Guard, inspect
from posthouse.stores.postgres.wal.proving import direct_url, published
from posthouse.stores.postgres.wal.stream import LogStream, Message, connected

log = logging.getLogger("posthouse.relay")

LOOK = 5.0
"""Seconds between two looks at the slot."""
FIRST_DELAY, LAST_DELAY = 0.5, 30.0
"""Seconds between two tries to follow the log."""
BEAT = 0.5
"""Seconds between two words to the server, at the most, when something was dealt with."""


class Reader(Protocol):
    """Who takes what the stream brings."""

    why: str

    @property
    def accepted(self) -> int: ...
    @property
    def full(self) -> bool: ...
    def begin(self, guard: Guard) -> None: ...
    def take(self, messages: Sequence[Message]) -> None: ...
    def follows(self, guard: Guard) -> bool: ...
    def lose(self, why: str) -> None: ...


class Receiving:
    """Follows the log; when that fails lets the reader poll, and tries again once its polls have caught up: a slot made
    before would only hold back log."""

    def __init__(self, database: Database, wal_keep: int, reader: Reader) -> None:
        self._database = database
        self._wal_keep = wal_keep
        self._reader = reader
        self._task: asyncio.Task[None] | None = None
        self._caught_up = asyncio.Event()
        self._room = asyncio.Event()

    def start(self) -> None:
        """Begin, unless it has."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="posthouse log")

    async def stop(self) -> None:
        """End the stream; with the connection the server drops the slot."""
        task, self._task = self._task, None
        self._caught_up.clear()
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=LOOK)

    def polls_caught_up(self) -> None:
        """Polls have left nothing behind."""
        self._caught_up.set()
        self._room.set()

    def wait_for_polls(self) -> None:
        """Make no slot before polls have caught up again."""
        self._caught_up.clear()
        self._room.set()

    def made_room(self) -> None:
        """Something was dealt with."""
        self._room.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._caught_up.wait()
            began = _time()
            try:
                await self._follow()
            except StoreError as error:
                self._reader.lose(str(error))
            except Exception:
                log.exception("following the log failed in a way nobody foresaw")
                self._reader.lose("an unforeseen error")
            failures = 1 if _time() - began >= LAST_DELAY else failures + 1
            await asyncio.sleep(backoff(failures, FIRST_DELAY, LAST_DELAY))

    async def _follow(self) -> None:
        database = self._database
        publication = await published(database)  # before the slot: it is looked up as it was at the time of each row
        slot = f"{database.settings.schema[:25]}_{new_id().replace('-', '')}"
        async with connected(direct_url(database), slot, database.settings.patience, database.wal_name) as stream:
            self._reader.why = "a replication slot is being made, which waits for open transactions to end"
            await stream.make_slot()
            await stream.start(f"{database.settings.schema}_outbox")
            guard = Guard(slot, publication, self._wal_keep)
            self._reader.begin(guard)
            await self._receive(stream, guard)

    async def _receive(self, stream: LogStream, guard: Guard) -> None:
        reader, looked_at = self._reader, _time()
        while reader.follows(guard):
            if reader.full:
                self._room.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BEAT):
                        await self._room.wait()
            else:
                reader.take(await stream.receive(BEAT))
            await stream.confirm(reader.accepted)
            if _time() - looked_at >= LOOK:
                await inspect(self._database, guard)
                looked_at = _time()
        raise StoreUnavailable(reader.why)


def _time() -> float:
    return asyncio.get_running_loop().time()
