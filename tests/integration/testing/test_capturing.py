"""The outbox that keeps what is said for the test, on every library's transactions: no table of ours, no broker, and what is rolled
back was not said."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from posthouse import App, Payload, Saga, Service, Turn, starts
from posthouse.errors import ConfigurationError, EventTooLarge, StoreError
from posthouse.seam.seals import SEAL
from posthouse.testing import Said, capture_outbox
from posthouse.testing.capturing import FOR_TESTS
from tests.integration.django_site import allowed_on_a_loop, django_on
from tests.kit.servers.postgres import PostgresServer
from tests.kit.signing import Keys


class OrderPlaced(Payload):
    order_id: str


class WordSaid(Payload):
    word: str


class Shop:
    """A service as it is in production: its store has no tables, its broker does not exist."""

    def __init__(self, store: str) -> None:
        self.service = Service("shop")
        App(self.service, store=store, broker="nats://nobody.invalid:4222")
        self.placed = self.service.event("order.placed.v1", key="order_id")(OrderPlaced)

    def ids(self, said: Said) -> list[str]:
        return [event.data.order_id for event in said.of(self.placed)]


# A door: opens a transaction of one library, gives what can be joined and how a statement is run, and commits unless it fails.
Door = Callable[[str], Any]
Run = Callable[[str], Any]


@contextmanager
def by_psycopg(url: str) -> Iterator[tuple[Any, Run]]:
    with closing(psycopg.connect(url)) as connection, connection:  # a commit that fails leaves it open
        yield connection, connection.execute


@contextmanager
def by_session(url: str) -> Iterator[tuple[Any, Run]]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with Session(engine) as session, session.begin():
            yield session, lambda sql: session.execute(text(sql))
    finally:
        engine.dispose()


@contextmanager
def by_django(url: str) -> Iterator[tuple[Any, Run]]:
    from django.db import transaction

    with allowed_on_a_loop(), django_on(url) as connection, transaction.atomic():
        yield connection, lambda sql: connection.cursor().execute(sql)


@contextmanager
def by_sqlite3(url: str) -> Iterator[tuple[Any, Run]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("BEGIN")
        yield connection, connection.execute


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[tuple[Any, Run]]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection, connection.execute
    finally:
        await connection.close()


@asynccontextmanager
async def by_async_psycopg(url: str) -> AsyncIterator[tuple[Any, Run]]:
    connection = await psycopg.AsyncConnection.connect(url)
    try:
        async with connection:
            yield connection, connection.execute
    finally:
        await connection.close()


@asynccontextmanager
async def by_async_session(url: str) -> AsyncIterator[tuple[Any, Run]]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session, lambda sql: session.execute(text(sql))
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_aiosqlite(url: str) -> AsyncIterator[tuple[Any, Run]]:
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        await connection.execute("BEGIN")
        try:
            yield connection, connection.execute
        except BaseException:
            await connection.rollback()
            raise
        await connection.commit()


PLAIN: list[Door] = [by_psycopg, by_session, by_django, by_sqlite3]
ASYNCHRONOUS: list[Door] = [by_asyncpg, by_async_psycopg, by_async_session, by_aiosqlite]


@pytest.fixture
def url(door: Door, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if "sqlite" in door.__name__:
        return f"sqlite:///{tmp_path}/shop.db"
    return str(request.getfixturevalue("postgres_url"))


class Oops(Exception):
    pass


@pytest.mark.parametrize("door", PLAIN, ids=lambda door: door.__name__)
def test_a_plain_transaction_says_what_it_commits(door: Door, url: str) -> None:
    shop = Shop(url)
    add = shop.service.outbox.add_now
    with capture_outbox(shop.service) as said:
        with door(url) as (theirs, run):
            add(theirs, shop.placed(order_id="kept"))
            run("SAVEPOINT part")
            add(theirs, shop.placed(order_id="unsaid"))
            run("ROLLBACK TO SAVEPOINT part")
            with shop.service.outbox.joined(theirs, "t2") as tx:
                tx.publish(shop.placed(order_id="joined"))
                tx.publish(shop.placed(order_id="later"), after=60.0, timer="soon")
        with contextlib.suppress(Oops), door(url) as (theirs, run):
            add(theirs, shop.placed(order_id="lost"))
            raise Oops
    assert shop.ids(said) == ["kept", "joined"]
    assert [event.tenant for event in said.of(shop.placed)] == ["default", "t2"]
    assert [(later.event.data.order_id, later.after, later.timer) for later in said.later(shop.placed)] == [
        ("later", 60.0, "soon")
    ]
    assert said.subjects == ["shop.order.placed.v1"] * 2


@pytest.mark.parametrize("door", ASYNCHRONOUS, ids=lambda door: door.__name__)
async def test_an_asynchronous_transaction_says_what_it_commits(door: Door, url: str) -> None:
    shop = Shop(url)
    add = shop.service.outbox.add
    with capture_outbox(shop.service) as said:
        async with door(url) as (theirs, run):
            await add(theirs, shop.placed(order_id="kept"))
            await run("SAVEPOINT part")
            await add(theirs, shop.placed(order_id="unsaid"))
            await run("ROLLBACK TO SAVEPOINT part")
            async with shop.service.joined(theirs) as tx:
                tx.publish(shop.placed(order_id="joined"))
        with contextlib.suppress(Oops):
            async with door(url) as (theirs, run):
                await add(theirs, shop.placed(order_id="lost"))
                raise Oops
        await asyncio.sleep(0)
    assert shop.ids(said) == ["kept", "joined"]


# A row that is looked at when the transaction ends, and then refused.
DEFERRED = (
    "CREATE TABLE head (id int PRIMARY KEY); CREATE TABLE line (id int REFERENCES head DEFERRABLE INITIALLY DEFERRED)"
)
REFUSED_LATE = "INSERT INTO line VALUES (99)"
ON_POSTGRES = ("by_psycopg", "by_session", "by_django", "by_asyncpg", "by_async_psycopg", "by_async_session")


@asynccontextmanager
async def through(door: Door, url: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    """A door of either kind, whose statements are awaited."""

    async def awaited(run: Run, sql: str) -> None:
        found = run(sql)
        if inspect.isawaitable(found):
            await found

    opened = door(url)
    if hasattr(opened, "__aenter__"):
        async with opened as (theirs, run):
            yield theirs, partial(awaited, run)
    else:
        with opened as (theirs, run):
            yield theirs, partial(awaited, run)


@pytest.mark.parametrize(
    "door", [door for door in (*PLAIN, *ASYNCHRONOUS) if door.__name__ in ON_POSTGRES], ids=lambda door: door.__name__
)
async def test_a_commit_that_did_not_happen_says_nothing(door: Door, url: str) -> None:
    """PostgreSQL may refuse a COMMIT, and answers ROLLBACK to one of a transaction in which a statement has failed."""
    shop = Shop(url)
    with psycopg.connect(url) as connection:
        connection.execute(DEFERRED.encode())

    async def say(theirs: Any, word: str) -> None:
        if isinstance(theirs, psycopg.AsyncConnection | asyncpg.Connection | AsyncSession):
            await shop.service.outbox.add(theirs, shop.placed(order_id=word))
        else:
            shop.service.outbox.add_now(theirs, shop.placed(order_id=word))

    with capture_outbox(shop.service) as said:
        with contextlib.suppress(Exception):
            async with through(door, url) as (theirs, run):
                await say(theirs, "refused")
                await run(REFUSED_LATE)
        async with through(door, url) as (theirs, run):
            await say(theirs, "kept")
            await run("SAVEPOINT part")
            with contextlib.suppress(Exception):
                await run("SELECT 1/0")
            await run("ROLLBACK TO SAVEPOINT part")
        with contextlib.suppress(Exception):  # SQLAlchemy and Django roll back by themselves
            async with through(door, url) as (theirs, run):
                await say(theirs, "passed over")
                with contextlib.suppress(Exception):
                    await run("SELECT 1/0")
        await asyncio.sleep(0)
        assert shop.ids(said) == ["kept"]


@pytest.mark.parametrize("door", [by_psycopg])
def test_a_commit_that_failed_leaves_the_one_before_it(door: Door, url: str) -> None:
    shop = Shop(url)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with capture_outbox(shop.service) as said:
        with psycopg.connect(url) as connection:
            connection.execute(DEFERRED.encode())
            shop.service.outbox.add_now(connection, shop.placed(order_id="kept"))
            connection.commit()
            connection.execute(REFUSED_LATE.encode())
            with pytest.raises(psycopg.errors.ForeignKeyViolation):
                connection.commit()
        with engine.connect() as sqlalchemy:
            shop.service.outbox.add_now(sqlalchemy, shop.placed(order_id="too"))
            sqlalchemy.commit()
            sqlalchemy.execute(text(REFUSED_LATE))
            with pytest.raises(IntegrityError):
                sqlalchemy.commit()
        assert shop.ids(said) == ["kept", "too"]
    engine.dispose()


@pytest.mark.parametrize("door", [by_psycopg])
async def test_a_connection_that_was_closed_says_nothing(door: Door, url: str) -> None:
    shop = Shop(url)
    with capture_outbox(shop.service) as said:
        closing_soon = psycopg.connect(url)
        shop.service.outbox.add_now(closing_soon, shop.placed(order_id="o1"))
        assert shop.ids(said) == ["o1"], "it may still be committed"
        closing_soon.close()
        connection = await asyncpg.connect(url)
        await connection.transaction().start()
        await shop.service.outbox.add(connection, shop.placed(order_id="o2"))
        await connection.close()
        assert shop.ids(said) == []


@pytest.mark.parametrize("door", [by_psycopg])
def test_a_transaction_that_reads_only_is_refused(door: Door, url: str) -> None:
    shop = Shop(url)
    with capture_outbox(shop.service), psycopg.connect(url) as connection:
        connection.read_only = True
        with pytest.raises(StoreError, match="READ ONLY"):
            shop.service.outbox.add_now(connection, shop.placed(order_id="o1"))


@pytest.mark.parametrize("door", [by_async_session, by_aiosqlite], ids=["PostgreSQL", "SQLite"])
async def test_transactions_of_the_service_itself_need_no_tables_either(door: Door, url: str) -> None:
    shop = Shop(url)
    async with capture_outbox(shop.service) as said:
        async with shop.service.running(), shop.service.transaction() as tx:
            await tx.execute("CREATE TABLE parcel (order_id text)")
            tx.publish(shop.placed(order_id="kept"))
        with contextlib.suppress(Oops):
            async with shop.service.transaction() as tx:
                tx.publish(shop.placed(order_id="lost"))
                raise Oops
        assert await shop.service.record("INSERT INTO parcel VALUES ('o1')", (), shop.placed(order_id="recorded"))
        assert not await shop.service.record("DELETE FROM parcel WHERE order_id = 'x'", (), shop.placed(order_id="not"))
    assert shop.ids(said) == ["kept", "recorded"]


@pytest.mark.parametrize("door", [by_psycopg])
def test_facts_are_checked_as_ever(door: Door, url: str) -> None:
    shop = Shop(url)
    foreign = Service("other").event("word.said.v1")(WordSaid)
    with capture_outbox(shop.service) as said, psycopg.connect(url) as connection:
        outbox = shop.service.outbox
        with pytest.raises(ConfigurationError, match="belongs to the service 'other'"):
            outbox.add_now(connection, foreign(word="a"))
        with pytest.raises(EventTooLarge):
            outbox.add_now(connection, shop.placed(order_id="x" * 300_000))
        with pytest.raises(ConfigurationError, match="cannot join a builtins"):
            outbox.add_now(object(), shop.placed(order_id="o1"))
        (first,) = outbox.add_now(connection, shop.placed(order_id="once"), idempotency_key="i1")
        assert outbox.add_now(connection, shop.placed(order_id="twice"), idempotency_key="i1") == [first]
        connection.commit()
        connection.autocommit = True
        with pytest.raises(ConfigurationError, match="commits every statement by itself"):
            outbox.add_now(connection, shop.placed(order_id="o1"))
    assert shop.ids(said) == ["once"]


@pytest.mark.parametrize("door", [by_psycopg, by_aiosqlite], ids=["PostgreSQL", "SQLite"])
async def test_facts_that_are_signed_are_captured_too(door: Door, url: str, tmp_path: Path) -> None:
    shop, keys = Shop(url), Keys(tmp_path)
    keys.make("shop-1")
    App(shop.service, store=url, broker="nats://nobody.invalid:4222", signing=keys.signing("shop-1"))
    async with capture_outbox(shop.service) as said:
        async with shop.service.transaction() as tx:
            for order, intent in (("a", "1"), ("b", "2"), ("a", "3"), ("not", "1")):
                tx.publish(shop.placed(order_id=order), idempotency_key=intent)
            tx.publish(shop.placed(order_id="later"), after=60.0)
        with contextlib.suppress(Oops):
            async with shop.service.transaction() as tx:
                tx.publish(shop.placed(order_id="lost"))
                raise Oops
        assert shop.ids(said) == ["a", "b", "a"]
        assert all(event.extensions[SEAL] for event in said.of(shop.placed))
        assert [one.event.data.order_id for one in said.later(shop.placed)] == ["later"]


@pytest.mark.parametrize("door", [by_psycopg])
def test_a_saga_is_left_to_the_harness(door: Door, url: str) -> None:
    shop = Shop(url)

    @shop.service.saga("wait", correlate="id")
    class Wait(Saga):
        id: str

        @starts
        def begin(self, turn: Turn) -> None: ...

    with (
        capture_outbox(shop.service),
        psycopg.connect(url) as theirs,
        shop.service.outbox.joined(theirs) as tx,
        pytest.raises(ConfigurationError, match=r"a saga is not captured: .* Test it with the Harness"),
    ):
        tx.call(shop.service.start_saga, Wait(id="w1"))


@pytest.mark.parametrize("door", [by_session])
def test_afterwards_the_service_is_as_it_was_and_the_session_is_not_listened_to(door: Door, url: str) -> None:
    shop = Shop(url)
    host = shop.service.host
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        with capture_outbox(shop.service) as said:
            for number in range(3):  # a session takes another connection with each transaction
                shop.service.outbox.add_now(session, shop.placed(order_id=str(number)))
                session.rollback() if number == 1 else session.commit()
        assert shop.ids(said) == ["0", "2"]
        with pytest.raises(Exception, match="posthouse db upgrade"):
            shop.service.outbox.add_now(session, shop.placed(order_id="o1"))
    assert shop.service.host is host
    assert shop.ids(said) == ["0", "2"]
    engine.dispose()


async def test_code_that_is_connected_to_another_database_than_the_session_made_is_refused(
    posthouse_store: str, postgres_server: PostgresServer
) -> None:
    shop = Shop(postgres_server.url)  # as a module that was imported before anybody set its DATABASE_URL
    with (
        capture_outbox(shop.service) as said,
        psycopg.connect(postgres_server.url) as connection,
        pytest.raises(
            ConfigurationError, match=r"connected to the database 'postgres', .* posthouse_test_.*posthouse_url`"
        ),
    ):
        shop.service.outbox.add_now(connection, OrderPlaced(order_id="o1"), tenant="t1")
    with pytest.raises(ConfigurationError, match="connected to the database 'postgres'"):
        async with capture_outbox(shop.service), shop.service.transaction(tenant="t1"):
            raise AssertionError("it was begun")
    with capture_outbox(shop.service) as said, psycopg.connect(posthouse_store.partition("?")[0]) as connection:
        shop.service.outbox.add_now(connection, OrderPlaced(order_id="o1"), tenant="t1")
    assert shop.ids(said) == ["o1"]


@pytest.mark.parametrize(
    ("name", "suits"), [("test_shop", True), ("shop-test", True), ("latest", False), ("shop", False)]
)
def test_a_database_is_for_tests_when_its_name_says_so(name: str, suits: bool) -> None:
    assert bool(FOR_TESTS.search(name)) is suits


async def test_what_a_commit_or_a_closed_connection_undid_was_not_said(posthouse_store: str) -> None:
    url = posthouse_store.partition("?")[0]
    shop, one = Shop(url), OrderPlaced(order_id="o1")
    late = "CREATE TEMPORARY TABLE late (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED); INSERT INTO late VALUES (1), (1)"
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))

    async def by_session() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await shop.service.outbox.add(session, one)
            await session.execute(text(late))

    def by_psycopg() -> None:
        with closing(psycopg.connect(url)) as connection:
            shop.service.outbox.add_now(connection, one)
            connection.execute(late)
            connection.commit()

    with capture_outbox(shop.service) as said:
        with pytest.raises(IntegrityError):
            await by_session()
        with pytest.raises(psycopg.errors.UniqueViolation):
            by_psycopg()
        with closing(psycopg.connect(url)) as connection:
            shop.service.outbox.add_now(connection, one)
        assert said.subjects == []
        with psycopg.connect(url) as connection:
            shop.service.outbox.add_now(connection, one)
        async with AsyncSession(engine) as session:
            await shop.service.outbox.add(session, one)
            await session.commit()
            await session.execute(text("SELECT 1"))
            await session.rollback()
    assert shop.ids(said) == ["o1", "o1"]
    await engine.dispose()
