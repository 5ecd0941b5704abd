"""Database: the connections of one SQLite file, one writer at a time, and the transactions on them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from posthouse.errors import (
    CommitUnknown,
    DeadlineExceeded,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TransactionClosed,
)
from posthouse.local import sqlite as local
from posthouse.local.notifier import LocalNotifier
from posthouse.local.sqlite import MISFITS, Checkpointer, Inode, Synchronous, inode, mapped, patiently, translated
from posthouse.store import Parameters, Rows, Transaction
from posthouse.store.patience import patience
from posthouse.store.placeholders import QUESTION, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.sessions.refusing import refuse_ending_first
from posthouse.stores.sessions.sqlite3 import BorrowedConnection
from posthouse.stores.sqlite.schema import checking, real_path
from posthouse.stores.sqlite.steps import carry_out

log = logging.getLogger("posthouse.store")

T = TypeVar("T")

# Count what was applied or skipped.
COUNT = """
INSERT INTO posthouse_applied (consumer, topic, applied, skipped) VALUES (?, ?, ?, ?)
ON CONFLICT (consumer, topic) DO UPDATE SET applied = applied + excluded.applied, skipped = skipped + excluded.skipped
"""

REPLACED = (
    "was replaced or taken away under this process: stop every process that has it open, remove its -wal and -shm unless they "
    "came with it, and start again"
)

_open: ContextVar[tuple[SqliteTransaction, ...]] = ContextVar("posthouse_sqlite_transactions", default=())


def rows_of(connection: sqlite3.Connection, sql: str, parameters: Parameters = ()) -> Rows:
    """Run one statement and take all it returns, so that no reader stays open."""
    cursor = connection.execute(sql, parameters)
    rows = Rows() if cursor.description is None else Rows(cursor.fetchall())
    rows.rowcount = cursor.rowcount
    return rows


class Database:
    """One file, or one database in memory (`path` None).

    SQLite has one writer, so one lock (first come, first served) stands before two connections: the user's, which
    syncs every commit as configured, and the relay's bookkeeping, where a power cut may undo the last commits because
    that only repeats work. Reads have a third connection and never hold a transaction across an await. In memory all
    three are one, and reads take the lock too.
    """

    def __init__(self, path: Path | None, synchronous: Synchronous, shards: int | None, patience: float) -> None:
        self.path = path
        self.file = real_path(str(path)) if path else ""
        self.notifier = LocalNotifier(path)
        self.wanted_shards = shards
        self.patience = patience
        self.closed = False
        self._synchronous: Synchronous = synchronous
        self._lock = asyncio.Lock()
        self._writers: dict[Synchronous, sqlite3.Connection] = {}
        self._reader: sqlite3.Connection | None = None
        self._shards: int | None = None
        self._checkpointer = Checkpointer(path) if path is not None else None
        self._inode: Inode | None = None
        """Of the file that is open."""

    def begin(self, *, books: bool = False) -> SqliteTransaction:
        """A transaction, for a user or, with `books`, for the relay's bookkeeping."""
        return SqliteTransaction(self, "NORMAL" if books else self._synchronous)

    async def read(self, work: Callable[[sqlite3.Connection], T], *, check: bool = True) -> T:
        """What `work` reads, in one go, of what is committed. `check`: look first that the tables are as they must be."""
        if self.path is None:
            return await self._read_in_memory(work, check=check)
        connection = self._reader
        if connection is None:
            connection = self._reader = await self._connected("NORMAL")
        if check and self._shards is None:
            self._check(connection)
        with mapped("reading"):
            return await patiently(lambda: work(connection), patience=self.patience)

    async def select(self, sql: str, parameters: Parameters = ()) -> Rows:
        """The rows of one query."""
        return await self.read(lambda connection: rows_of(connection, sql, parameters))

    async def shards(self) -> int:
        """How many shards the outbox has."""
        await self.read(lambda connection: None)
        return self.known_shards

    @property
    def known_shards(self) -> int:
        """How many shards the outbox has, once a connection was checked."""
        if self._shards is None:
            raise StoreError("no connection was opened yet")
        return self._shards

    def checked(self, shards: int) -> None:
        """The tables were seen to fit."""
        self._shards = shards

    def forget(self) -> None:
        """Look at the tables again before the next use."""
        self._shards = None

    def close(self) -> None:
        """Close what nobody is using; a transaction that is still open closes its own at its end."""
        self.closed = True
        self.notifier.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if not self._lock.locked():
            self._close_writers()

    def _close_writers(self) -> None:
        for connection in self._writers.values():
            connection.close()
        self._writers.clear()

    async def _read_in_memory(self, work: Callable[[sqlite3.Connection], T], *, check: bool) -> T:
        """On the one connection: when nobody writes, or inside the reader's own transaction."""
        mine = self._innermost()
        if mine is None:
            await self._locked()
        try:
            connection = await self.writer("FULL")
            if check and self._shards is None:
                self._check(connection)
            with mapped("reading"):
                return work(connection)
        finally:
            if mine is None:
                self._lock.release()

    async def writer(self, synchronous: Synchronous) -> sqlite3.Connection:
        """The connection to write through; whoever asks holds the lock."""
        if self.closed:
            raise StoreError("the store is closed")
        role: Synchronous = "FULL" if self.path is None else synchronous
        connection = self._writers.get(role)
        if connection is None:
            connection = self._writers[role] = await self._connected(role)
        return connection

    async def _connected(self, synchronous: Synchronous) -> sqlite3.Connection:
        if self.closed:
            raise StoreError("the store is closed")
        place = self.path or ":memory:"
        connection = await patiently(lambda: local.connect(place, synchronous=synchronous), patience=self.patience)
        if self.path is not None and self._inode is None:
            self._inode = inode(self.path)
        return connection

    @property
    def _replaced(self) -> bool:
        """Whether another file has its name by now, or none: what is written to the one that is open is nowhere."""
        return self.path is not None and self._inode is not None and inode(self.path) != self._inode

    def _check(self, connection: sqlite3.Connection) -> None:
        with mapped("looking at the tables"):
            self._shards = carry_out(checking(self.wanted_shards), lambda sql, p: rows_of(connection, sql, p))

    # The way of a transaction: enter, then exactly one of finished and abandoned, then left.

    async def enter(self, transaction: SqliteTransaction, *, check: bool) -> sqlite3.Connection:
        """Wait for the turn to write, then begin."""
        await self._turn(self._innermost())
        try:
            connection = await self.writer(transaction.synchronous)
            if self._replaced:
                raise StoreUnavailable(f"{self.path} {REPLACED}")
            if check and self._shards is None:
                self._check(connection)
            try:
                connection.execute("BEGIN IMMEDIATE")  # most often nobody is in the way
            except sqlite3.OperationalError:
                given = patience()
                await local.begin(connection, patience=self.patience if given is None else min(self.patience, given))
        except BaseException:
            self._lock.release()
            raise
        return connection

    async def _turn(self, outer: SqliteTransaction | None) -> None:
        if outer is None:
            await self._locked()
            return
        if outer.task is asyncio.current_task():
            raise StoreError(
                "a transaction of this store is open in this task already, and SQLite has one writer: the second would "
                "wait for the first for ever. Use the open one, or leave its block first"
            )
        try:
            async with asyncio.timeout(self.patience):
                await self._lock.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"the transaction that was open when this task was started is still open after {self.patience:g} s: "
                "SQLite has one writer, so do not wait inside a transaction for a task that begins another"
            ) from None

    async def _locked(self) -> None:
        """The turn to write; StoreBusy where that takes longer than whoever asks may wait."""
        if (longest := patience()) is None:
            await self._lock.acquire()
            return
        try:
            async with asyncio.timeout(longest):
                await self._lock.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"a transaction of this process has been open for {longest:g} s, and SQLite has one writer: look for a handler "
                "that takes its time"
            ) from None

    def _innermost(self) -> SqliteTransaction | None:
        """The open transaction of this database around the caller, begun by this task or inherited from its parent."""
        for transaction in _open.get():
            if transaction.database is self and transaction.open:
                return transaction
        return None

    def finished(self, connection: sqlite3.Connection, *, notify: bool) -> None:
        """After a commit: keep the WAL small, tell who waits. Raises CommitUnknown where it reached a file that nobody will open."""
        if self._replaced:
            raise CommitUnknown(f"{self.path} {REPLACED}: what was committed is in the old file alone")
        if self._checkpointer is not None:
            self._checkpointer.committed(connection)
        if notify:
            self.notifier.notify()

    def make_room(self, connection: sqlite3.Connection) -> None:
        """The disk is full: what the WAL holds may be what leases and cursors need."""
        if self.path is not None:
            local.checkpoint(self.path, connection)

    def discard(self, connection: sqlite3.Connection) -> None:
        """Never use this connection again. One in memory is the database itself and stays."""
        if self.path is None:
            return
        for role in [role for role, kept in self._writers.items() if kept is connection]:
            del self._writers[role]
        connection.close()

    def left(self) -> None:
        """The turn is over."""
        if self.closed:
            self._close_writers()
        self._lock.release()


class SqliteTransaction:
    """One transaction, also its own block: `async with`. Statements run on the loop's thread, each to its end."""

    submit = None
    needs_loop = False
    __slots__ = (
        "_borrowed",
        "_check",
        "_connection",
        "_figures",
        "_outer",
        "appended",
        "database",
        "open",
        "savepoints",
        "synchronous",
        "task",
    )

    def __init__(self, database: Database, synchronous: Synchronous, *, check: bool = True) -> None:
        self.database = database
        self.synchronous: Synchronous = synchronous
        self.open = False
        self.appended = False
        """Whether the outbox got something, so that a relay should look."""
        self.savepoints = Savepoints()
        self._figures: dict[tuple[str, str], tuple[int, int]] = {}
        self.task: asyncio.Task[object] | None = None
        self._outer: tuple[SqliteTransaction, ...] = ()
        self._check = check
        self._connection: sqlite3.Connection | None = None
        self._borrowed: list[BorrowedConnection] = []

    @property
    def connection(self) -> BorrowedConnection:
        """A `sqlite3.Connection` that refuses to end the transaction."""
        if not self._borrowed:
            self.lend(BorrowedConnection)
        return self._borrowed[0]

    def lend(self, kind: type[Lent]) -> Lent:
        """A connection for the user, good until the transaction ends."""
        self.ready()
        borrowed = kind(self)
        self._borrowed.append(borrowed)
        return borrowed

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        refuse_ending_first(sql)
        rows = self.run(*bound(sql, parameters, QUESTION))
        self.savepoints.hear(sql)  # one that failed has changed nothing
        return rows

    async def attend(self) -> Detach:
        return lambda: None  # it hears of everything that comes this way

    def run(self, sql: str, parameters: Parameters = ()) -> Rows:
        """`execute`, without the need to await it."""
        connection = self.ready()
        try:
            return rows_of(connection, sql, parameters)
        except (sqlite3.Error, *MISFITS) as error:
            raise translated(error, f"running {' '.join(sql.split())[:60]!r}") from error

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        """One statement, once per set of parameters."""
        connection = self.ready()
        with mapped("running a batch"):
            connection.executemany(sql, parameters)

    def count(self, consumer: str, topic: str, *, skipped: bool = False) -> None:
        """One more event applied, or skipped. The figures are written once, at the end."""
        applied, passed = self._figures.get((consumer, topic), (0, 0))
        self._figures[consumer, topic] = (applied, passed + 1) if skipped else (applied + 1, passed)

    async def __aenter__(self) -> SqliteTransaction:
        self._connection = await self.database.enter(self, check=self._check)
        self.task = asyncio.current_task()
        self.open = True
        self._outer = _open.get()
        _open.set((*self._outer, self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection = self._connection
        assert connection is not None
        self.open = False
        _open.set(self._outer)
        try:
            if error is None:
                self._commit(connection)
            elif isinstance(error, StoreFull):
                self._roll_back(connection)
                self.database.make_room(connection)
            elif isinstance(error, Exception) and not isinstance(error, DeadlineExceeded | TimeoutError):
                self._roll_back(connection)
            else:
                self._abandon(connection)
        finally:
            self.task = None
            self.database.left()

    def ready(self) -> sqlite3.Connection:
        """The connection, as long as it is in this transaction."""
        connection = self._connection
        if not self.open or connection is None:
            raise TransactionClosed("the transaction has ended: its deadline passed or its block was left")
        if not connection.in_transaction:
            raise TransactionClosed(
                "the transaction was rolled back inside its block, by a session or by SQLite after an error: leave it"
            )
        return connection

    def _commit(self, connection: sqlite3.Connection) -> None:
        self._take_back()
        if not connection.in_transaction:
            raise TransactionClosed(
                "the transaction was ended inside its block, by a session's rollback, by a statement, or by SQLite after an "
                "error: this is not a commit"
            )
        try:
            for line, figures in self._figures.items():
                connection.execute(COUNT, (*line, *figures))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._commit_failed(connection, error)
        self.database.finished(connection, notify=self.appended)

    def _commit_failed(self, connection: sqlite3.Connection, error: sqlite3.Error) -> None:
        """Roll back what can be; after an I/O error nobody knows what reached the disk, and the connection is done."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR:
            self._abandon(connection)
            raise CommitUnknown(f"committing: {error}: it may or may not have happened") from error
        self._roll_back(connection)
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            self.database.make_room(connection)
        raise translated(error, "committing") from error

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._take_back()
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            log.warning("rolling back failed, the connection is replaced: %s", error)
            self.database.discard(connection)

    def _abandon(self, connection: sqlite3.Connection) -> None:
        """Somebody may still hold the connection, in a thread or a task: stop what runs, let nothing more be written,
        roll back, and never use it again."""
        connection.interrupt()
        self._take_back()
        alive_in_memory = self.database.path is None
        with contextlib.suppress(sqlite3.Error):
            if not alive_in_memory:
                connection.execute("PRAGMA query_only=ON")  # after ROLLBACK a late statement would commit by itself
        self._roll_back(connection)
        self.database.discard(connection)

    def _take_back(self) -> None:
        for borrowed in self._borrowed:
            borrowed.give_back()


def own(tx: Transaction) -> SqliteTransaction:
    """A transaction that the store began; StoreError for any other."""
    if not isinstance(tx, SqliteTransaction):
        raise StoreError("this takes a transaction that the store began, not a joined one")
    return tx


Lent = TypeVar("Lent", bound=BorrowedConnection)
