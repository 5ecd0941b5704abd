"""Database: the connections to one PostgreSQL database, and statements that are transactions of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, cast
from urllib.parse import unquote, urlsplit

import asyncpg
import msgspec

from posthouse.checks import refusals
from posthouse.errors import ConfigurationError, StoreError, StoreUnavailable
from posthouse.local.postgres.wake import Wake
from posthouse.store import Rows
from posthouse.store.savepoints import Savepoints
from posthouse.stores.postgres.errors import FOREIGN, NOT_PRIMARY, is_lost, mapped, sqlstate_of
from posthouse.stores.postgres.isolation import role_findings
from posthouse.stores.postgres.refusing import refuse_ending
from posthouse.stores.postgres.schema import Place, checking, proving
from posthouse.stores.postgres.steps import Steps, rows_of

log = logging.getLogger("posthouse.store")

T = TypeVar("T")

BOOKS = 4
"""Connections beside those for transactions of users, so that the runtime's own statements never wait for a handler."""

OUR_NAME = re.compile(r"posthouse\.(?!tenant\b)")
"""A name in our schema; the setting `posthouse.tenant` is called so in every schema."""

LAST_PAUSE = 0.1
"""The longest pause, in seconds, between two looks at the outbox that nobody rang for."""

# Whether a commit is answered before it is on the disk, unless somebody says otherwise …
HASTY = "SELECT current_setting('synchronous_commit') = 'off'"

# … as each of our transactions does then: the broker is told that an event was dealt with, which no crash may take back.
LASTING = "SET LOCAL synchronous_commit = on"

Isolation = Literal["read_committed", "repeatable_read"]
BEGIN: Mapping[Isolation, str] = {
    "read_committed": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "repeatable_read": "BEGIN ISOLATION LEVEL REPEATABLE READ",
}

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


class StoreConnection(asyncpg.Connection):
    """A connection that tells what COMMIT came to, and that is reset between two users only when it needs to be."""

    unclean = False
    """Somebody may have changed the session: settings, locks, listeners."""
    status = ""
    """The server's word on the last command: COMMIT of a failed transaction says ROLLBACK."""
    prepared: frozenset[str] = frozenset()
    """The names of the statements that we have prepared in this session."""
    heard: Savepoints | None = None
    """Where savepoints are told of, once the user has the connection."""
    lent: asyncpg.Connection
    """What the pool gave out for it: good for whoever gets it only until it is given back. Ours do without that detour."""

    @property
    def itself(self) -> StoreConnection:
        """The connection behind what the pool gives out."""
        return self

    async def begin(self, *statements: str, isolation: Isolation = "read_committed") -> str:
        """BEGIN, and behind it statements without parameters, in one round trip; the server's word on the last one. The
        driver is told, so that its own blocks inside become savepoints."""
        self._top_xact = self.transaction(isolation=isolation)
        return await self.execute("; ".join((BEGIN[isolation], *statements)))

    async def commit(self, *statements: str) -> str:
        """Statements without parameters, and behind them COMMIT, in one round trip; the server's word on the last one. When
        one of them fails, nothing is committed, and the transaction is to be rolled back."""
        self._top_xact = None  # type: ignore[assignment]  # as the driver itself has it outside of a transaction
        return await self.execute("; ".join((*statements, "COMMIT")))

    async def roll_back(self) -> None:
        self._top_xact = None  # type: ignore[assignment]  # as the driver itself has it outside of a transaction
        await self.execute("ROLLBACK")

    def mark_unclean(self) -> None:
        """Reset the session before the next one has it."""
        self.unclean = True

    def get_reset_query(self) -> str:
        return str(super().get_reset_query()) if self.unclean else ""

    async def reset(self, *, timeout: float | None = None) -> None:
        await super().reset(timeout=timeout)
        self.unclean = False

    async def execute(self, query: str, *arguments: object, timeout: float | None = None) -> str:
        heard = self.heard
        if heard is not None:
            refuse_ending(query)
        try:
            self.status = await super().execute(query, *arguments, timeout=timeout)
        except BaseException:
            if heard is not None:
                heard.hear_failed(query)
            raise
        if heard is not None:
            heard.hear(query)
        return self.status

    async def _execute(self, query: str, *arguments: Any, **options: Any) -> Any:
        """All of the driver's ways to fetch, as the user calls them."""
        heard = self.heard
        if heard is not None:
            refuse_ending(query)
        try:
            found = await super()._execute(query, *arguments, **options)  # type: ignore[misc]
        except BaseException:
            if heard is not None:
                heard.hear_failed(query)
            raise
        if heard is not None:
            heard.hear(query)
        return found

    async def _prepare(self, query: str, *arguments: Any, **options: Any) -> Any:
        """What the user prepares is run without us: nobody would hear of a savepoint."""
        if self.heard is not None:
            refuse_ending(query)
            self.heard.hear_failed(query)
        return await super()._prepare(query, *arguments, **options)  # type: ignore[misc]

    async def _executemany(self, query: str, *arguments: Any, **options: Any) -> Any:
        if self.heard is not None:
            refuse_ending(query)
            self.heard.hear_failed(query)
        return await super()._executemany(query, *arguments, **options)  # type: ignore[misc]

    async def run(self, sql: str, parameters: Sequence[object]) -> Rows:
        """Rows and the number of rows changed, in one round trip, which none of asyncpg's own methods gives."""
        run: Any = super()._execute  # type: ignore[misc]
        found, status, _ = await run(sql, parameters, 0, None, return_status=True)
        return rows_of(found, status.decode())


class Database:
    """One database, through one pool.

    The pool has room for `writers` transactions of users and some for statements of our own: whoever holds a transaction
    may wait for one of those, but those wait for nobody, so nothing can lock up. Behind a pooler that changes the server
    connection between transactions (`pooled`) nothing is prepared by name, and each statement has a BEGIN before it.
    """

    def __init__(self, url: str, settings: Settings) -> None:
        self.url = url
        self.settings = settings
        self.name = unquote(urlsplit(url).path.removeprefix("/")) or None
        self.bell = Wake(
            bell_name(url, settings.schema),
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
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()
        self._seats = asyncio.Semaphore(settings.writers)
        self._spare: list[StoreConnection] = []
        """Taken from the pool, in nobody's hands."""
        self._waiting = 0
        """How many wait for the pool."""
        self._texts: dict[str, str] = {}
        self._ends: set[asyncio.Task[None]] = set()

    def text(self, sql: str) -> str:
        """A statement for the schema in use."""
        found = self._texts.get(sql)
        if found is None:
            schema = self.settings.schema
            found = self._texts[sql] = OUR_NAME.sub(f"{schema}.", sql.replace("{schema}", schema))
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

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[StoreConnection]:
        """A connection of the pool for a statement of ours; errors become ours."""
        with mapped("using the database"):
            connection = await self.acquire()
            try:
                yield connection
            except BaseException as error:
                if not isinstance(error, Exception) or is_lost(error) or sqlstate_of(error) == NOT_PRIMARY:
                    self.abandon(connection)
                raise
            finally:
                await self.release(connection)

    async def take_seat(self) -> None:
        """Wait for the turn to have a transaction open."""
        if not self._seats.locked():
            await self._seats.acquire()
            return
        try:
            async with asyncio.timeout(self.settings.patience):
                await self._seats.acquire()
        except TimeoutError:
            raise StoreUnavailable(
                f"all {self.settings.writers} transactions of this process were open for {self.settings.patience:g} s: look "
                "for one that waits for another, or raise `writers`"
            ) from None

    def leave_seat(self) -> None:
        """The transaction is over."""
        self._seats.release()

    async def acquire(self) -> StoreConnection:
        """A connection of the pool; asyncpg's own errors."""
        pool = self._pool or await self._open()
        while self._spare:
            connection = self._spare.pop()
            if not connection.is_closed():
                return connection
            await self.release(connection)
        self._waiting += 1
        try:
            lent: Any = await pool.acquire(timeout=self.settings.patience)
        finally:
            self._waiting -= 1
        fresh: StoreConnection = lent.itself
        fresh.lent = lent
        return fresh

    async def release(self, connection: StoreConnection) -> None:
        """Give it back; whoever still holds what was lent can do nothing more with it. One that only we have used is kept at
        hand: the way through the pool costs as much as a statement."""
        pool = self._pool
        if pool is None:
            return
        if not self._waiting and not connection.is_closed() and not connection.unclean:
            self._spare.append(connection)
            return
        try:
            await pool.release(cast("Any", connection.lent))
        except FOREIGN as error:
            log.info("a connection was dropped: %s", error)

    def abandon(self, connection: StoreConnection) -> None:
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
        await self.bell.aclose()
        if self._ends:
            await asyncio.wait(self._ends, timeout=1.0)
        pool, self._pool = self._pool, None
        if pool is None:
            return
        spare, self._spare = self._spare, []
        for connection in spare:
            await pool.release(cast("Any", connection.lent))
        try:
            async with asyncio.timeout(min(self.settings.patience, 5.0)):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    async def _open(self) -> asyncpg.Pool[Any]:
        async with self._opening:
            if self.closed:
                raise StoreError("the store is closed")
            if self._pool is None:
                self._pool = await self._make_pool()
            return self._pool

    async def _make_pool(self) -> asyncpg.Pool[Any]:
        return await asyncpg.create_pool(
            self.url,
            min_size=0,
            max_size=self.settings.writers + BOOKS,
            **self._options(),
        )

    async def connect(self) -> StoreConnection:
        """A connection outside of the pool, for whoever keeps it; asyncpg's own errors."""
        if self.closed:
            raise StoreError("the store is closed")
        return cast("StoreConnection", await asyncpg.connect(self.url, **self._options()))

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"connection_class": StoreConnection, "timeout": self.settings.patience}
        if self.settings.pooled:
            options["statement_cache_size"] = 0
        if "target_session_attrs" not in urlsplit(self.url).query:
            options["target_session_attrs"] = "read-write"
        return options

    async def _end(self, process: int) -> None:
        with contextlib.suppress(StoreError):
            await self.run(END_SESSION, process, check=False)


def bell_name(url: str, schema: str) -> str:
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
