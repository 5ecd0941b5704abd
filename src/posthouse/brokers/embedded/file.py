"""The log's file: two connections, opened when first needed and again after the disk failed.

A block under `write` never awaits, so a transaction is never open while other tasks run, and the connections of one
process never wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import posthouse.brokers.embedded.schema as schema
from posthouse.errors import BrokerUnavailable, ConfigurationError, StoreError
from posthouse.local.doorbell import Doorbell
from posthouse.local.sqlite import (
    Checkpointer,
    Synchronous,
    begin,
    check_place,
    checkpoint,
    connect,
    patiently,
    translated,
)

T = TypeVar("T")


class LogFile:
    """`write(durable=True)` returns from its block once the disk has it; `durable=False` is for acknowledgements, whose
    loss in a power cut only repeats work. sqlite3's errors come out as BrokerUnavailable."""

    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        if not path.parent.is_dir():
            raise ConfigurationError(
                f"the folder {path.parent} of the log does not exist: make it, or correct the path"
            )
        self.path = path
        self.notes = tuple(check_place(path))
        self.bell = Doorbell(path)
        self.boot = boot()
        self._closed = False
        self._checkpointer = Checkpointer(path)
        self._synchronous: dict[bool, Synchronous] = {True: synchronous, False: "NORMAL"}
        self._connections: dict[bool, sqlite3.Connection] = {}
        self._locks = {True: asyncio.Lock(), False: asyncio.Lock()}

    @contextlib.asynccontextmanager
    async def write(self, doing: str, *, durable: bool = True) -> AsyncIterator[sqlite3.Connection]:
        async with self._locks[durable]:
            with self._mapped(doing):
                connection = await self._open(durable)
                await begin(connection)
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException as error:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
                        checkpoint(self.path, connection)  # may free the room that leases and cursors need
                    raise
                self._checkpointer.committed(connection)

    async def read(self, doing: str, query: Callable[[sqlite3.Connection], T]) -> T:
        with self._mapped(doing):
            connection = await self._open(False)
            return await patiently(lambda: query(connection))

    def close(self) -> None:
        self._closed = True
        self._drop()
        self.bell.close()

    async def _open(self, durable: bool) -> sqlite3.Connection:
        while durable not in self._connections:
            self._refuse_when_closed()
            connection = await patiently(lambda: connect(self.path, synchronous=self._synchronous[durable]))
            try:
                await begin(connection)
                schema.prepare(connection, self.path)
                connection.execute("COMMIT")
                self._refuse_when_closed()
            except BaseException:
                connection.close()
                raise
            if self._connections.setdefault(durable, connection) is not connection:
                connection.close()  # another task was faster
        return self._connections[durable]

    @contextlib.contextmanager
    def _mapped(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, StoreError) as error:
            cause = error.__cause__ if isinstance(error, StoreError) else error
            if (getattr(cause, "sqlite_errorcode", 0) & 0xFF) == sqlite3.SQLITE_IOERR:
                self._drop()  # after a failed write or sync nothing that was cached may be believed: open it anew
            ours = error if isinstance(error, StoreError) else translated(error, doing)
            raise BrokerUnavailable(f"the log {self.path}: {ours}") from error

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise BrokerUnavailable(f"the log {self.path} was closed by this process")

    def _drop(self) -> None:
        while self._connections:
            with contextlib.suppress(sqlite3.Error):
                self._connections.popitem()[1].close()


def boot() -> str:
    """A text that changes whenever the machine starts; the same for ever where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
