"""Borrowed: the store's connection in the hands of a handler, who may use it but not end its transaction."""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import time
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

from posthouse.errors import StoreError
from posthouse.store.savepoints import Savepoints
from posthouse.store.wording import statements_in

ENDS_TRANSACTION = re.compile(r"(BEGIN|COMMIT|END|ROLLBACK(?!\s+(TRANSACTION\s+)?TO\b))\b", re.IGNORECASE)
SCRIPT = "executescript(), which commits first,"


@functools.lru_cache(maxsize=256)
def refuse_ending(sql: str) -> None:
    """Statements that begin or end a transaction belong to whoever began this one; savepoints are free."""
    first = next(statements_in(sql, nested=False), "")  # the driver runs no second one
    if found := ENDS_TRANSACTION.match(first):
        _refuse(found[0].upper())


def _refuse(what: str) -> NoReturn:
    raise StoreError(
        f"{what} is not yours to call: the transaction commits when its block ends and rolls back when an exception leaves it"
    )


class Lender(Protocol):
    """The transaction whose connection it is."""

    @property
    def savepoints(self) -> Savepoints:
        """Where savepoints are told of."""
        ...

    def ready(self) -> sqlite3.Connection:
        """The open connection; TransactionClosed when there is none any more."""
        ...


class _Listening:
    """A cursor that tells of savepoints. One that fails has changed nothing; but some errors, of a trigger or of `OR
    ROLLBACK`, end the transaction, and what came after one would commit by itself: each statement asks whether it stands."""

    transaction: Lender
    borrowed: BorrowedConnection

    @property
    def connection(self) -> BorrowedConnection:
        return self.borrowed  # the store's own could be committed

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        refuse_ending(sql)
        self.transaction.ready()
        found = super().execute(sql, parameters)  # type: ignore[misc]
        self.transaction.savepoints.hear(sql)
        return found

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        self.transaction.ready()
        return super().executemany(sql, self._while_it_stands(parameters))  # type: ignore[misc]

    def _while_it_stands(self, parameters: Any) -> Iterator[Any]:
        for each in parameters:
            self.transaction.ready()
            yield each

    def executescript(self, sql_script: str, /) -> NoReturn:
        _refuse(SCRIPT)


@functools.cache
def _listening(factory: Any) -> Any:
    return type(factory.__name__, (_Listening, factory), {})


class BorrowedConnection(sqlite3.Connection):
    """A stand-in that is good until its transaction ends. It is never opened: what it does not pass on is refused."""

    def __init__(self, transaction: Lender) -> None:  # the base is left unopened on purpose
        self.transaction = transaction
        self._lend = transaction.ready
        self._row_factory: Any = None
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        cursor = self._lend().cursor(_listening(factory))
        cursor.transaction, cursor.borrowed = self.transaction, self
        cursor.row_factory = self._row_factory
        self._cursors.add(cursor)
        return cursor

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self.cursor().execute(sql, parameters)
        return cursor

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self.cursor().executemany(sql, parameters)
        return cursor

    def executescript(self, sql_script: str, /) -> NoReturn:
        _refuse(SCRIPT)

    def commit(self) -> None:
        _refuse("commit()")

    def rollback(self) -> None:
        _refuse("rollback()")

    def close(self) -> None:
        _refuse("close()")

    def __enter__(self) -> NoReturn:
        _refuse("`with connection`, which commits,")

    def create_function(self, *arguments: Any, **options: Any) -> None:
        self._lend().create_function(*arguments, **options)

    @property
    def row_factory(self) -> Any:
        return self._row_factory

    @row_factory.setter
    def row_factory(self, factory: Any) -> None:
        self._row_factory = factory

    @property
    def in_transaction(self) -> bool:
        return self._lend().in_transaction

    @property
    def isolation_level(self) -> None:
        return None

    @isolation_level.setter
    def isolation_level(self, level: object) -> None:
        _refuse("isolation_level")

    @property
    def total_changes(self) -> int:
        return self._lend().total_changes

    def give_back(self, patience: float = 0.1) -> None:
        """Close every cursor, so that none of them keeps the transaction open or writes after it. One that is busy in
        another thread was interrupted and gets `patience` seconds to return."""
        deadline = time.monotonic() + patience
        for cursor in list(self._cursors):
            while True:
                try:
                    cursor.close()
                    break
                except sqlite3.Error:
                    if time.monotonic() > deadline:
                        return
                    time.sleep(0.0005)


class SessionConnection(BorrowedConnection):
    """A borrowed connection for SQLAlchemy, which calls commit, rollback and close for its own housekeeping: these mean
    something only while the handler is at work. A rollback then is one, of everything: SQLAlchemy does it by itself when
    a flush fails, and refusing it would hide why. The transaction's block reports it."""

    at_work = False

    def commit(self) -> None:
        if self.at_work:
            super().commit()

    def rollback(self) -> None:
        if self.at_work:
            self.give_back()
            self._lend().execute("ROLLBACK")

    def close(self) -> None:
        if self.at_work:
            super().close()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """While the handler runs."""
        self.at_work = True
        try:
            yield
        finally:
            self.at_work = False
