"""Joins: the user's own open transaction, of any library that SQLite users have. Nothing here begins or commits.

Optional libraries are told by the module of the object's class, so that only those are imported that are in use.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from posthouse.errors import ConfigurationError, PosthouseError, StoreUnavailable
from posthouse.local.sqlite import translated
from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import QUESTION, bound
from posthouse.store.savepoints import Detach, Savepoints, steps_in
from posthouse.stores.attending import attend_sqlalchemy
from posthouse.stores.sqlite.borrowed import BorrowedConnection
from posthouse.stores.sqlite.database import Database, SqliteTransaction
from posthouse.stores.sqlite.schema import checking
from posthouse.stores.sqlite.steps import Steps, carry_out

T = TypeVar("T")
Run = Callable[[str, Any], Rows]

SUPPORTED = (
    "sqlite3.Connection, aiosqlite.Connection, and SQLAlchemy's Session, AsyncSession, Connection and AsyncConnection"
)

# Drivers begin a transaction with the first change only. A savepoint that comes before would be one, and its release a commit.
TOUCH = "DELETE FROM posthouse_timer WHERE 0"

_seen: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
"""aiosqlite connections whose tables were looked at, with the number of shards."""


class Joined:
    """A transaction that somebody else began and will end. The synchronous ones also work without an event loop."""

    submit = None
    needs_loop = False

    def __init__(self, database: Database, theirs: Any) -> None:
        self.database = database
        self.savepoints = Savepoints()
        self._theirs = theirs

    async def attend(self) -> Detach:
        await self.checked()
        return await self._attend()

    async def _attend(self) -> Detach:
        raise NotImplementedError

    @property
    def connection(self) -> object:
        return self._theirs

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        if any(step.verb == "set" for step in steps_in(sql)):
            await self.checked()
            await self.carry_out(_only(TOUCH, ()))
        return await self.carry_out(_only(*bound(sql, parameters, QUESTION)))

    async def checked(self) -> int:
        """The number of shards, after making sure that theirs is the store's database and in a transaction."""
        raise NotImplementedError

    async def carry_out(self, steps: Steps[T]) -> T:
        """Run steps in their transaction."""
        raise NotImplementedError

    def _checking(self) -> Steps[int]:
        return checking(self.database.wanted_shards, self.database.file)


class JoinedSqlite(Joined):
    """A `sqlite3.Connection`. It cannot be remembered, so each use looks at the tables: a few microseconds."""

    async def _attend(self) -> Detach:
        """A trace is the only way to hear of its statements: one of theirs is not called from now on."""

        def told(sql: str) -> None:
            self.savepoints.see(self._theirs.in_transaction)
            self.savepoints.hear(sql)

        self.savepoints.see(self._theirs.in_transaction)
        self._theirs.set_trace_callback(told)
        return lambda: self._theirs.set_trace_callback(None)

    async def checked(self) -> int:
        refuse_autocommit(self._theirs)
        shards = await self.carry_out(self._checking())
        self.database.checked(shards)
        return shards

    async def carry_out(self, steps: Steps[T]) -> T:
        with _translating():
            return carry_out(steps, self._run)

    def _run(self, sql: str, parameters: Parameters) -> Rows:
        cursor = self._theirs.cursor()
        cursor.row_factory = None
        rows = Rows(cursor.execute(sql, parameters).fetchall())
        rows.rowcount = cursor.rowcount
        return rows


class JoinedAiosqlite(Joined):
    """An `aiosqlite.Connection`: every statement is a trip to its thread."""

    needs_loop = True

    async def _attend(self) -> Detach:
        theirs, execute = self._theirs, self._theirs._execute

        async def listening(function: Any, *arguments: Any, **options: Any) -> Any:
            sql = arguments[0] if arguments and isinstance(arguments[0], str) else getattr(function, "__name__", "")
            try:
                found = await execute(function, *arguments, **options)
            except BaseException:
                self.savepoints.hear_failed(sql)
                raise
            finally:
                self.savepoints.see(theirs.in_transaction)
            self.savepoints.hear(sql)
            return found

        self.savepoints.see(theirs.in_transaction)
        theirs._execute = listening

        def end() -> None:
            del theirs._execute

        return end

    async def checked(self) -> int:
        refuse_autocommit(self._theirs)
        shards = _seen.get(self._theirs)
        if shards is None:
            shards = _seen[self._theirs] = await self.carry_out(self._checking())
            self.database.checked(shards)
        return shards

    async def carry_out(self, steps: Steps[T]) -> T:
        with _translating():
            try:
                sql, parameters = next(steps)
                while True:
                    sql, parameters = steps.send(await self._run(sql, parameters))
            except StopIteration as done:
                result: T = done.value
                return result

    async def _run(self, sql: str, parameters: Parameters) -> Rows:
        async with self._theirs.execute(sql, parameters) as cursor:
            rows = Rows(tuple(row) for row in await cursor.fetchall())
            rows.rowcount = cursor.rowcount
            return rows


class JoinedSqlalchemy(Joined):
    """A SQLAlchemy `Session` or `Connection`."""

    async def _attend(self) -> Detach:
        with _translating():
            return attend_sqlalchemy(self._theirs, self.savepoints)

    async def checked(self) -> int:
        with _translating():
            return self._checked(self._sync_connection(self._theirs))

    async def carry_out(self, steps: Steps[T]) -> T:
        with _translating():
            return carry_out(steps, _runner(self._sync_connection(self._theirs)))

    def _checked(self, connection: Any) -> int:
        """Looked at once per connection of the pool; whether it is in a transaction, each time."""
        if connection.dialect.name != "sqlite":
            raise ConfigurationError(
                f"the session talks to {connection.dialect.name}, the store is SQLite: events and rows must share a database"
            )
        refuse_autocommit(connection.connection.driver_connection)
        shards = connection.info.get("posthouse_shards")
        if shards is None:
            shards = connection.info["posthouse_shards"] = carry_out(self._checking(), _runner(connection))
            self.database.checked(shards)
        return int(shards)

    @staticmethod
    def _sync_connection(theirs: Any) -> Any:
        """A session lends its connection; a connection is one. Both begin as SQLAlchemy does."""
        return theirs.connection() if hasattr(theirs, "get_bind") else theirs


class JoinedAsyncSqlalchemy(JoinedSqlalchemy):
    """A SQLAlchemy `AsyncSession` or `AsyncConnection`."""

    needs_loop = True

    async def _attend(self) -> Detach:
        with _translating():
            end: Detach = await self._theirs.run_sync(lambda sync: attend_sqlalchemy(sync, self.savepoints))
            return end

    async def checked(self) -> int:
        with _translating():
            shards: int = await self._theirs.run_sync(lambda sync: self._checked(self._sync_connection(sync)))
            return shards

    async def carry_out(self, steps: Steps[T]) -> T:
        with _translating():
            result: T = await self._theirs.run_sync(lambda sync: carry_out(steps, _runner(self._sync_connection(sync))))
            return result


def joined(database: Database, theirs: object) -> Joined:
    """The join that fits their object."""
    if isinstance(theirs, sqlite3.Connection):
        return JoinedSqlite(database, theirs)
    if _comes_from(theirs, "aiosqlite"):
        return JoinedAiosqlite(database, theirs)
    if _comes_from(theirs, "sqlalchemy"):
        theirs = theirs.registry() if hasattr(theirs, "registry") else theirs  # a scoped session
        if hasattr(theirs, "run_sync"):
            return JoinedAsyncSqlalchemy(database, theirs)
        if hasattr(theirs, "exec_driver_sql") or hasattr(theirs, "get_bind"):
            return JoinedSqlalchemy(database, theirs)
    raise ConfigurationError(f"cannot join a {_name(type(theirs))}: supported are {SUPPORTED}")


def owner_of(theirs: object) -> SqliteTransaction | None:
    """The store's own transaction, when that is what theirs turns out to be."""
    if isinstance(theirs, SqliteTransaction):
        return theirs
    if isinstance(theirs, BorrowedConnection):
        return theirs.transaction if isinstance(theirs.transaction, SqliteTransaction) else None
    return None


def refuse_autocommit(connection: Any) -> None:
    """Where every statement commits by itself, event and business row would not commit together."""
    if connection.in_transaction:
        return
    automatic = getattr(connection, "autocommit", -1)  # since Python 3.12; -1 is the older way
    if automatic is True or (automatic == -1 and connection.isolation_level is None):
        raise ConfigurationError(
            "no transaction is open and the connection is in autocommit mode, so the event would not commit together with "
            "your rows: run BEGIN IMMEDIATE first"
        )


def _only(sql: str, parameters: Any) -> Steps[Rows]:
    return (yield sql, parameters)


def _runner(connection: Any) -> Run:
    def run(sql: str, parameters: Sequence[object]) -> Rows:
        result = connection.exec_driver_sql(sql, parameters if isinstance(parameters, dict) else tuple(parameters))
        rows = Rows(tuple(row) for row in result.fetchall()) if result.returns_rows else Rows()
        rows.rowcount = result.rowcount
        return rows

    return run


class _translating:
    """Turn the driver's errors, also those that SQLAlchemy wraps, into ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, PosthouseError):
            return
        original = getattr(error, "orig", None) or error
        if isinstance(original, sqlite3.Error):
            raise _ours(original) from error


def _ours(error: sqlite3.Error) -> PosthouseError:
    ours = translated(error, "adding to the joined transaction")
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return StoreUnavailable(
            f"{ours}: somebody committed after this transaction first read; begin it with BEGIN IMMEDIATE, or run it again"
        )
    return ours


def _comes_from(theirs: object, package: str) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(theirs).__mro__)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
