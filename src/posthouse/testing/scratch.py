"""ScratchDatabase: a PostgreSQL database that a test session makes for itself, puts back between tests, and drops.

No database that somebody else made is ever written to: the URL says on which server to make one. So nothing is lost where the URL
is that of production by mistake. Whoever is killed leaves a database behind; the next session drops it, when it bears our mark and
nobody is connected to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from posthouse.clock import new_ulid
from posthouse.errors import ConfigurationError, PosthouseError
from posthouse.local.tls import driver_url
from posthouse.local.url import joined, split
from posthouse.stores import DRIVER_OPTIONS
from posthouse.testing.baseline import Baseline

T = TypeVar("T")

PREFIX = "posthouse_test_"
MARK = "made by a test session of Posthouse, which drops it"
"""The comment on a database by which we know our own."""
PATIENCE = 10.0
IN_USE, GONE, EXISTS, NOT_ALLOWED = "55006", "3D000", "42P04", "42501"

# Databases that sessions made, by their full names: one of Django's that it kept has the mark too. One in use cannot be dropped.
LEFTOVERS = r"""
SELECT d.datname FROM pg_database d
WHERE d.datname ~ '^posthouse_test_[0-9a-z]{26}$' AND shobj_description(d.oid, 'pg_database') = $1
    AND NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.datid = d.oid)
"""

# What the comment on the database says that this connection leads to.
SAID = "SELECT shobj_description(d.oid, 'pg_database') FROM pg_database d WHERE d.datname = current_database()"


at_hand: dict[str, ScratchDatabase] = {}
"""Those of this process, by their URLs."""


class ScratchDatabase:
    """One database, from `made` to `drop`. While this process lives, it is connected to it: that is how others know.

    Its methods do not need an event loop and may be called where one runs: they work in a thread of their own.
    """

    def __init__(self, server: str) -> None:
        self._server = server_of(server)
        self._loop = LoopThread()
        self._connection: Any = None
        self._baseline: Baseline | None = None
        self._books: Any = None
        self._turn = asyncio.Lock()
        self.name = ""

    async def ask(self, sql: str, parameters: Sequence[object], *, as_rows: bool) -> Any:
        """One statement that commits by itself, on a connection that is kept from test to test: it knows the statements already, which
        is most of what they cost. To be awaited on any event loop; it runs to its end also when nobody waits for it any more."""
        asked = self._loop.begin(self._ask(sql, parameters, as_rows))
        return await asyncio.shield(asyncio.wrap_future(asked))

    async def _ask(self, sql: str, parameters: Sequence[object], as_rows: bool) -> Any:
        from posthouse.local.postgres.connection import ServerConnection

        async with self._turn:
            if self._books is None or self._books.is_closed():
                self._books = await _connect(self.url, connection_class=ServerConnection)
            return await (self._books.run(sql, parameters) if as_rows else self._books.fetch(sql, *parameters))

    @property
    def url(self) -> str:
        """Where it is."""
        return joined(self._server._replace(path=f"/{self.name}"))

    def make(self) -> None:
        """Make it, and drop what killed sessions have left on this server."""
        self._loop.run(self._make())

    def upgrade(self, schema: str = "posthouse") -> None:
        """Make the tables of Posthouse, unless they are there."""
        self._loop.run(_upgrade(self.url, schema))

    def keep(self) -> None:
        """Remember how everything is now: `reset` leads back here."""
        self._baseline = Baseline(self._connection)
        self._loop.run(self._baseline.take())

    def reset(self) -> Sequence[str]:
        """Put back what is not as it was kept; the names of what was not."""
        if self._baseline is None:
            raise ConfigurationError("nothing was kept yet: call keep() when all tables are made")
        return self._loop.run(self._baseline.restore())

    def drop(self) -> None:
        """Drop it, whoever is still connected. Idempotent."""
        try:
            if self.name:
                self._loop.run(self._drop())
        finally:
            self.name = ""
            self._loop.close()

    async def _make(self) -> None:
        async with _connected(joined(self._server)) as server:
            for leftover in await server.fetch(LEFTOVERS, MARK):
                with _passing_over(IN_USE, GONE, NOT_ALLOWED):
                    await server.execute(f'DROP DATABASE IF EXISTS "{leftover[0]}"')
            name = f"{PREFIX}{new_ulid().lower()}"
            await _create(server, name)
            self.name = name
            self._connection = await _connect(self.url)
            await server.execute(f"COMMENT ON DATABASE \"{name}\" IS '{MARK}'")
        at_hand[self.url] = self

    async def _drop(self) -> None:
        at_hand.pop(self.url, None)
        for connection in (self._connection, self._books):
            if connection is not None:
                await connection.close()
        async with _connected(joined(self._server)) as server:
            await server.execute(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')


class BorrowedDatabase:
    """A database that another test runner made, as Django's does, and drops. Only our own schema in it is made and put back; the other
    tables are the runner's. Whoever calls has made sure that it is one for tests. Unless it is `new`, made in this very run, one that
    has events in it is refused."""

    def __init__(self, url: str, schema: str = "posthouse", *, new: bool = False) -> None:
        self.url = url
        self._schema = schema
        self._new = new
        self._baseline: Baseline

    def make(self) -> None:
        """Make our tables, anew: the runner may have kept the database of an earlier session. The store stays the same one for whoever
        has it open."""
        _run(self._make())

    def reset(self) -> Sequence[str]:
        """Put back what is not as it was made; the names of what was not."""
        return _run(self._reset())

    async def _make(self) -> None:
        async with _connected(self.url) as connection:
            if not self._new and await connection.fetchval(SAID) != MARK:
                await self._refuse_data(connection)
            identity = await self._identity(connection)
            await connection.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE")
            name = await connection.fetchval("SELECT quote_ident(current_database())")
            await connection.execute(f"COMMENT ON DATABASE {name} IS '{MARK}'")
        await _upgrade(self.url, self._schema)
        async with _connected(self.url) as connection:
            if identity is not None:
                await connection.execute(f"UPDATE {self._schema}.meta SET identity = $1", identity)
            self._baseline = Baseline(connection, [self._schema])
            await self._baseline.take()

    async def _identity(self, connection: Any) -> str | None:
        """By which the services of earlier tests know the store that they publish in."""
        if await connection.fetchval("SELECT to_regclass($1) IS NULL", f"{self._schema}.meta"):
            return None
        found: str | None = await connection.fetchval(f"SELECT identity FROM {self._schema}.meta")
        return found

    async def _refuse_data(self, connection: Any) -> None:
        for table in ("key", "outbox", "inbox", "head", "held", "timer", "saga", "stream_event"):
            name = f"{self._schema}.{table}"
            if await connection.fetchval("SELECT to_regclass($1) IS NULL", name):
                continue
            if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {name})"):
                raise ConfigurationError(
                    f"{name} of {urlsplit(self.url).path[1:]!r} has rows that no test made: this is not a database for tests. Drop it if it is"
                )

    async def _reset(self) -> Sequence[str]:
        """Over a connection for this once: a runner that drops the database would meet one that is kept."""
        async with _connected(self.url) as connection:
            await self._baseline.over(connection)
            return await self._baseline.restore()


def _run(work: Coroutine[Any, Any, T]) -> T:
    thread = LoopThread()
    try:
        return thread.run(work)
    finally:
        thread.close()


def server_of(url: str) -> SplitResult:
    """A URL of a PostgreSQL server, without options of ours, for us to connect to; ConfigurationError for any other."""
    parts = split(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ConfigurationError(
            f"tests run in memory, or on a PostgreSQL server such as postgresql://postgres@localhost/postgres, not on "
            f"{parts.scheme or url!r}"
        )
    parts = urlsplit(driver_url(url))
    options = urlencode([(name, value) for name, value in parse_qsl(parts.query) if name in DRIVER_OPTIONS])
    return parts._replace(scheme="postgresql", query=options)


def store_url(database: str, schema: str) -> str:
    """The URL of a test's store in that database, whose server need not survive a crash."""
    parts = urlsplit(database)
    options = [*parse_qsl(parts.query), ("durable", "false")]
    query = urlencode(options if schema == "posthouse" else [*options, ("schema", schema)])
    return joined(parts._replace(query=query))


async def refuse_others(url: str) -> None:
    """ConfigurationError unless the database was made for tests."""
    async with _connected(joined(server_of(url))) as connection:
        if await connection.fetchval(SAID) != MARK:
            name = await connection.fetchval("SELECT current_database()")
            raise ConfigurationError(
                f"the database {name!r} was not made by a test session: a harness would send what waits in its outbox to a broker in "
                "memory, and it would be lost. Use the fixture `posthouse_store`, which has a database of its own on that server"
            )


async def _create(server: Any, name: str) -> None:
    """Another session may copy the same template at this moment: that is waited for."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            await server.execute(f'CREATE DATABASE "{name}"')
            return
        except Exception as error:
            code = getattr(error, "sqlstate", "")
            if code == NOT_ALLOWED:
                raise ConfigurationError(
                    "the role of the test server's URL may not make databases: each test session has one of its own, so that it never "
                    "touches one that somebody else made. ALTER ROLE … CREATEDB allows it"
                ) from error
            if code != IN_USE or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.05)


async def _upgrade(url: str, schema: str) -> None:
    from posthouse.stores.postgres import PostgresStore

    store = PostgresStore(url, schema=schema, durable=False)
    try:
        await store.upgrade(post=True)
    finally:
        await store.aclose()


async def _connect(url: str, **options: Any) -> Any:
    try:
        import asyncpg
    except ImportError as error:
        raise ConfigurationError("tests on PostgreSQL need asyncpg: pip install 'posthouse[postgres]'") from error
    try:
        return await asyncpg.connect(
            url, timeout=PATIENCE, server_settings={"application_name": "posthouse tests"}, **options
        )
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        place = urlsplit(url)
        where = f"{place.hostname}:{place.port or 5432}{place.path}"
        raise PosthouseError(f"the test server {where} cannot be reached: {error}") from error


@contextlib.asynccontextmanager
async def _connected(url: str) -> Any:
    connection = await _connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@contextlib.contextmanager
def _passing_over(*codes: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if getattr(error, "sqlstate", "") not in codes:
            raise


class LoopThread:
    """An event loop in a thread, for whoever has none or must not wait on his own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="posthouse-tests")
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.begin(work).result()

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
