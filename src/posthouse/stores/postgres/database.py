"""Database: the connections to one PostgreSQL database, and statements that are transactions of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import asyncpg
import msgspec

from posthouse.checks import refusals
from posthouse.errors import ConfigurationError, StoreBusy, StoreError
from posthouse.local.naming import client_name
from posthouse.local.postgres.connection import ServerConnection
from posthouse.local.postgres.notifier import Notifier
from posthouse.local.postgres.pool import Share, options
from posthouse.local.tls import driver_url
from posthouse.store import Rows
from posthouse.store.patience import patience
from posthouse.stores.postgres.errors import NOT_PRIMARY, is_lost, mapped, sqlstate_of
from posthouse.stores.postgres.isolation import role_findings
from posthouse.stores.postgres.schema import Place, checking, proving
from posthouse.stores.postgres.steps import Steps

log = logging.getLogger("posthouse.store")

T = TypeVar("T")

RUNTIME_CONNECTIONS = 4
"""Connections beside those for transactions of users, so that the runtime's own statements never wait for a handler."""

OUR_NAME = re.compile(r"posthouse\.(?!tenant\b)")
"""A name in our schema; the setting `posthouse.tenant` is called so in every schema."""

LAST_PAUSE = 0.1
"""The longest pause, in seconds, between two looks at the outbox that nobody rang for."""

# Whether a commit is answered before it is on the disk, unless somebody says otherwise …
HASTY = "SELECT current_setting('synchronous_commit') = 'off'"

# … as each of our transactions does then: the broker is told that an event was dealt with, which no crash may take back.
LASTING = "SET LOCAL synchronous_commit = on"

# End a session whose transaction was given up while it may still be at work.
END_SESSION = "SELECT pg_terminate_backend($1)"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a `PostgresStore` uses its database; its docstring says what each means."""

    schema: str
    writers: int
    shards: int | None
    patience: float
    pooled: bool
    listen_url: str | None = None


class Database:
    """One database, through a share of the pool of its URL.

    The share has room for `writers` transactions of users and some for statements of our own: whoever holds a transaction
    may wait for one of those, but those wait for nobody, so nothing can lock up. Behind a pooler that changes the server
    connection between transactions (`pooled`) nothing is prepared by name, and each statement has a BEGIN before it.
    """

    def __init__(self, url: str, settings: Settings) -> None:
        self.url = url = driver_url(url)
        if settings.listen_url:
            settings = msgspec.structs.replace(settings, listen_url=driver_url(settings.listen_url))
        self.settings = settings
        self.name = unquote(urlsplit(url).path.removeprefix("/")) or None
        self.notifier = Notifier(
            notifier_name(url, settings.schema),
            f"posthouse {settings.schema}"[:63],
            listen_url=settings.listen_url or (None if settings.pooled else url),
            run=partial(self.run, check=False),
            floor=LAST_PAUSE,
        )
        self.refuse: Callable[[], Awaitable[None]] | None = None
        """Raises when the roles do not keep tenants apart; asked once, before the first use."""
        self.place: Place | None = None
        """Once it was checked on our own connections …"""
        self.joined: Place | None = None
        """… and once on one of the user's."""
        self.notes: Sequence[str] = ()
        self.hasty = False
        """Commits are answered before they are on the disk, unless they say otherwise."""
        self.closed = False
        self.share = Share(
            url,
            pooled=settings.pooled,
            most=settings.writers + RUNTIME_CONNECTIONS,
            patience=settings.patience,
            role="store",
        )
        self.handlers_name = client_name("handlers")
        """What connections are called that handlers of other libraries use."""
        self.wal_name = client_name("wal")
        self._seats = asyncio.Semaphore(settings.writers)
        self._texts: dict[str, str] = {}
        self._ends: set[asyncio.Task[None]] = set()

    def text(self, sql: str) -> str:
        """A statement for the schema in use."""
        found = self._texts.get(sql)
        if found is None:
            found = self._texts[sql] = in_schema(sql, self.settings.schema)
        return found

    async def run(self, sql: str, *parameters: object, check: bool = True) -> Rows:
        """One statement, a transaction of its own."""
        if check and self.place is None:
            await self.check()
        async with self.connected() as connection:
            if not self.settings.pooled:
                return await connection.run(self.text(sql), parameters)
            async with connection.transaction():
                return await connection.run(self.text(sql), parameters)

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Sequence[Any]]:
        """`run` for many rows: they are the driver's own, which need not be copied."""
        async with self.connected() as connection:
            fetch: Callable[..., Awaitable[list[Any]]] = connection.fetch
            if not self.settings.pooled:
                return await fetch(self.text(sql), *parameters)
            async with connection.transaction():
                return await fetch(self.text(sql), *parameters)

    async def run_committed(self, sql: str, *parameters: object) -> Rows:
        """One statement that must see what was committed last, whatever isolation this database has as its default."""
        async with self.connected() as connection, connection.transaction(isolation="read_committed"):
            return await connection.run(self.text(sql), parameters)

    async def carry_out(self, steps: Steps[T]) -> T:
        """Steps that only read."""
        return await carried_out(steps, lambda sql, parameters: self.run(sql, *parameters, check=False))

    async def check(self) -> Place:
        """Make sure, once, that the tables are as they must be."""
        if self.place is None:
            place = await self.carry_out(checking(self.settings.shards))
            self.notes = await self.carry_out(proving())
            self.hasty = bool((await self.run(HASTY, check=False)).scalar())
            for note in self.notes:
                log.warning("%s", note)
            if self.refuse is not None:
                await self.refuse()
            self.place = place
            if self.refuse is None:
                self.joined = place
        return self.place

    def forget(self) -> None:
        """Look at the tables again before the next use."""
        self.place = self.joined = None

    def joining(self) -> Steps[Place]:
        """On a connection of the user's: what `check` makes sure of, as far as it depends on who connects and whereto."""
        place = yield from checking(self.settings.shards, self.name)
        if self.refuse is not None:
            _, findings = yield from role_findings("application")
            if findings:
                raise ConfigurationError(*refusals(findings))
        return place

    def connected(self) -> AbstractAsyncContextManager[ServerConnection]:
        """A connection of the pool for a statement of ours; errors become ours."""
        return Connected(self)

    async def take_seat(self) -> None:
        """Wait for the turn to have a transaction open."""
        if not self._seats.locked():
            await self._seats.acquire()
            return
        usual = self.settings.patience
        longest = min(usual, usual if (given := patience()) is None else given)
        try:
            async with asyncio.timeout(longest):
                await self._seats.acquire()
        except TimeoutError:
            raise StoreBusy(
                f"all {self.settings.writers} transactions of this process were open for {longest:g} s: look "
                "for one that waits for another, or raise `writers`"
            ) from None

    def leave_seat(self) -> None:
        """The transaction is over."""
        self._seats.release()

    async def acquire(self) -> ServerConnection:
        """A connection of the pool; asyncpg's own errors."""
        if self.share.closed:
            raise StoreError("the store is closed")
        return await self.share.acquire()

    async def release(self, connection: ServerConnection) -> None:
        """Give it back; whoever still holds what was lent can do nothing more with it."""
        await self.share.release(connection)

    def abandon(self, connection: ServerConnection) -> None:
        """Never use it again. Its server process may be in the middle of a statement: that one is told to end."""
        if connection.is_closed():
            return
        process = connection.get_server_pid()
        connection.terminate()
        self.end_session(process)

    def end_session(self, process: int) -> None:
        """Tell a server process to end. Behind a pooler its number is not ours to know, and the pooler does it."""
        if not self.settings.pooled and not self.closed:
            ending = asyncio.get_running_loop().create_task(self._end(process))
            self._ends.add(ending)
            ending.add_done_callback(self._ends.discard)

    async def close(self) -> None:
        """Close every connection; one whose transaction does not end in time is cut off."""
        self.closed = True
        await self.notifier.aclose()
        if self._ends:
            await asyncio.wait(self._ends, timeout=1.0)
        await self.share.aclose()

    async def connect(self) -> ServerConnection:
        """A connection outside of the pool, for whoever keeps it; asyncpg's own errors."""
        if self.closed:
            raise StoreError("the store is closed")
        settings = options(self.url, pooled=self.settings.pooled, name=self.handlers_name)
        return cast("ServerConnection", await asyncpg.connect(self.url, timeout=self.settings.patience, **settings))

    async def _end(self, process: int) -> None:
        with contextlib.suppress(StoreError):
            await self.run(END_SESSION, process, check=False)


class Connected:
    """See `Database.connected`. No generator, which the end of a loop would close in the middle of a statement."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __aenter__(self) -> ServerConnection:
        with mapped("using the database"):
            self._connection = await self._database.acquire()
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        gone = not isinstance(error, Exception) or is_lost(error) or sqlstate_of(error) == NOT_PRIMARY
        if error is not None and gone:
            self._database.abandon(self._connection)
        with mapped("using the database"):
            await self._database.release(self._connection)
            if isinstance(error, Exception):
                raise error


def in_schema(sql: str, schema: str) -> str:
    """A statement of ours for tables that are in this schema."""
    return OUR_NAME.sub(f"{schema}.", sql.replace("{schema}", schema))


def notifier_name(url: str, schema: str) -> str:
    """One for each schema of each database, whoever connects to it."""
    parts = urlsplit(url)
    return f"/postgresql/{parts.netloc.rpartition('@')[2]}{parts.path}/{schema}"


async def carried_out(steps: Steps[T], run: Callable[[str, Sequence[object]], Any]) -> T:
    """Drive `steps` to their end with a coroutine function that runs one statement."""
    try:
        sql, parameters = next(steps)
        while True:
            sql, parameters = steps.send(await run(sql, parameters))
    except StopIteration as done:
        result: T = done.value
        return result
