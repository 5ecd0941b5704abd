"""SQLAlchemy, and what is built on it, such as SQLModel, on any driver. A handler gets a session or connection: a synchronous one
on the store's connection, an asynchronous one on an engine of the store's own."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, AsyncTransaction, create_async_engine
from sqlalchemy.orm import Session as OrmSession
from sqlalchemy.pool import NullPool

from posthouse.errors import StoreError, TransactionClosed
from posthouse.store import Parameters, Rows, Submit
from posthouse.store.placeholders import DOLLAR, STYLES, bound
from posthouse.store.savepoints import Detach, Savepoints, Step
from posthouse.stores.sessions import Kind, Session, autocommit, elsewhere
from posthouse.stores.sessions.handler import Handlers, HandlerSession, Host
from posthouse.stores.sessions.libpq import PARAMETER, named
from posthouse.stores.sessions.refusing import ENDED_INSIDE, PASSED_OVER, refuse, refuse_ending
from posthouse.stores.sessions.sqlite3 import refuse_autocommit

T = TypeVar("T")
Listeners = list[tuple[Any, str, Callable[..., None]]]

LENT = "posthouse_lent"


def join(theirs: Any) -> Session | None:
    """A `Session`, `Connection`, `AsyncSession` or `AsyncConnection`."""
    theirs = theirs.registry() if hasattr(theirs, "registry") else theirs  # a scoped session
    if hasattr(theirs, "run_sync"):
        return AsyncSqlalchemySession(theirs)
    if hasattr(theirs, "exec_driver_sql") or hasattr(theirs, "get_bind"):
        return SqlalchemySession(theirs)
    return None


class SqlalchemySession(Session):
    """It begins by itself unless its isolation level is AUTOCOMMIT."""

    async def _do(self, work: Callable[..., T], *arguments: object) -> T:
        return work(self.theirs, *arguments)

    async def attend(self, savepoints: Savepoints) -> Detach:
        return await self._do(_attend, savepoints)

    async def refuse_autocommit(self, kind: Kind) -> None:
        await self._do(_refuse_autocommit, kind)

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        return await self._do(_run, sql, parameters)

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return await self._do(_ours, sql, parameters)

    async def memory(self) -> MutableMapping[str, object]:
        return await self._do(_info)


class AsyncSqlalchemySession(SqlalchemySession):
    """A synchronous one inside, which runs where it may wait."""

    needs_loop = True

    async def _do(self, work: Callable[..., T], *arguments: object) -> T:
        result: T = await self.theirs.run_sync(work, *arguments)
        return result


def _connection(theirs: Any) -> Any:
    """A session lends its connection; a connection is one. Both begin as SQLAlchemy does."""
    return theirs.connection() if hasattr(theirs, "get_bind") else theirs


def _info(theirs: Any) -> MutableMapping[str, object]:
    """It lives as long as the connection in the pool."""
    info: MutableMapping[str, object] = _connection(theirs).info
    return info


def _refuse_autocommit(theirs: Any, kind: Kind) -> None:
    connection = _connection(theirs)
    if connection.dialect.name != kind.lower():
        raise elsewhere("the session", connection.dialect.name, kind)
    if kind == "SQLite":
        refuse_autocommit(connection.connection.driver_connection)
    elif getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise autocommit("use an engine or a connection whose isolation level is not AUTOCOMMIT")


def _run(theirs: Any, sql: str, parameters: Parameters) -> Rows:
    connection = _connection(theirs)
    sql, parameters = bound(sql, parameters, STYLES[connection.dialect.paramstyle])
    given: Any = dict(parameters) if isinstance(parameters, Mapping) else tuple(parameters)
    return _rows(connection.exec_driver_sql(sql, given))


def _ours(theirs: Any, sql: str, parameters: Sequence[object]) -> Rows:
    connection = _connection(theirs)
    if connection.dialect.name == "sqlite":
        return _rows(connection.exec_driver_sql(sql, tuple(parameters)))
    return _rows(connection.execute(text(PARAMETER.sub(r":p\1", sql)), named(parameters)))


def _rows(result: Any) -> Rows:
    rows = Rows(tuple(row) for row in result.fetchall()) if result.returns_rows else Rows()
    rows.rowcount = result.rowcount
    return rows


def _attend(theirs: Any, savepoints: Savepoints) -> Detach:
    """A session's nested transaction sets its savepoint with its first statement only, so that it is heard of by itself;
    whoever it is, its statements are."""
    listening = _of_connection(_connection(theirs), savepoints)
    if hasattr(theirs, "get_bind"):
        listening = _of_session(theirs, savepoints) + listening
    for target, name, function in listening:
        event.listen(target, name, function)

    def end() -> None:
        for target, name, function in listening:
            event.remove(target, name, function)

    return end


def _of_connection(connection: Any, savepoints: Savepoints) -> Listeners:
    def see() -> None:
        if connection.dialect.name == "sqlite":
            savepoints.see(connection.connection.driver_connection.in_transaction)

    committing = False
    """Whether a commit is tried, for all that is known: we are told before, and of an error."""

    def begun(_: Any) -> None:
        nonlocal committing
        committing = False

    def ran(_: Any, cursor: Any, statement: str, *rest: Any) -> None:
        begun(_)
        see()
        savepoints.hear(statement)

    def failed(context: Any) -> None:
        if context.connection is connection:
            see()
            if committing and context.statement is None:
                savepoints.hear_of_no_commit()
            savepoints.hear_failed(context.statement or "", context.original_exception)

    def rolled_back(_: Any) -> None:
        begun(_)
        savepoints.hear_of_end()

    def committed(_: Any) -> None:
        nonlocal committing
        committing = True
        savepoints.hear_of_end(committed=True)

    see()
    return [
        (connection, "after_cursor_execute", ran),
        (connection, "begin", begun),
        (connection, "rollback", rolled_back),
        (connection, "commit", committed),
        (connection.engine, "handle_error", failed),
    ]


def _of_session(session: Any, savepoints: Savepoints) -> Listeners:
    """What ends without a commit was rolled back."""
    open_ones: set[str] = set()

    def begun(_: Any, nested: Any) -> None:
        if nested.nested:
            open_ones.add(_name(nested))
            savepoints.take(Step("set", _name(nested)))

    def committed(session: Any) -> None:
        nested = session.get_nested_transaction()
        if nested is not None and not nested.is_active:
            open_ones.discard(_name(nested))
            savepoints.take(Step("release", _name(nested)))

    def ended(_: Any, nested: Any) -> None:
        if _name(nested) in open_ones:
            open_ones.discard(_name(nested))
            savepoints.take(Step("roll back", _name(nested)))
            savepoints.take(Step("release", _name(nested)))

    events = (("after_transaction_create", begun), ("after_commit", committed), ("after_transaction_end", ended))
    return [(session, name, function) for name, function in events]


def _name(nested: Any) -> str:
    return f"session {id(nested)}"


# For handlers that want a synchronous one, on a connection that the store lends.


class Lent(Protocol):
    """A connection of a driver, lent to SQLAlchemy, which begins, commits and closes as it likes around the handler."""

    sqlalchemy_url: str
    """Of the dialect."""

    def housekeeping(self) -> AbstractContextManager[None]:
        """While SQLAlchemy does something of its own: what it ends then is not ended."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """While the handler works: a commit is refused, and a rollback rolls all back."""
        ...


_handing_over: ContextVar[Lent] = ContextVar("posthouse_handing_over")


@contextlib.contextmanager
def session_on(lent: Lent, wanted: type) -> Iterator[OrmSession | Connection]:
    """A `wanted` on the connection. Inside, a commit of the session only flushes, and a rollback rolls all back."""
    with lent.housekeeping(), _connected(lent) as connection, connection.begin():
        if not issubclass(wanted, OrmSession):
            with lent.working():
                yield connection
            return
        with wanted(bind=connection, join_transaction_mode="rollback_only") as session:
            with lent.working():
                yield session
                session.flush()
            session.commit()


def _connected(lent: Lent) -> Connection:
    token = _handing_over.set(lent)
    try:
        return _engine(lent.sqlalchemy_url).connect()
    finally:
        _handing_over.reset(token)


@functools.cache
def _engine(url: str) -> Engine:
    """An engine that owns no connection: it takes the one that is handed over."""
    options: dict[str, Any] = (
        {} if url.startswith("sqlite") else {"use_native_hstore": False}
    )  # it would look each time
    return create_engine(url, creator=_handing_over.get, poolclass=NullPool, pool_reset_on_return=None, **options)


# For handlers that want an asynchronous one.


def handlers(host: Host) -> Handlers:
    """Connections for handlers, of an engine of the store's own."""
    return EngineHandlers(host)


class EngineHandlers:
    """An engine with room for all transactions of the store."""

    def __init__(self, host: Host) -> None:
        self._host = host
        options: dict[str, Any] = {}
        if host.pooled:
            options["connect_args"] = {"prepared_statement_cache_size": 0, "prepared_statement_name_func": _unique}
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=host.connect,
            pool_size=host.writers,
            max_overflow=0,
            pool_timeout=host.patience,
            isolation_level="READ COMMITTED",
            **options,
        )
        event.listen(self._engine.sync_engine, "commit", _refuse_commit)
        event.listen(self._engine.sync_engine, "before_cursor_execute", _refuse_ending)

    def session(self) -> HandlerSession:
        return EngineSession(self._host, self._engine)

    async def aclose(self) -> None:
        await self._engine.dispose()


def _unique() -> str:
    """Behind a pooler the names of one connection meet those of others."""
    return f"__posthouse_{uuid.uuid4().hex}__"


def _refuse_commit(connection: Any) -> None:
    if connection.info.get(LENT):
        refuse("commit()")


def _refuse_ending(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
    if connection.info.get(LENT):
        refuse_ending(statement)


class EngineSession:
    """One connection of the engine, for one transaction."""

    submit: Submit | None = None

    def __init__(self, host: Host, engine: AsyncEngine) -> None:
        self._host = host
        self._connection = engine.connect()
        self._raw: Any = None
        """The store's own kind of connection, below SQLAlchemy's."""
        self._transaction: AsyncTransaction | None = None
        self._sessions: list[AsyncSession] = []
        self._used = False

    @property
    def connection(self) -> AsyncConnection:
        return self._connection

    @property
    def lost(self) -> bool:
        return self._raw is None or bool(self._raw.is_closed())

    async def begin(self) -> None:
        await self._connection.start()
        self._raw = await self._driver()
        while self._raw.is_closed():  # the server ended it while nobody used it
            await self._connection.invalidate()
            self._raw = await self._driver()
        self._transaction = await self._connection.begin()
        self._lend(True)

    async def _driver(self) -> Any:
        return (await self._connection.get_raw_connection()).driver_connection

    def _lend(self, lent: bool) -> None:
        self._connection.sync_connection.info[LENT] = lent  # type: ignore[union-attr]  # it was started before

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return await self.run(sql, parameters)

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        self._used = True
        sql, parameters = bound(sql, parameters, DOLLAR)
        given: Any = tuple(parameters) or None
        return _rows(await self._connection.exec_driver_sql(sql, given))

    @contextlib.contextmanager
    def view(self, wanted: type) -> Iterator[object]:
        self._used = True
        if not issubclass(wanted, AsyncSession):
            yield self._connection
            return
        session = wanted(bind=self._connection, join_transaction_mode="rollback_only")
        self._sessions.append(session)
        yield session

    async def commit(self) -> None:
        raw, transaction = self._raw, self._transaction
        assert transaction is not None
        if transaction.is_active:
            for session in self._sessions:
                await session.commit()  # flushes; the transaction is ours
        ended = self._used and not raw.is_closed() and not raw.is_in_transaction()
        if ended or not transaction.is_active:
            raise TransactionClosed(ENDED_INSIDE)
        raw.status = ""
        self._lend(False)
        await transaction.commit()
        if raw.status == "ROLLBACK":
            raise StoreError(PASSED_OVER)

    async def roll_back(self) -> None:
        for session in self._sessions:
            await session.close()
        if self._connection.in_transaction():
            await self._connection.rollback()

    async def give_back(self) -> None:
        for session in self._sessions:
            await session.close()
        if self._raw is not None and not self._host.pooled:
            self._raw.mark_unclean()
            await self._raw.reset()
        await self._connection.close()

    async def cut(self) -> None:
        raw = self._raw
        if raw is not None and not raw.is_closed():
            process = raw.get_server_pid()
            raw.terminate()
            if not self._host.pooled:
                self._host.end_session(process)
        with contextlib.suppress(Exception):  # it is gone, and SQLAlchemy says so
            await self._connection.invalidate()
        with contextlib.suppress(Exception):
            await self._connection.close()
