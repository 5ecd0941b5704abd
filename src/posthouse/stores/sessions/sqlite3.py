"""sqlite3. A handler gets the store's own connection, which it may use but whose transaction it may not end, or a session of
SQLAlchemy on it."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import QUESTION, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.sessions import Kind, Session, autocommit
from posthouse.stores.sessions.refusing import refuse, refuse_ending_first

SCRIPT = "executescript(), which commits first,"

_listeners: dict[int, list[Callable[[str], None]]] = {}
"""Who hears of the statements of a connection: it takes one trace callback only."""


def join(theirs: Any) -> Session | None:
    """A `sqlite3.Connection`."""
    return Sqlite3Session(theirs) if isinstance(theirs, sqlite3.Connection) else None


class Sqlite3Session(Session):
    """It cannot be remembered, so each use looks at the tables: a few microseconds."""

    async def attend(self, savepoints: Savepoints) -> Detach:
        """A trace is the only way to hear of its statements: one of theirs is not called from now on."""
        theirs = self.theirs

        def told(sql: str) -> None:
            savepoints.see(theirs.in_transaction)
            savepoints.hear(sql)

        def tell_all(sql: str) -> None:
            for listener in _listeners.get(id(theirs), ()):
                listener(sql)

        savepoints.see(theirs.in_transaction)
        _listeners.setdefault(id(theirs), []).append(told)
        theirs.set_trace_callback(tell_all)

        def end() -> None:
            _listeners[id(theirs)].remove(told)
            if not _listeners[id(theirs)]:
                del _listeners[id(theirs)]
                theirs.set_trace_callback(None)

        return end

    async def refuse_autocommit(self, kind: Kind) -> None:
        refuse_autocommit(self.theirs)

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        sql, parameters = bound(sql, parameters, QUESTION)
        cursor = self.theirs.cursor()
        cursor.row_factory = None
        rows = Rows(cursor.execute(sql, parameters).fetchall())
        rows.rowcount = cursor.rowcount
        return rows


def refuse_autocommit(connection: Any) -> None:
    """Where every statement commits by itself, event and business row would not commit together."""
    if connection.in_transaction:
        return
    automatic = getattr(connection, "autocommit", -1)  # since Python 3.12; -1 is the older way
    if automatic is True or (automatic == -1 and connection.isolation_level is None):
        raise autocommit("run BEGIN IMMEDIATE first")


# For handlers.


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
        refuse_ending_first(sql)
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
        refuse(SCRIPT)


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
        refuse(SCRIPT)

    def commit(self) -> None:
        refuse("commit()")

    def rollback(self) -> None:
        refuse("rollback()")

    def close(self) -> None:
        refuse("close()")

    def __enter__(self) -> NoReturn:
        refuse("`with connection`, which commits,")

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
        refuse("isolation_level")

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

    sqlalchemy_url = "sqlite://"
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

    def housekeeping(self) -> AbstractContextManager[None]:
        """While SQLAlchemy does something of its own."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """While the handler works through SQLAlchemy."""
        self.at_work = True
        try:
            yield
        finally:
            self.at_work = False
