"""Joins: the user's own open transaction, of any library that PostgreSQL users have. Nothing here begins or commits.

Optional libraries are told by the module of the object's class, so that only those are imported that are in use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import asyncpg

from posthouse.errors import ConfigurationError, PosthouseError
from posthouse.store import Parameters, Rows
from posthouse.stores.postgres.database import Database, carried_out
from posthouse.stores.postgres.errors import FOREIGN, outdated, sqlstate_of, translated
from posthouse.stores.postgres.schema import Place, checking
from posthouse.stores.postgres.steps import Steps, rows_of

T = TypeVar("T")

SUPPORTED = (
    "asyncpg.Connection, psycopg's Connection and AsyncConnection, and SQLAlchemy's Session, AsyncSession, Connection and "
    "AsyncConnection"
)
PARAMETER = re.compile(r"\$(\d+)")


class Joined:
    """A transaction that somebody else began and will end. The synchronous ones also work without an event loop."""

    def __init__(self, database: Database, theirs: Any) -> None:
        self.database = database
        self._theirs = theirs

    @property
    def connection(self) -> object:
        return self._theirs

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        with translating(ours=False):
            return self._run_now(sql, parameters)

    async def checked(self) -> Place:
        """The store's place, after making sure that theirs is in a transaction. The append makes sure of the rest."""
        return self.checked_now()

    async def carry_out(self, steps: Steps[T]) -> T:
        """Run steps in their transaction."""
        return self.carry_out_now(steps)

    def checked_now(self) -> Place:
        """`checked`, without an event loop."""
        self._refuse_autocommit()
        if self.database.place is None:
            self.database.place = self.carry_out_now(self._checking())
        return self.database.place

    def carry_out_now(self, steps: Steps[T]) -> T:
        """`carry_out`, without an event loop."""
        with translating():
            try:
                sql, parameters = next(steps)
                while True:
                    sql, parameters = steps.send(self._ours_now(self.database.text(sql), parameters))
            except StopIteration as done:
                result: T = done.value
                return result

    def _checking(self) -> Steps[Place]:
        return checking(self.database.settings.lanes, self.database.name)

    def _refuse_autocommit(self) -> None:
        raise NotImplementedError

    def _ours_now(self, sql: str, parameters: Sequence[object]) -> Rows:
        """Run one of our statements, whose parameters are `$1`, `$2` …"""
        raise self._asynchronous()

    def _run_now(self, sql: str, parameters: Parameters) -> Rows:
        """Run one of the user's statements, in the driver's own style."""
        raise self._asynchronous()

    def _asynchronous(self) -> ConfigurationError:
        return ConfigurationError(
            f"{type(self._theirs).__name__} needs an event loop: await the asynchronous way to add"
        )


class JoinedAsync(Joined):
    """What the asynchronous ones share."""

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        with translating(ours=False):
            return await self._run(sql, parameters)

    async def checked(self) -> Place:
        self._refuse_autocommit()
        if self.database.place is None:
            self.database.place = await self.carry_out(self._checking())
        return self.database.place

    async def carry_out(self, steps: Steps[T]) -> T:
        with translating():
            return await carried_out(steps, lambda sql, parameters: self._ours(self.database.text(sql), parameters))

    def checked_now(self) -> Place:
        raise self._asynchronous()

    def carry_out_now(self, steps: Steps[T]) -> T:
        raise self._asynchronous()

    async def _ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        raise NotImplementedError

    async def _run(self, sql: str, parameters: Parameters) -> Rows:
        raise NotImplementedError


class JoinedAsyncpg(JoinedAsync):
    """An `asyncpg.Connection`."""

    def _refuse_autocommit(self) -> None:
        if not self._theirs.is_in_transaction():
            raise _autocommit("open `async with connection.transaction():` first")

    async def _ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return rows_of(await self._theirs.fetch(sql, *parameters), "")

    async def _run(self, sql: str, parameters: Parameters) -> Rows:
        return rows_of(await self._theirs.fetch(sql, *parameters), "")


class JoinedPsycopg(Joined):
    """A `psycopg.Connection`."""

    def _refuse_autocommit(self) -> None:
        refuse_psycopg_autocommit(self._theirs)

    def _ours_now(self, sql: str, parameters: Sequence[object]) -> Rows:
        return self._run_now(PARAMETER.sub("%s", sql), parameters)

    def _run_now(self, sql: str, parameters: Parameters) -> Rows:
        from psycopg.rows import tuple_row

        with self._theirs.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(sql, parameters or None)
            return rows_of(cursor.fetchall() if cursor.description else (), cursor.statusmessage or "")


class JoinedAsyncPsycopg(JoinedAsync):
    """A `psycopg.AsyncConnection`."""

    def _refuse_autocommit(self) -> None:
        refuse_psycopg_autocommit(self._theirs)

    async def _ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return await self._run(PARAMETER.sub("%s", sql), parameters)

    async def _run(self, sql: str, parameters: Parameters) -> Rows:
        from psycopg.rows import tuple_row

        async with self._theirs.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(sql, parameters or None)
            return rows_of(await cursor.fetchall() if cursor.description else (), cursor.statusmessage or "")


class JoinedSqlalchemy(Joined):
    """A SQLAlchemy `Session` or `Connection`, on any driver for PostgreSQL."""

    def _refuse_autocommit(self) -> None:
        refuse_sqlalchemy_autocommit(sync_connection(self._theirs))

    def _ours_now(self, sql: str, parameters: Sequence[object]) -> Rows:
        return ours_by_sqlalchemy(self._theirs, sql, parameters)

    def _run_now(self, sql: str, parameters: Parameters) -> Rows:
        return theirs_by_sqlalchemy(self._theirs, sql, parameters)


class JoinedAsyncSqlalchemy(JoinedAsync):
    """A SQLAlchemy `AsyncSession` or `AsyncConnection`."""

    async def checked(self) -> Place:
        with translating():
            await self._theirs.run_sync(lambda sync: refuse_sqlalchemy_autocommit(sync_connection(sync)))
        if self.database.place is None:
            self.database.place = await self.carry_out(self._checking())
        return self.database.place

    async def _ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        rows: Rows = await self._theirs.run_sync(lambda sync: ours_by_sqlalchemy(sync, sql, parameters))
        return rows

    async def _run(self, sql: str, parameters: Parameters) -> Rows:
        rows: Rows = await self._theirs.run_sync(lambda sync: theirs_by_sqlalchemy(sync, sql, parameters))
        return rows


def joined(database: Database, theirs: object) -> Joined:
    """The join that fits their object."""
    if isinstance(theirs, asyncpg.Connection):
        return JoinedAsyncpg(database, theirs)
    if _comes_from(theirs, "psycopg") and hasattr(theirs, "cursor"):
        asynchronous = any(base.__name__ == "AsyncConnection" for base in type(theirs).__mro__)
        return (JoinedAsyncPsycopg if asynchronous else JoinedPsycopg)(database, theirs)
    if _comes_from(theirs, "sqlalchemy"):
        theirs = theirs.registry() if hasattr(theirs, "registry") else theirs  # a scoped session
        if hasattr(theirs, "run_sync"):
            return JoinedAsyncSqlalchemy(database, theirs)
        if hasattr(theirs, "exec_driver_sql") or hasattr(theirs, "get_bind"):
            return JoinedSqlalchemy(database, theirs)
    kind = type(theirs)
    raise ConfigurationError(f"cannot join a {kind.__module__}.{kind.__qualname__}: supported are {SUPPORTED}")


def refuse_psycopg_autocommit(connection: Any) -> None:
    """Psycopg begins by itself unless it is told to commit by itself."""
    from psycopg.pq import TransactionStatus

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise _autocommit("open `with connection.transaction():` first")


def refuse_sqlalchemy_autocommit(connection: Any) -> None:
    """SQLAlchemy begins by itself unless its isolation level is AUTOCOMMIT. Another database is refused too."""
    if connection.dialect.name != "postgresql":
        raise ConfigurationError(
            f"the session talks to {connection.dialect.name}, the store is PostgreSQL: events and rows must share a database"
        )
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise _autocommit("use an engine or a connection whose isolation level is not AUTOCOMMIT")


def sync_connection(theirs: Any) -> Any:
    """A session lends its connection; a connection is one. Both begin as SQLAlchemy does."""
    return theirs.connection() if hasattr(theirs, "get_bind") else theirs


def ours_by_sqlalchemy(theirs: Any, sql: str, parameters: Sequence[object]) -> Rows:
    """Run a statement of ours; SQLAlchemy knows the driver's style."""
    from sqlalchemy import text

    named = {f"p{number}": value for number, value in enumerate(parameters, 1)}
    return _fetched(sync_connection(theirs).execute(text(PARAMETER.sub(r":p\1", sql)), named))


def theirs_by_sqlalchemy(theirs: Any, sql: str, parameters: Parameters) -> Rows:
    """Run a statement of theirs, in the driver's own style."""
    given: Any = parameters if isinstance(parameters, dict) else tuple(parameters)
    return _fetched(sync_connection(theirs).exec_driver_sql(sql, given))


def _fetched(result: Any) -> Rows:
    rows = Rows(tuple(row) for row in result.fetchall()) if result.returns_rows else Rows()
    rows.rowcount = result.rowcount
    return rows


def _autocommit(remedy: str) -> ConfigurationError:
    return ConfigurationError(
        "no transaction is open and the connection commits every statement by itself, so the event would not commit together "
        f"with your rows: {remedy}"
    )


class translating:
    """Turn the drivers' errors, also those that SQLAlchemy wraps, into ours. A statement of `ours` can only lack our own
    tables."""

    def __init__(self, *, ours: bool = True) -> None:
        self._words = outdated if ours else translated

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, PosthouseError):
            return
        original = getattr(error, "orig", None) or error
        if isinstance(original, FOREIGN) or sqlstate_of(original) or _comes_from(original, "psycopg"):
            raise self._words(original, "in the joined transaction") from error


def _comes_from(theirs: object, package: str) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(theirs).__mro__)
