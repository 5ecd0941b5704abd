"""Events added to PostgreSQL transactions that other libraries began."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import asyncpg
import psycopg
import pytest
import pytest_asyncio
from django.db import connection as django_connection
from django.db import connections
from django.db import transaction as django_transaction
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from posthouse.errors import ConfigurationError, StoreError, StoreOutdated, StoreUnavailable
from posthouse.store import OutboxRow, Timer
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.steps import append_now, drain
from tests.integration.django_site import allowed_on_a_loop, django_on
from tests.kit.servers.postgres import PostgresServer

INSERT = "INSERT INTO orders (name) VALUES ('o1')"
Insert = Callable[[], Awaitable[object]]


def row(number: int = 1, **changes: Any) -> OutboxRow:
    return OutboxRow(topic="orders", tenant="t1", event_id=f"e{number}", body=b"\x00\xff", key="k", **changes)


@pytest_asyncio.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await store.upgrade()
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE orders (name text)")
    yield store
    await store.aclose()


@asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[tuple[Any, Insert, Callable[[bool], Awaitable[None]]]]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()

    async def end(commit: bool) -> None:
        await (transaction.commit() if commit else transaction.rollback())

    yield connection, lambda: connection.execute(INSERT), end
    await connection.close()


@asynccontextmanager
async def with_psycopg(url: str) -> AsyncIterator[tuple[Any, Insert, Callable[[bool], Awaitable[None]]]]:
    with closing(psycopg.connect(url)) as connection:

        async def insert() -> None:
            connection.execute(INSERT)

        async def end(commit: bool) -> None:
            (connection.commit if commit else connection.rollback)()

        yield connection, insert, end


@asynccontextmanager
async def with_async_psycopg(url: str) -> AsyncIterator[tuple[Any, Insert, Callable[[bool], Awaitable[None]]]]:
    connection = await psycopg.AsyncConnection.connect(url)

    async def end(commit: bool) -> None:
        await (connection.commit() if commit else connection.rollback())

    yield connection, lambda: connection.execute(INSERT), end
    await connection.close()


@asynccontextmanager
async def with_sqlalchemy(
    url: str, *, bare: bool
) -> AsyncIterator[tuple[Any, Insert, Callable[[bool], Awaitable[None]]]]:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    theirs: Any = engine.connect() if bare else Session(engine)

    async def insert() -> None:
        theirs.execute(text(INSERT))

    async def end(commit: bool) -> None:
        (theirs.commit if commit else theirs.rollback)()

    yield theirs, insert, end
    theirs.close()
    engine.dispose()


@asynccontextmanager
async def with_async_sqlalchemy(
    url: str, driver: str, *, bare: bool
) -> AsyncIterator[tuple[Any, Insert, Callable[[bool], Awaitable[None]]]]:
    engine = create_async_engine(url.replace("postgresql:", f"postgresql+{driver}:"), poolclass=NullPool)
    theirs: Any = await engine.connect() if bare else AsyncSession(engine)

    async def end(commit: bool) -> None:
        await (theirs.commit() if commit else theirs.rollback())

    yield theirs, lambda: theirs.execute(text(INSERT)), end
    await theirs.close()
    await engine.dispose()


@asynccontextmanager
async def with_django(url: str) -> AsyncIterator[tuple[Any, Insert, Callable[[bool], Awaitable[None]]]]:
    """On the test's own thread, where a loop runs, Django must be told that this is meant."""
    with allowed_on_a_loop(), django_on(url):
        atomic = django_transaction.atomic()
        atomic.__enter__()

        async def insert() -> None:
            django_connection.cursor().execute(INSERT)

        async def end(commit: bool) -> None:
            django_transaction.set_rollback(not commit)
            atomic.__exit__(None, None, None)

        yield django_connection, insert, end  # a ConnectionProxy, as users have it
        if django_connection.in_atomic_block:
            await end(False)


KINDS: dict[str, Callable[[str], Any]] = {
    "asyncpg": with_asyncpg,
    "psycopg": with_psycopg,
    "psycopg.AsyncConnection": with_async_psycopg,
    "Django": with_django,
    "Session": lambda url: with_sqlalchemy(url, bare=False),
    "Connection": lambda url: with_sqlalchemy(url, bare=True),
    "AsyncSession on asyncpg": lambda url: with_async_sqlalchemy(url, "asyncpg", bare=False),
    "AsyncConnection on asyncpg": lambda url: with_async_sqlalchemy(url, "asyncpg", bare=True),
    "AsyncSession on psycopg": lambda url: with_async_sqlalchemy(url, "psycopg", bare=False),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    return KINDS[request.param]


async def committed(store: PostgresStore) -> tuple[int, list[tuple[str, int | None]]]:
    """How many business rows there are, and the events beside them."""
    async with store.begin() as tx:
        orders = int(str((await tx.execute("SELECT count(*) FROM orders")).scalar()))
    return orders, [(found.event_id, found.sequence) for found in await drain(store)]


async def test_events_commit_with_their_rows(
    store: PostgresStore, postgres_url: str, kind: Callable[[str], Any]
) -> None:
    async with kind(postgres_url) as (theirs, insert, end):
        await insert()
        assert await store.outbox.append(store.join(theirs), [row(1), row(2)]) == ["e1", "e2"]
        assert await committed(store) == (0, [])
        await end(True)
    assert await committed(store) == (1, [("e1", 1), ("e2", 2)])


async def test_events_roll_back_with_their_rows(
    store: PostgresStore, postgres_url: str, kind: Callable[[str], Any]
) -> None:
    async with kind(postgres_url) as (theirs, insert, end):
        await insert()
        await store.outbox.append(store.join(theirs), [row(1)])
        await end(False)
    assert await committed(store) == (0, [])


NEVER = "ALTER TABLE posthouse.outbox ADD CONSTRAINT never CHECK (topic = '') NOT VALID"


@pytest.mark.parametrize("how", ["the server is gone", "the row is refused"])
async def test_what_our_statement_ends_with_shows_nothing_of_the_event(
    store: PostgresStore, postgres_url: str, kind: Callable[[str], Any], how: str
) -> None:
    async with store.begin() as tx:
        if how == "the row is refused":
            await tx.execute(NEVER)
    async with kind(postgres_url) as (theirs, insert, end):
        await insert()
        joined = store.join(theirs)
        if how == "the server is gone":
            pid = (await joined.execute("SELECT pg_backend_pid()")).scalar()
            async with store.begin() as tx:
                await tx.execute("SELECT pg_terminate_backend($1, 5000)", (pid,))
        personal = row(headers={"name": "+49 170 5550002"}, idempotency_key="5550002")
        with pytest.raises(StoreError) as failed:
            await store.outbox.append(joined, [personal])
        assert "5550002" not in "".join(traceback.format_exception(failed.value))
        assert isinstance(failed.value, StoreUnavailable) is (how == "the server is gone")
        with contextlib.suppress(Exception):
            await end(False)


async def test_every_kind_of_value_arrives(store: PostgresStore, postgres_url: str, kind: Callable[[str], Any]) -> None:
    given = [
        row(1, headers={"a": "é"}, idempotency_key="i"),
        row(2, idempotency_key="i"),
        OutboxRow(topic="other", tenant="t'2", event_id="e3", body=b"", numbered=False),
    ]
    async with kind(postgres_url) as (theirs, _, end):
        joined = store.join(theirs)
        assert await store.outbox.append(joined, given) == ["e1", "e1", "e3"]
        assert (await joined.execute("SELECT count(*) FROM posthouse.outbox")).scalar() == 2
        await end(True)
    first, third = await drain(store)
    assert (first.body, first.headers, first.sequence) == (b"\x00\xff", {"a": "é"}, 1)
    assert (third.tenant, third.key, third.sequence, third.body) == ("t'2", None, None, b"")


async def test_names_and_a_mapping_are_parameters(
    store: PostgresStore, postgres_url: str, kind: Callable[[str], Any]
) -> None:
    async with kind(postgres_url) as (theirs, _, end):
        tx = store.join(theirs)
        await tx.execute("INSERT INTO orders (name) VALUES (:name::text) -- :x", {"name": "a:b 10%"})
        found = await tx.execute(
            "SELECT name, 7 % 4 FROM orders WHERE name IN (:n, :m, :n) AND name LIKE '%:b%'", {"m": "m", "n": "a:b 10%"}
        )
        assert found == [("a:b 10%", 3)]
        with pytest.raises(StoreError, match=":n has no value"):
            await tx.execute("SELECT :n", {"name": 1})
        await end(False)


async def test_a_timer_is_set_and_cancelled_with_their_rows(
    store: PostgresStore, postgres_url: str, kind: Callable[[str], Any]
) -> None:
    async with kind(postgres_url) as (theirs, _, end):
        joined = store.join(theirs)
        for name in ("kept", "cancelled"):
            await store.timers.set(joined, Timer(name=name, due_at=1.0, row=row(1)))
        assert await store.timers.cancel(joined, "t1", "cancelled")
        assert not await store.timers.cancel(joined, "t1", "never set")
        await end(True)
    assert [timer.name for timer in await store.timers.pending()] == ["kept"]


@pytest.mark.parametrize("name", ["psycopg", "Session", "Connection", "Django"])
async def test_code_without_a_loop_adds_too(store: PostgresStore, postgres_url: str, name: str) -> None:
    fresh = PostgresStore(postgres_url)  # has never seen the database
    async with KINDS[name](postgres_url) as (theirs, insert, end):
        await insert()
        assert append_now(fresh, theirs, [row(1)]) == ["e1"]
        await end(True)
    assert await committed(store) == (1, [("e1", 1)])


@pytest.mark.parametrize("name", ["asyncpg", "psycopg.AsyncConnection", "AsyncSession on asyncpg"])
async def test_an_asynchronous_connection_needs_a_loop(store: PostgresStore, postgres_url: str, name: str) -> None:
    async with KINDS[name](postgres_url) as (theirs, _, _):
        with pytest.raises(ConfigurationError, match="event loop"):
            append_now(store, theirs, [row(1)])


async def test_a_connection_that_commits_by_itself_is_refused(store: PostgresStore, postgres_url: str) -> None:
    plain = await asyncpg.connect(postgres_url)
    with pytest.raises(ConfigurationError, match=r"connection\.transaction"):
        await store.outbox.append(store.join(plain), [row(1)])
    await plain.close()
    with psycopg.connect(postgres_url, autocommit=True) as automatic:
        with pytest.raises(ConfigurationError, match="commits every statement"):
            await store.outbox.append(store.join(automatic), [row(1)])
        with automatic.transaction():
            await store.outbox.append(store.join(automatic), [row(1)])
    engine = create_async_engine(
        postgres_url.replace("postgresql:", "postgresql+asyncpg:"), isolation_level="AUTOCOMMIT", poolclass=NullPool
    )
    async with engine.connect() as connection:
        with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
            await store.outbox.append(store.join(connection), [row(2)])
    await engine.dispose()
    assert (await committed(store))[1] == [("e1", 1)]


async def test_django_is_refused_outside_of_atomic_and_on_another_database(
    store: PostgresStore, postgres_url: str
) -> None:
    with allowed_on_a_loop(), django_on(postgres_url) as default:
        with pytest.raises(ConfigurationError, match=r"transaction\.atomic"):
            append_now(store, default, [row(1)])
        with django_transaction.atomic(using="elsewhere"), pytest.raises(ConfigurationError, match="talks to sqlite"):
            append_now(store, connections["elsewhere"], [row(1)])
        connections["elsewhere"].close()
    assert await committed(store) == (0, [])


@pytest.mark.parametrize("slice_", ["(a)[:n]", "a[%(two)s - 1 :n]"])
async def test_a_slice_beside_names_in_psycopgs_own_style_is_no_name(
    store: PostgresStore, postgres_url: str, slice_: str
) -> None:
    sql = f"SELECT {slice_} FROM (SELECT ARRAY[1, 2, 3] AS a, 2 AS n) AS t WHERE n = %(two)s"
    with closing(psycopg.connect(postgres_url)) as connection:
        assert await store.join(connection).execute(sql, {"two": 2}) == [([1, 2],)]


async def test_one_call_to_django_is_one_statement(store: PostgresStore, postgres_url: str) -> None:
    seen: list[str] = []

    def noting(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, parameters, many, context)

    with allowed_on_a_loop(), django_on(postgres_url) as default, django_transaction.atomic():
        append_now(store, default, [row(1)])
        with default.execute_wrapper(noting):
            append_now(store, default, [row(2), row(3)])
    assert len(seen) == 1
    assert [event for event, _ in (await committed(store))[1]] == ["e1", "e2", "e3"]


def test_django_on_psycopg2_adds_as_well(store: PostgresStore, postgres_url: str) -> None:
    """The driver is chosen once per process, so this needs one of its own."""
    script = "import sys; sys.modules['psycopg'] = None\n" + inspect.getsource(_add_by_psycopg2) + "_add_by_psycopg2()"
    command = [sys.executable, "-c", script, postgres_url]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (0, "psycopg2 ['e1', 'e1', 'e3']\n"), run.stderr


def _add_by_psycopg2() -> None:
    import sys

    from django.db import connection, transaction

    from posthouse.store import OutboxRow
    from posthouse.stores.postgres import PostgresStore
    from posthouse.testing.store_contract.steps import append_now
    from tests.integration.django_site import django_on

    rows = [
        OutboxRow(topic="o", tenant="t1", event_id="e1", body=b"\x00\xff", key="k", idempotency_key="i"),
        OutboxRow(topic="o", tenant="t1", event_id="e2", body=b"", key="k", idempotency_key="i"),
        OutboxRow(topic="o", tenant="t1", event_id="e3", body=b"%s", headers={"a": "%é"}, numbered=False),
    ]
    with django_on(sys.argv[1]), transaction.atomic():
        added = append_now(PostgresStore(sys.argv[1]), connection, rows)
        print(type(connection.connection).__module__.partition(".")[0], added)


async def test_a_connection_to_another_database_is_refused(
    store: PostgresStore, postgres_server: PostgresServer
) -> None:
    with postgres_server.database() as url:
        other = PostgresStore(url)
        with psycopg.connect(url) as connection, pytest.raises(StoreOutdated, match="posthouse db upgrade"):
            append_now(store, connection, [row(1)])
        await other.upgrade()
        await other.aclose()
        with psycopg.connect(url) as connection, pytest.raises(ConfigurationError, match="another database"):
            append_now(store, connection, [row(1)])
        with psycopg.connect(url) as connection, pytest.raises(ConfigurationError, match="the store is in"):
            append_now(PostgresStore(postgres_server.url_of("elsewhere")), connection, [row(1)])


async def test_a_commit_that_a_crash_may_undo_is_made_sure(store: PostgresStore, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.commit()
        append_now(store, connection, [row(1)])
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        connection.commit()
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)


async def test_a_view_of_the_stores_own_transaction_joins_it(store: PostgresStore) -> None:
    async with store.begin() as tx:
        with store.view(tx, asyncpg.Connection) as connection:
            assert isinstance(connection, asyncpg.Connection)
            await store.outbox.append(store.join(connection), [row(1)])
            async with connection.transaction():
                await connection.execute(INSERT)
        await store.outbox.append(store.join(tx), [row(2)])
        with pytest.raises(ConfigurationError, match="begun for asyncpg"), store.view(tx, Session):
            pass
    assert await committed(store) == (1, [("e1", 1), ("e2", 2)])


def test_what_cannot_be_joined_is_told_with_what_can(postgres_url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"builtins\.dict.*psycopg"):
        PostgresStore(postgres_url).join({})
