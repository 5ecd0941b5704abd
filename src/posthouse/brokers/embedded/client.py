"""The log's file: two connections, opened when first needed and again after the disk failed.

A block under `write` never awaits, so a transaction is never open while other tasks run, and the connections of one
process never wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import posthouse.brokers.embedded.schema as schema
from posthouse.errors import BrokerUnavailable, ConfigurationError, StoreError, StoreUnavailable
from posthouse.local.notifier import LocalNotifier
from posthouse.local.sqlite import (
    Checkpointer,
    Inode,
    Synchronous,
    begin,
    check_place,
    checkpoint,
    connect,
    inode,
    patiently,
    translated,
)

T = TypeVar("T")
HEADER = 32
"""Bytes in front of a WAL, with salt that is drawn anew for each."""

log = logging.getLogger("posthouse.brokers")


class LogFile:
    """`write(durable=True)` returns from its block once the disk has it; `durable=False` is for acknowledgements, whose
    loss in a power cut only repeats work. sqlite3's errors come out as BrokerUnavailable.

    What is written is in the file that has the log's name: one that was replaced or taken away under us is noticed before
    each transaction, and again before its success is believed. `run` counts how often it was opened while this process had
    it closed: it may be an older copy by now, and whoever remembers something of it compares."""

    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        if not path.parent.is_dir():
            raise ConfigurationError(
                f"the folder {path.parent} of the log does not exist: make it, or correct the path"
            )
        self.path = path
        self.notes = tuple(check_place(path))
        self.notifier = LocalNotifier(path)
        self.boot = boot()
        self.run = 0
        self._file: Inode | None = None
        self._wal: Inode | None = None
        self._left_wal = b""
        """The header of the WAL that lay beside the file when it was replaced or taken away."""
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
                    self._notice()
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
        self.notifier.close()

    async def _open(self, durable: bool) -> sqlite3.Connection:
        self._notice()
        while durable not in self._connections:
            self._refuse_when_closed()
            before = inode(self.path)
            connection = await patiently(lambda: connect(self.path, synchronous=self._synchronous[durable]))
            try:
                await begin(connection)
                schema.prepare(connection, self.path)
                connection.execute("COMMIT")
                self._refuse_when_closed()
            except BaseException:
                connection.close()
                raise
            if before not in (None, inode(self.path)) or not self._keep(durable, connection):
                connection.close()  # another task was faster, or it is another file by now
                self._notice()
        return self._connections[durable]

    @property
    def was_never_there(self) -> bool:
        """There is no file, and none was open here that could have been taken away."""
        return self._file is None and not self.path.exists()

    def _keep(self, durable: bool, connection: sqlite3.Connection) -> bool:
        """Whether it is of the same file as what is open already, and not the second of its kind."""
        if not self._connections:
            self.run += 1
            self._file, self._wal, self._left_wal = inode(self.path), inode(wal_of(self.path)), b""
        same = self._file == inode(self.path)
        return same and self._connections.setdefault(durable, connection) is connection

    def _notice(self) -> None:
        """Another file has the name: begin anew with that one. What was written to the old one is nowhere, and nobody must
        be told otherwise. The old WAL beside a new file would be taken for its own, and spoil it."""
        found = inode(self.path)
        if self._file is None or found == self._file:
            return
        if self._connections and inode(wal_of(self.path)) == self._wal:
            self._left_wal = header_of(wal_of(self.path))
        self._drop()
        if found is None:
            raise StoreUnavailable(
                "the file was taken away under this process: put it back, or start this process anew"
            )
        if self._left_wal and header_of(wal_of(self.path)) == self._left_wal:
            raise StoreUnavailable(
                f"the file was replaced under this process, and the WAL of the old one still lies beside it: remove"
                f" {wal_of(self.path)} and {self.path}-shm while nothing has the log open"
            )
        self._file = None
        log.warning("the log %s was replaced under this process: it begins anew with what is there now", self.path)
        raise StoreUnavailable("the file was replaced under this process: it begins anew with the new one")

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


def header_of(wal: Path) -> bytes:
    """Empty where there is none, or nothing in it. SQLite has no locks on a WAL that could end here."""
    try:
        with wal.open("rb") as file:
            return file.read(HEADER)
    except FileNotFoundError:
        return b""


def wal_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def boot() -> str:
    """A text that changes whenever the machine starts; the same for ever where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
