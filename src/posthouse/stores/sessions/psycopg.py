"""psycopg 3. A handler gets a connection of the store's own, or a synchronous session of SQLAlchemy on it."""

from __future__ import annotations

import contextlib
import enum
import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from posthouse.errors import StoreError, TransactionClosed
from posthouse.local.postgres.connection import RESET_ROLE
from posthouse.store import Parameters, Rows
from posthouse.store.placeholders import PYFORMAT, bound
from posthouse.store.savepoints import Detach, Savepoints
from posthouse.stores.sessions import Kind, Session, autocommit, comes_from, module_of, put_before
from posthouse.stores.sessions.handler import Handlers, Host
from posthouse.stores.sessions.libpq import by_name, named
from posthouse.stores.sessions.refusing import ENDED_INSIDE, PASSED_OVER, refuse, refuse_ending
from posthouse.stores.sessions.threaded import SocketHandle, ThreadedHandlers

# What a handler may have left behind in the session.
RESET = f"{RESET_ROLE}; SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL"


def join(theirs: Any) -> Session | None:
    """A `psycopg.Connection` or `psycopg.AsyncConnection`."""
    if isinstance(theirs, psycopg.AsyncConnection):
        return AsyncPsycopgSession(theirs)
    return PsycopgSession(theirs) if isinstance(theirs, psycopg.Connection) else None


def handlers(host: Host) -> Handlers:
    """Connections for handlers, each in a thread."""
    return ThreadedHandlers(lambda: PsycopgHandler(host), host.end_session)


class PsycopgSession(Session):
    """It begins by itself unless it is told to commit by itself."""

    async def attend(self, savepoints: Savepoints) -> Detach:
        """Its nested transactions send commands of their own; what goes through cursors, also those that were opened before,
        is waited for on the connection."""
        connection = self.theirs
        send, wait = connection._exec_command, connection.wait

        def sending(command: Any, *arguments: Any, **options: Any) -> Any:
            with _hearing(savepoints, _text(command, connection)):
                return (yield from send(command, *arguments, **options))

        def waiting(work: Any, *arguments: Any, **options: Any) -> Any:
            with _hearing(savepoints, _asked(work, connection)):
                return wait(work, *arguments, **options)

        async def waiting_async(work: Any, *arguments: Any, **options: Any) -> Any:
            with _hearing(savepoints, _asked(work, connection)):
                return await wait(work, *arguments, **options)

        asynchronous = inspect.iscoroutinefunction(wait)
        return put_before(connection, _exec_command=sending, wait=waiting_async if asynchronous else waiting)

    async def refuse_autocommit(self, kind: Kind) -> None:
        if self.theirs.autocommit and self.theirs.info.transaction_status == TransactionStatus.IDLE:
            raise autocommit("open `with connection.transaction():` first")

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return await self.run(by_name(sql), named(parameters))

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        return _ran(self.theirs, sql, parameters)


class AsyncPsycopgSession(PsycopgSession):
    """The same for its asynchronous connection."""

    needs_loop = True

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        sql, parameters = bound(sql, parameters, PYFORMAT)
        async with self.theirs.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(sql, parameters or None)
            return _rows(await cursor.fetchall() if cursor.description else (), cursor)


def _ran(connection: Any, sql: str, parameters: Parameters) -> Rows:
    sql, parameters = bound(sql, parameters, PYFORMAT)
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(sql, parameters or None)
        return _rows(cursor.fetchall() if cursor.description else (), cursor)


def _rows(found: Sequence[tuple[object, ...]], cursor: Any) -> Rows:
    rows = Rows(found)
    if (cursor.statusmessage or "").partition(" ")[0] in ("INSERT", "UPDATE", "DELETE", "MERGE"):
        rows.rowcount = cursor.rowcount
    return rows


@contextlib.contextmanager
def _hearing(savepoints: Savepoints, sql: object) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        savepoints.hear_failed(sql, error)
        raise
    savepoints.hear(sql)


def _asked(work: Any, connection: Any) -> object:
    """The statement of a cursor's work that has not begun: what it was called with."""
    frame = getattr(work, "gi_frame", None)
    given = {} if frame is None else frame.f_locals
    return _text(given.get("query", given.get("statement", "")), connection)


def _text(query: Any, connection: Any) -> Any:
    return query.as_string(connection) if hasattr(query, "as_string") else query


# For handlers.


class Holder(enum.Enum):
    """Who has the connection now: a handler as it is, SQLAlchemy for a handler, or SQLAlchemy for its own housekeeping."""

    HANDLER = enum.auto()
    SESSION = enum.auto()
    HOUSEKEEPING = enum.auto()


class LentCursor(psycopg.Cursor[Any]):
    """Refuses to end the transaction."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        refuse_ending(query)
        return super().execute(query, params, **options)

    def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
        refuse_ending(query)
        super().executemany(query, params_seq, **options)

    def stream(self, query: Any, params: Any = None, **options: Any) -> Any:
        refuse_ending(query)
        return super().stream(query, params, **options)

    def copy(self, statement: Any, params: Any = None, **options: Any) -> Any:
        refuse_ending(statement)
        return super().copy(statement, params, **options)


class LentConnection(psycopg.Connection[Any]):
    """Only `end` ends its transaction. SQLAlchemy calls commit, rollback and close for its own housekeeping, where they
    mean nothing. A rollback of a session at work is one, of everything: SQLAlchemy does it by itself when a flush fails,
    and refusing it would hide why. The transaction's block reports it."""

    sqlalchemy_url = "postgresql+psycopg://"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = LentCursor
        self.holder = Holder.HANDLER
        self.rolled_back = False

    def commit(self) -> None:
        if self.holder is not Holder.HOUSEKEEPING:
            refuse("commit()")

    def rollback(self) -> None:
        if self.holder is Holder.HANDLER:
            refuse("rollback()")
        if self.holder is Holder.SESSION:
            self.rolled_back = True
            super().rollback()

    def close(self) -> None:
        if self.holder is Holder.HANDLER:
            refuse("close()")

    def add_notice_handler(self, callback: Any) -> None:
        if callback not in self._notice_handlers:  # SQLAlchemy adds the same one each time
            super().add_notice_handler(callback)

    def end(self, *, commit: bool) -> None:
        """For whoever began the transaction."""
        self.holder, self.rolled_back = Holder.HANDLER, False
        super().commit() if commit else super().rollback()

    def hang_up(self) -> None:
        """Close it for good."""
        super().close()

    def housekeeping(self) -> AbstractContextManager[None]:
        """While SQLAlchemy does something of its own."""
        return self._held_by(Holder.HOUSEKEEPING)

    def working(self) -> AbstractContextManager[None]:
        """While the handler works through SQLAlchemy."""
        return self._held_by(Holder.SESSION)

    @contextlib.contextmanager
    def _held_by(self, holder: Holder) -> Iterator[None]:
        before, self.holder = self.holder, holder
        try:
            yield
        finally:
            self.holder = before


class PsycopgHandler:
    """One connection of the store's own, made when it is first used and again when it was lost."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._connection: LentConnection | None = None
        self._socket: SocketHandle | None = None
        self._used = False

    @property
    def connection(self) -> LentConnection:
        if self._connection is None:
            raise TransactionClosed("the transaction has not begun")
        return self._connection

    @property
    def lost(self) -> bool:
        return self._connection is None or self._connection.closed

    @property
    def process(self) -> int | None:
        if self._connection is None or self._connection.closed or self._host.pooled:
            return None
        return self._connection.info.backend_pid

    def begin(self) -> None:
        if self._connection is not None and (self._connection.closed or self._socket is None or self._socket.stale):
            self.close()
        if self._connection is None:
            self._connection = self._connect()
            self._socket = SocketHandle(self._connection.fileno())
        self._used = False

    def _connect(self) -> LentConnection:
        options: dict[str, object] = {
            "connect_timeout": max(2, int(self._host.patience)),
            "application_name": self._host.client_name,
        }
        if "target_session_attrs" not in self._host.url:
            options["target_session_attrs"] = "read-write"
        connection = LentConnection.connect(
            self._host.url,
            prepare_threshold=None if self._host.pooled else 5,
            **options,  # type: ignore[arg-type]  # libpq's own, by name
        )
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return self.run(by_name(sql), named(parameters))

    def run(self, sql: str, parameters: Parameters) -> Rows:
        self._used = True
        return _ran(self.connection, sql, parameters)

    def view(self, wanted: type) -> AbstractContextManager[object]:
        self._used = True
        if comes_from(wanted, "sqlalchemy"):
            view: AbstractContextManager[object] = module_of("sqlalchemy").session_on(self.connection, wanted)
            return view
        return self._bare()

    @contextlib.contextmanager
    def _bare(self) -> Iterator[LentConnection]:
        connection = self.connection
        before = connection.row_factory
        try:
            yield connection
        finally:
            connection.row_factory = before

    def commit(self) -> None:
        connection = self.connection
        status = connection.info.transaction_status
        if connection.rolled_back or (self._used and status == TransactionStatus.IDLE):
            connection.end(commit=False)
            raise TransactionClosed(ENDED_INSIDE)
        if status == TransactionStatus.INERROR:
            connection.end(commit=False)
            raise StoreError(PASSED_OVER)
        connection.end(commit=True)

    def roll_back(self) -> None:
        self.connection.end(commit=False)

    def clean(self) -> None:
        if not self._host.pooled:
            connection = self.connection
            connection.execute(RESET, prepare=False)
            connection.end(commit=True)

    def cut(self) -> None:
        if self._socket is not None:
            self._socket.shut_down()

    def close(self) -> None:
        connection, held = self._connection, self._socket
        self._connection = self._socket = None
        if held is not None:
            held.close()
        if connection is not None:
            connection.hang_up()
