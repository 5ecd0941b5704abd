"""The log's database: a share of the pool of its URL, and the one place where the driver's errors are mapped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import asyncpg

import posthouse.brokers.postgres.schema as sql
from posthouse.errors import BrokerError, BrokerUnavailable, ConfigurationError
from posthouse.local.naming import given_name
from posthouse.local.postgres.connection import ServerConnection
from posthouse.local.postgres.notifier import Notifier
from posthouse.local.postgres.pool import Share
from posthouse.local.postgres.pooler import PROCESS
from posthouse.local.tls import driver_url
from posthouse.store import Rows

PATIENCE = 30.0
"""Seconds that a statement may take, waiting for locks included."""
CONNECTING = 10.0
CLOSING = 5.0
IDLE = 2.0
"""Seconds that may lie between two messages of one transaction, below any lease: then the server ends it. A process that
stands still would else keep its locks, and everybody who publishes or joins would wait for it."""
BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = {int(IDLE * 1000)}"
"""Whatever the database's default is: who waits for a head must see it as it then is, not fail."""
POLL = 0.2
"""Seconds between looks at the log that nothing called for, at most, as long as no hint is known to come through …"""
RARE_POLL = 1.0
"""… and when they are."""

PASSING = (
    OSError,
    TimeoutError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.TransactionRollbackError,  # deadlock, serialization
    asyncpg.InsufficientResourcesError,  # too many connections, disk full
    asyncpg.OperatorInterventionError,  # shutting down, starting up
    asyncpg.ObjectNotInPrerequisiteStateError,  # lock not available
    asyncpg.ReadOnlySQLTransactionError,  # a standby since the last failover
    asyncpg.PostgresSystemError,
    asyncpg.NoDataFoundError,  # a topic or a group that was there before a failover or a restore
    asyncpg.IdleInTransactionSessionTimeoutError,
)

Row = asyncpg.Record
Session = ServerConnection
Fetch = Callable[..., Awaitable[list[Row]]]
"""A statement of ours and its arguments."""
Opened = Callable[[Mapping[str, str]], None]
"""Hears the server's settings whenever it was found anew."""


class Database:
    """One statement is one READ COMMITTED transaction and, without a pooler, one round trip. `pooled` means that another statement of
    the same connection may meet another session, as behind PgBouncer in transaction mode: then nothing is prepared, and
    each statement has a transaction around it, which keeps its parsing and its execution together."""

    def __init__(self, url: str, schema: str, *, pooled: bool, connections: int, on_open: Opened) -> None:
        self.url = url = driver_url(url)
        parts = urlsplit(url)
        self.place = f"{parts.netloc.rpartition('@')[2]}{parts.path} (schema {schema})"
        self.schema = schema
        self.pooled = pooled
        self._quoted = '"' + schema.replace('"', '""') + '"'
        self.connections = connections
        self._on_open = on_open
        self.share = Share(url, pooled=pooled, most=connections, patience=CONNECTING, role="broker")
        self._opening = asyncio.Lock()
        self._open = False
        """Whether the log was seen to be there, on the server that we have now."""
        self._begins = True
        """Whether each statement has a BEGIN before it: behind a pooler, and where the server's own transactions are stricter than
        ours."""
        self._statements: dict[str, str] = {}
        self.notifier = Notifier(
            f"/postgresql log/{parts.netloc.rpartition('@')[2]}{parts.path}/{schema}",
            f"posthouse {schema}"[:63],
            listen_url=None if pooled else url,
            run=self.run,
            floor=POLL,
        )

    async def fetch(self, doing: str, statement: str, *args: object) -> list[Row]:
        """Run one statement of `schema.py` in a transaction of its own."""
        with self._mapped(doing):
            if not self._open:
                await self._make_sure()
            async with self._session() as connection:
                text = self.worded(statement)
                if not self._begins:
                    return await connection.fetch(text, *args, timeout=PATIENCE)
                async with transaction(connection):
                    return await connection.fetch(text, *args, timeout=PATIENCE)

    async def ask(self, doing: str, statement: str, *args: object) -> list[Row]:
        """As `fetch`, of the server alone: the log need not be there, and is not made."""
        with self._mapped(doing):
            async with self._session() as connection, transaction(connection):
                return await connection.fetch(self.worded(statement), *args, timeout=PATIENCE)

    async def there(self) -> bool:
        """Whether the log was made, and this code can read it; asking makes nothing. The server's settings are known then."""
        if not self._open and not await self.exists():
            (settings,) = await self.ask("looking at the server", sql.SETTINGS)
            self._on_open(dict(settings))
            return False
        return True

    async def run(self, statement: str, *args: object) -> Rows:
        """As `fetch`, for those who know neither the driver nor what we do."""
        return Rows(map(tuple, await self.fetch("telling others", statement, *args)))

    @contextlib.asynccontextmanager
    async def together(self, doing: str) -> AsyncIterator[Fetch]:
        """Several statements in one transaction."""
        with self._mapped(doing):
            if not self._open:
                await self._make_sure()
            async with self._session() as connection, transaction(connection):

                async def fetch(statement: str, *args: object) -> list[Row]:
                    return await connection.fetch(self.worded(statement), *args, timeout=PATIENCE)

                yield fetch

    async def exists(self) -> bool:
        """Whether the log was made; asking does not make it."""
        if self._open:
            return True
        with self._mapped("looking for the log"):
            connection = await asyncpg.connect(
                self.url,
                timeout=CONNECTING,
                command_timeout=PATIENCE,
                statement_cache_size=0,
                server_settings={"application_name": given_name(self.url) or self.share.name},
            )
            try:
                return bool(await connection.fetchval(sql.HAS_LOG, self.schema))
            finally:
                await connection.close(timeout=CLOSING)

    async def close(self) -> None:
        await self.notifier.aclose()
        await self.share.aclose()

    @property
    def most_connections(self) -> int:
        """That this process may have at once, with the one that listens."""
        return self.connections + (not self.pooled)

    @property
    def longest_pause(self) -> float:
        """Seconds between two looks at the log that nothing called for, at most."""
        return RARE_POLL if self.notifier.listens else POLL

    @property
    def rights(self) -> str:
        """What gives a role that may create nothing the rights that it needs."""
        schema = self.worded("{s}")
        return (
            "Make it as the owner of the database, with `posthouse topology apply`, and give this role its rights: GRANT USAGE ON SCHEMA "
            f"{schema} TO …; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO …; GRANT USAGE ON ALL SEQUENCES IN "
            f"SCHEMA {schema} TO …"
        )

    def worded(self, statement: str) -> str:
        if statement not in self._statements:
            self._statements[statement] = statement.format(s=self._quoted)
        return self._statements[statement]

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        if self.share.closed:
            raise BrokerUnavailable(f"the log {self.place} was closed by this process")
        try:
            connection = await self.share.acquire()
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:  # also a wrong password, or no such database
            if isinstance(error, ValueError):
                raise ConfigurationError(f"the URL of the log {self.place} cannot be used: {error}") from error
            raise BrokerUnavailable(f"the log {self.place} refuses connections: {error}") from error
        except ValueError as error:
            if isinstance(error, OSError):  # Python's word for a certificate that is not believed: a new one may come
                raise BrokerUnavailable(f"the log {self.place} cannot be believed: {error}") from error
            raise ConfigurationError(f"the URL of the log {self.place} cannot be used: {error}") from error
        try:
            yield connection
        except BaseException:
            connection.mark_unclean()  # so that the driver waits until what was given up is surely cancelled
            raise
        finally:
            await self.share.release(connection)

    async def _make_sure(self) -> None:
        """The log is there, and this code can read it."""
        async with self._opening:
            if self._open:
                return
            async with self._session() as connection, asyncio.timeout(PATIENCE):
                if not self.pooled and await connection.fetchval(PROCESS) != connection.get_server_pid():
                    raise ConfigurationError(
                        f"the log {self.place} is behind a pooler: add pooler=transaction to its URL"
                    )
                try:
                    async with transaction(connection):
                        settings = await prepare(connection, self)
                except PASSING:
                    raise
                except asyncpg.InsufficientPrivilegeError as error:  # which time does not mend
                    raise ConfigurationError(
                        f"the log {self.place} may not be opened: {error}. {self.rights}"
                    ) from error
                except asyncpg.PostgresError as error:
                    raise BrokerUnavailable(f"the log {self.place} cannot be opened: {error}") from error
            self._begins = self.pooled or settings["isolation"] != "read committed"
            self._on_open(settings)
            self._open = True

    @contextlib.contextmanager
    def _mapped(self, doing: str) -> Iterator[None]:
        try:
            yield
        except PASSING as error:
            if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                self._forget()
            reason = str(error) or type(error).__name__
            raise BrokerUnavailable(f"the log {self.place}, {doing}: {reason}") from error
        except asyncpg.InterfaceError as error:
            kind = BrokerError if isinstance(error, ValueError) else BrokerUnavailable  # bad data, or a lost connection
            raise kind(f"the log {self.place}, {doing}: {error}") from error
        except asyncpg.InvalidSchemaNameError as error:
            self._open = False
            raise BrokerUnavailable(f"the log {self.place}, {doing}: {error}; the next try makes it again") from error
        except asyncpg.PostgresError as error:
            raise BrokerError(f"the log {self.place}, {doing}: {error}") from error

    def _forget(self) -> None:
        """The sessions lead to a server that may not be written any more: look for the right one at the next call."""
        self.share.expire()
        self._open = False


@contextlib.asynccontextmanager
async def transaction(connection: Session) -> AsyncIterator[None]:
    """Its beginning is one message, which also says how long it may stand still."""
    try:
        await connection.execute(BEGIN, timeout=PATIENCE)
        yield
        await connection.execute("COMMIT", timeout=PATIENCE)
    except BaseException:
        try:
            async with asyncio.timeout(CLOSING):
                await connection.execute("ROLLBACK")
        except Exception:  # it must not go back to the pool with something open
            connection.terminate()
        raise


async def prepare(connection: Any, database: Database) -> dict[str, str]:
    """Make the schema where it is missing, prove that this code can read it, and tell the server's settings."""
    if not await connection.fetchval(sql.HAS_LOG, database.schema):
        await connection.fetchval(sql.LOCK, database.schema)
        if not await connection.fetchval(sql.HAS_LOG, database.schema):
            await make(connection, database)
    version = await connection.fetchval(database.worded(sql.READ_VERSION))
    if version != sql.VERSION:
        raise ConfigurationError(
            f"the log {database.place} has format {version}, this Posthouse reads {sql.VERSION}:"
            " upgrade the posthouse package of this process"
        )
    return dict(await connection.fetchrow(sql.SETTINGS))


async def make(connection: Any, database: Database) -> None:
    if not await connection.fetchval(sql.HAS_SCHEMA, database.schema):
        await connection.execute(database.worded("CREATE SCHEMA {s}"))
    for statements in sql.MAKE:
        await connection.execute(database.worded(statements))
