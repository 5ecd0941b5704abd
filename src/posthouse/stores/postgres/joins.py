"""Joins: the user's own open transaction, of any library that PostgreSQL users have. Nothing here begins or commits.

Optional libraries are told by the module of the object's class, so that only those are imported that are in use.
"""

from __future__ import annotations

from typing import Any, TypeVar

import asyncpg

from posthouse.errors import ConfigurationError, PosthouseError
from posthouse.store import Parameters, Rows, Transaction
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.postgres.database import Database, carried_out
from posthouse.stores.postgres.errors import comes_from, is_foreign, original_of, outdated, translated
from posthouse.stores.postgres.schema import Place
from posthouse.stores.postgres.statements import AsyncStatements, Statements
from posthouse.stores.postgres.statements.asyncpg import AsyncpgStatements
from posthouse.stores.postgres.statements.django import DjangoStatements
from posthouse.stores.postgres.statements.psycopg import AsyncPsycopgStatements, PsycopgStatements
from posthouse.stores.postgres.statements.sqlalchemy import AsyncSqlalchemyStatements, SqlalchemyStatements
from posthouse.stores.postgres.steps import Steps
from posthouse.stores.postgres.transaction import BEGUN, Begun

T = TypeVar("T")

SUPPORTED = (
    "asyncpg.Connection, psycopg's Connection and AsyncConnection, SQLAlchemy's Session, AsyncSession, Connection and "
    "AsyncConnection, and Django's connection"
)


class Joined:
    """A transaction that somebody else began and will end, on a synchronous connection or session. It works with and
    without an event loop."""

    submit = None
    needs_loop = False

    def __init__(self, database: Database, statements: Statements) -> None:
        self.database = database
        self.savepoints = Savepoints()
        self._statements = statements

    async def attend(self) -> Detach:
        await self.checked()
        with translating():
            return self._statements.attend(self.savepoints)

    @property
    def connection(self) -> object:
        return self._statements.theirs

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        with translating(ours=False):
            return self._statements.run(sql, parameters)

    async def checked(self) -> Place:
        """The store's place, after making sure that theirs is in a transaction. The append makes sure of the rest."""
        with translating():
            self._statements.refuse_autocommit()
        if self.database.joined is None:
            self.database.joined = await self.carry_out(self.database.joining())
        return self.database.joined

    async def carry_out(self, steps: Steps[T]) -> T:
        """Run steps in their transaction."""
        with translating():
            try:
                sql, parameters = next(steps)
                while True:
                    sql, parameters = steps.send(self._statements.ours(self.database.text(sql), parameters))
            except StopIteration as done:
                result: T = done.value
                return result


class JoinedAsync:
    """The same on an asynchronous one, which needs an event loop."""

    submit = None
    needs_loop = True

    def __init__(self, database: Database, statements: AsyncStatements) -> None:
        self.database = database
        self.savepoints = Savepoints(late=isinstance(statements, AsyncpgStatements))
        self._statements = statements

    async def attend(self) -> Detach:
        await self.checked()
        with translating():
            return await self._statements.attend(self.savepoints)

    @property
    def connection(self) -> object:
        return self._statements.theirs

    async def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        with translating(ours=False):
            return await self._statements.run(sql, parameters)

    async def checked(self) -> Place:
        """As in Joined."""
        with translating():
            await self._statements.refuse_autocommit()
        if self.database.joined is None:
            self.database.joined = await self.carry_out(self.database.joining())
        return self.database.joined

    async def carry_out(self, steps: Steps[T]) -> T:
        """As in Joined."""
        with translating():
            run = self._statements.ours
            return await carried_out(steps, lambda sql, parameters: run(self.database.text(sql), parameters))


def joined(database: Database, theirs: object) -> Joined | JoinedAsync:
    """The join that fits their object."""
    if isinstance(theirs, asyncpg.Connection):
        return JoinedAsync(database, AsyncpgStatements(theirs))
    statements = _statements(theirs)
    if statements is not None:
        return Joined(database, statements)
    asynchronous = _async_statements(theirs)
    if asynchronous is not None:
        return JoinedAsync(database, asynchronous)
    kind = type(theirs)
    raise ConfigurationError(f"cannot join a {kind.__module__}.{kind.__qualname__}: supported are {SUPPORTED}")


async def ours(database: Database, tx: Transaction) -> Begun | Joined | JoinedAsync:
    """Where statements of the store are carried out: in a transaction that the store began, or in theirs, after making sure
    that it is one."""
    if isinstance(tx, BEGUN):
        return tx
    theirs = theirs_of(database, tx)
    await theirs.checked()
    return theirs


def theirs_of(database: Database, tx: Transaction) -> Joined | JoinedAsync:
    """The join of a transaction that the store did not begin; it may be the join itself, or hold what can be joined."""
    return tx if isinstance(tx, Joined | JoinedAsync) else joined(database, tx.connection)


def _statements(theirs: Any) -> Statements | None:
    if comes_from(type(theirs), "psycopg") and hasattr(theirs, "cursor") and not _is_async_psycopg(theirs):
        return PsycopgStatements(theirs)
    if comes_from(type(theirs), "django") and hasattr(theirs, "in_atomic_block"):
        return DjangoStatements(theirs)
    if comes_from(type(theirs), "sqlalchemy"):
        theirs = _current(theirs)
        if not hasattr(theirs, "run_sync") and (hasattr(theirs, "exec_driver_sql") or hasattr(theirs, "get_bind")):
            return SqlalchemyStatements(theirs)
    return None


def _async_statements(theirs: Any) -> AsyncStatements | None:
    if comes_from(type(theirs), "psycopg") and hasattr(theirs, "cursor"):
        return AsyncPsycopgStatements(theirs)
    if comes_from(type(theirs), "sqlalchemy") and hasattr(_current(theirs), "run_sync"):
        return AsyncSqlalchemyStatements(_current(theirs))
    return None


def _current(theirs: Any) -> Any:
    """The session behind a scoped one."""
    return theirs.registry() if hasattr(theirs, "registry") else theirs


def _is_async_psycopg(theirs: object) -> bool:
    return any(base.__name__ == "AsyncConnection" for base in type(theirs).__mro__)


class translating:
    """Turn the drivers' errors, also those that SQLAlchemy and Django wrap, into ours. A statement of `ours` can only
    lack our own tables."""

    def __init__(self, *, ours: bool = True) -> None:
        self._words = outdated if ours else translated

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, PosthouseError):
            return
        original = original_of(error)
        if is_foreign(original):
            raise self._words(original, "in the joined transaction") from error
