"""A line on SQLAlchemy's asyncio engine: for handlers that want an AsyncSession or an AsyncConnection."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, cast

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, AsyncTransaction, create_async_engine

from posthouse.errors import StoreError, TransactionClosed
from posthouse.local.postgres.connection import ServerConnection
from posthouse.store import Parameters, Rows, Submit
from posthouse.store.placeholders import DOLLAR, bound
from posthouse.stores.postgres.database import Database
from posthouse.stores.postgres.errors import PASSED_OVER
from posthouse.stores.postgres.refusing import refuse, refuse_ending
from posthouse.stores.postgres.shapes.transaction import ENDED_INSIDE

LENT = "posthouse_lent"


def engine_for(database: Database) -> AsyncEngine:
    """An engine of the store's own, with room for all its transactions."""
    settings = database.settings
    options: dict[str, Any] = {}
    if settings.pooled:
        options["connect_args"] = {"prepared_statement_cache_size": 0, "prepared_statement_name_func": _unique}
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=database.connect,
        pool_size=settings.writers,
        max_overflow=0,
        pool_timeout=settings.patience,
        isolation_level="READ COMMITTED",
        **options,
    )
    event.listen(engine.sync_engine, "commit", _refuse_commit)
    event.listen(engine.sync_engine, "before_cursor_execute", _refuse_ending)
    return engine


def _unique() -> str:
    """Behind a pooler the names of one connection meet those of others."""
    return f"__posthouse_{uuid.uuid4().hex}__"


def _refuse_commit(connection: Any) -> None:
    if connection.info.get(LENT):
        refuse("commit()")


def _refuse_ending(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
    if connection.info.get(LENT):
        refuse_ending(statement)


class SqlalchemyLine:
    """One connection of the engine, for one transaction."""

    submit: Submit | None = None

    def __init__(self, database: Database, engine: AsyncEngine) -> None:
        self._database = database
        self._connection = engine.connect()
        self._raw: ServerConnection | None = None
        self._transaction: AsyncTransaction | None = None
        self._sessions: list[AsyncSession] = []
        self._used = False

    @property
    def connection(self) -> AsyncConnection:
        return self._connection

    @property
    def lost(self) -> bool:
        return self._raw is None or self._raw.is_closed()

    async def begin(self) -> None:
        await self._connection.start()
        self._raw = await self._driver()
        while self._raw.is_closed():  # the server ended it while nobody used it
            await self._connection.invalidate()
            self._raw = await self._driver()
        self._transaction = await self._connection.begin()
        self._connection.sync_connection.info[LENT] = True  # type: ignore[union-attr]  # it was started just now

    async def _driver(self) -> ServerConnection:
        return cast("ServerConnection", (await self._connection.get_raw_connection()).driver_connection)

    async def ours(self, sql: str, parameters: Sequence[object]) -> Rows:
        return await self.run(sql, parameters)

    async def run(self, sql: str, parameters: Parameters) -> Rows:
        self._used = True
        sql, parameters = bound(sql, parameters, DOLLAR)
        given: Any = tuple(parameters) or None
        result = await self._connection.exec_driver_sql(sql, given)
        rows = Rows(tuple(row) for row in result.fetchall()) if result.returns_rows else Rows()
        rows.rowcount = result.rowcount
        return rows

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
        assert raw is not None
        assert transaction is not None
        if transaction.is_active:
            for session in self._sessions:
                await session.commit()  # flushes; the transaction is ours
        ended = self._used and not raw.is_closed() and not raw.is_in_transaction()
        if ended or not transaction.is_active:
            raise TransactionClosed(ENDED_INSIDE)
        raw.status = ""
        self._connection.sync_connection.info[LENT] = False  # type: ignore[union-attr]
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
        if self._raw is not None and not self._database.settings.pooled:
            self._raw.mark_unclean()
            await self._raw.reset()
        await self._connection.close()

    async def cut(self) -> None:
        raw = self._raw
        if raw is not None and not raw.is_closed():
            process = raw.get_server_pid()
            raw.terminate()
            if not self._database.settings.pooled:
                self._database.end_session(process)
        with contextlib.suppress(Exception):  # it is gone, and SQLAlchemy says so
            await self._connection.invalidate()
        with contextlib.suppress(Exception):
            await self._connection.close()
