"""PostgresLedger: a registry in a PostgreSQL, in a schema of its own. Any number of processes may share it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import asyncpg

from posthouse.errors import PosthouseError, StoreError, StoreFull, StoreUnavailable
from posthouse.governance.registry.ledger import Row, Session, Value
from posthouse.governance.registry.ledgers.layout import check_layout
from posthouse.governance.registry.tables import FIRST_ROW, FORMAT, INDEXES, LAYOUT, TABLES
from posthouse.local.tls import driver_url

FOREIGN = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
DISK_FULL = "53100"
AWAY_CLASSES = ("08", "40", "53", "57")
"""Lost connections, collisions, too little of something, and a server that is going down: later it may work."""

# One process at a time makes the tables: CREATE … IF NOT EXISTS alone can fail when two do it at once.
ALONE = "SELECT pg_advisory_xact_lock(hashtext('posthouse_registry'))"

# Whoever holds this row's lock is the one who writes.
WRITER = "SELECT last_id FROM posthouse_registry.counter FOR UPDATE"

# Whether the tables are there: a role that may use them need not be allowed to make any.
MADE = "SELECT to_regclass('posthouse_registry.counter') IS NOT NULL AND to_regclass('posthouse_registry.settings') IS NOT NULL"


class PostgresLedger:
    """`url` names the database. `connections` is the most that this process uses, `patience` seconds for a statement."""

    def __init__(self, url: str, *, connections: int = 8, patience: float = 10.0) -> None:
        self._url = driver_url(url)
        self._connections = connections
        self._patience = patience
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        with _mapped("connecting to the registry's database"):
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=0,
                max_size=self._connections,
                command_timeout=self._patience,
                timeout=self._patience,
                statement_cache_size=0,  # poolers between transactions know no prepared statements
            )
        async with self._transaction() as connection:
            if not await connection.fetchval(MADE):
                await self._make(PostgresSession(connection))
            check_layout([tuple(row) for row in await connection.fetch(LAYOUT)])

    async def _make(self, session: PostgresSession) -> None:
        await session.fetch(ALONE)
        await session.fetch("CREATE SCHEMA IF NOT EXISTS posthouse_registry")
        for statement in (*TABLES, *INDEXES):
            await session.fetch(statement.format(bytes="bytea", place="posthouse_registry."))
        await session.fetch(FIRST_ROW, FORMAT)

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Session]:
        async with self._transaction(isolation="repeatable_read", readonly=True) as connection:
            yield PostgresSession(connection)

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[Session]:
        async with self._transaction() as connection:
            await connection.fetchval(WRITER)
            yield PostgresSession(connection)

    async def aclose(self) -> None:
        if self._pool is not None:
            self._pool.terminate()  # nothing is under way: requests are over before the ledger is closed

    @contextlib.asynccontextmanager
    async def _transaction(
        self, isolation: str = "read_committed", *, readonly: bool = False
    ) -> AsyncIterator[asyncpg.pool.PoolConnectionProxy[asyncpg.Record]]:
        if self._pool is None:
            raise RuntimeError("the ledger was not opened: `await ledger.open()` comes first")
        with _mapped("using the registry's database"):
            async with (
                self._pool.acquire(timeout=self._patience) as connection,
                connection.transaction(isolation=isolation, readonly=readonly),  # type: ignore[arg-type]  # a Literal
            ):
                yield connection


class PostgresSession:
    """A transaction on a connection."""

    def __init__(self, connection: asyncpg.pool.PoolConnectionProxy[asyncpg.Record]) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *values: Value) -> list[Row]:
        return [tuple(row) for row in await self._connection.fetch(sql, *values)]


@contextlib.contextmanager
def _mapped(doing: str) -> Iterator[None]:
    try:
        yield
    except FOREIGN as error:
        raise _translated(error, doing) from error


def _translated(error: BaseException, doing: str) -> PosthouseError:
    code = str(getattr(error, "sqlstate", "") or "")
    text = f"{doing}: {error}" if str(error) else f"{doing}: {type(error).__name__}"
    if code == DISK_FULL:
        return StoreFull(f"{text}: nothing was written; free some space and it goes on")
    if not code or code[:2] in AWAY_CLASSES:
        return StoreUnavailable(text)
    return StoreError(text)
