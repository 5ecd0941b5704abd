"""What is said inside a savepoint that is rolled back leaves nothing: on every driver, in our transaction and in theirs."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from posthouse import App, Event, Payload, Service, Tx
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreError
from posthouse.processes import Aggregate, Saga, Turn, deadline, on, starts, undo
from posthouse.store import Timer
from posthouse.store.sagas import SagaFilter
from tests.integration.django_site import allowed_on_a_loop, django_on

Nested = Callable[[], AbstractAsyncContextManager[object]]


class Oops(Exception):
    """Leaves a savepoint."""


class Placed(Payload):
    order_id: str


class Paid(Payload):
    order_id: str
    cents: int


class Asked(Payload):
    order_id: str


class Shop:
    """A service with an event, an aggregate and a saga; `answer` is what its handler does."""

    def __init__(self, store: str) -> None:
        self.service = shop = Service("shop")
        App(shop, store=store, broker=MemoryBroker(clock=SystemClock()))
        shop.event("order.placed.v1", key="order_id")(Placed)
        shop.event("account.paid.v1", key="order_id")(Paid)
        shop.event("order.asked.v1", key="order_id")(Asked)
        self.answer: Callable[[Tx], Awaitable[None]] | None = None

        @shop.saga("order", correlate="order_id")
        class Order(Saga):
            order_id: str

            @starts
            async def begin(self, turn: Turn) -> None:
                turn.publish(Placed(order_id=f"saga {self.order_id}"))
                turn.set(self.overdue)

            @undo(begin)
            def take_back(self, turn: Turn) -> None: ...

            @deadline(600.0)
            def overdue(self, turn: Turn) -> None:
                turn.compensate("overdue")

            @on(Paid)
            def paid(self, event: Event[Paid], turn: Turn) -> None:
                turn.complete()

        @shop.on(Asked)
        async def asked(event: Event[Asked], tx: Tx) -> None:
            assert self.answer is not None
            await self.answer(tx)

        self.order: Any = Order
        self.accounts: Aggregate[int, Paid] = shop.aggregate(
            "account", initial=int, evolve=lambda total, paid: total + paid.cents, events=[Paid]
        )

    async def say_all(self, tx: Tx, name: str) -> None:
        """Everything that can be said."""
        tx.publish(Placed(order_id=name))
        await self.accounts.append(tx, name, [Paid(order_id=name, cents=1)], expected="new")
        await self.accounts.decide(tx, name, lambda total: [Paid(order_id=name, cents=total)])
        tx.publish(Placed(order_id=name), after=600.0, timer=f"timer {name}")
        await tx.cancel("standing")
        await self.service.start_saga(tx, self.order(order_id=name))

    async def tell(self, tx: Tx, nested: Nested) -> None:
        """Say things before, inside of two savepoints of which the inner one stays, and behind one that is rolled back."""
        tx.publish(Placed(order_id="before"))
        tx.publish(Placed(order_id="before"), after=600.0, timer="moved")
        with contextlib.suppress(Oops):
            async with nested():
                await self.say_all(tx, "gone")
                tx.publish(Placed(order_id="gone"), after=5.0, timer="moved")
                async with nested():
                    await self.say_all(tx, "gone too")
                tx.publish(Placed(order_id="gone"))
                raise Oops
        tx.publish(Placed(order_id="between"))
        with contextlib.suppress(Oops):
            async with nested():
                tx.publish(Placed(order_id="gone"))
                raise Oops
        tx.publish(Placed(order_id="behind"))
        async with nested():
            tx.publish(Placed(order_id="kept"))

    async def outcome(self) -> dict[str, Any]:
        store = app_of(self.service).store
        rows = await store.outbox.kept(0, 1000)
        timers = await store.timers.pending()
        async with self.service.transaction("t1") as tx:
            versions = [(await self.accounts.load(tx, name)).version for name in ("gone", "gone too")]
        return {
            "said": [row.key for row in rows if "placed" in row.topic or "order" in row.topic],
            "timers": sorted(timer.name for timer in timers),
            "moved": [_key(timer) for timer in timers if timer.name == "moved"],
            "versions": versions,
            "sagas": len(await store.sagas.find(SagaFilter())),
        }

    async def begin(self) -> None:
        await app_of(self.service).store.upgrade()
        async with self.service.transaction("t1") as tx:
            tx.publish(Placed(order_id="standing"), after=600.0, timer="standing")


def _key(timer: Timer) -> str | None:
    return timer.row.key


EXPECTED: dict[str, Any] = {
    "said": ["before", "between", "behind", "kept"],
    "timers": ["moved", "standing"],
    "moved": ["before"],
    "versions": [0, 0],
    "sagas": 0,
}


# A savepoint in the words of each library, on what the way gives.


def by_statement(run: Callable[[str], Any]) -> Nested:
    names = iter(f"by_hand_{number}" for number in range(100))

    @asynccontextmanager
    async def nested() -> AsyncIterator[None]:
        name = next(names)
        await _awaited(run(f"SAVEPOINT {name}"))
        try:
            yield
        except BaseException:
            await _awaited(run(f"ROLLBACK TO {name}"))
            await _awaited(run(f"RELEASE {name}"))
            raise
        await _awaited(run(f"RELEASE {name}"))

    return nested


async def _awaited(found: Any) -> None:
    if hasattr(found, "__await__"):
        await found


def made_async(block: Callable[[], Any]) -> Nested:
    @asynccontextmanager
    async def nested() -> AsyncIterator[None]:
        with block():
            yield

    return nested


Way = Callable[[str], AbstractAsyncContextManager[tuple[object, Nested]]]


@asynccontextmanager
async def on_asyncpg(url: str) -> AsyncIterator[tuple[object, Nested]]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection, connection.transaction
    finally:
        await connection.close()


@asynccontextmanager
async def on_asyncpg_by_hand(url: str) -> AsyncIterator[tuple[object, Nested]]:
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
    async with pool.acquire() as connection, connection.transaction():
        yield connection, by_statement(connection.fetch)
    await pool.close()


@asynccontextmanager
async def on_async_session(url: str) -> AsyncIterator[tuple[object, Nested]]:
    engine = create_async_engine(_sqlalchemy(url, "asyncpg"), poolclass=NullPool)
    _begin_by_hand(engine.sync_engine)
    async with AsyncSession(engine) as session:
        yield session, session.begin_nested
        await session.commit()
    await engine.dispose()


@asynccontextmanager
async def on_async_session_by_hand(url: str) -> AsyncIterator[tuple[object, Nested]]:
    async with on_async_session(url) as (session, _):
        run: Any = session
        yield session, by_statement(lambda sql: run.execute(text(sql)))


@asynccontextmanager
async def on_async_connection(url: str) -> AsyncIterator[tuple[object, Nested]]:
    engine = create_async_engine(_sqlalchemy(url, "psycopg"), poolclass=NullPool)
    _begin_by_hand(engine.sync_engine)
    async with engine.begin() as connection:
        yield connection, connection.begin_nested
    await engine.dispose()


@asynccontextmanager
async def on_session(url: str) -> AsyncIterator[tuple[object, Nested]]:
    engine = create_engine(_sqlalchemy(url, "psycopg").replace("+aiosqlite", ""), poolclass=NullPool)
    _begin_by_hand(engine)
    with Session(engine) as session:
        yield session, made_async(session.begin_nested)
        session.commit()
    engine.dispose()


@asynccontextmanager
async def on_psycopg(url: str) -> AsyncIterator[tuple[object, Nested]]:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT 1")
        yield connection, made_async(connection.transaction)


@asynccontextmanager
async def on_async_psycopg(url: str) -> AsyncIterator[tuple[object, Nested]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("SELECT 1")
        yield connection, connection.transaction


@asynccontextmanager
async def on_async_psycopg_by_hand(url: str) -> AsyncIterator[tuple[object, Nested]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection, by_statement(lambda sql: connection.execute(sql.encode()))


@asynccontextmanager
async def on_a_copy_of_djangos(url: str) -> AsyncIterator[tuple[object, Nested]]:
    """Another connection than that of the thread, under the same alias."""
    with allowed_on_a_loop(), django_on(url) as default:
        connection = default.copy()
        connection.set_autocommit(False)
        with connection.cursor() as cursor:
            yield connection, by_statement(cursor.execute)
        connection.commit()
        connection.close()


@asynccontextmanager
async def on_sqlite3(url: str) -> AsyncIterator[tuple[object, Nested]]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("BEGIN IMMEDIATE")
    yield connection, by_statement(connection.execute)
    connection.commit()
    connection.close()


@asynccontextmanager
async def on_aiosqlite(url: str) -> AsyncIterator[tuple[object, Nested]]:
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        await connection.execute("BEGIN IMMEDIATE")
        yield connection, by_statement(connection.execute)
        await connection.commit()


def _sqlalchemy(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://").replace("sqlite://", "sqlite+aiosqlite://")


def _begin_by_hand(engine: Any) -> None:
    """As SQLAlchemy says for SQLite, whose driver begins too late for savepoints."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))


JOINED: dict[str, tuple[str, Way]] = {
    "asyncpg": ("postgres", on_asyncpg),
    "asyncpg's pool, statements": ("postgres", on_asyncpg_by_hand),
    "AsyncSession": ("postgres", on_async_session),
    "AsyncSession, statements": ("postgres", on_async_session_by_hand),
    "AsyncConnection": ("postgres", on_async_connection),
    "Session": ("postgres", on_session),
    "psycopg": ("postgres", on_psycopg),
    "async psycopg": ("postgres", on_async_psycopg),
    "async psycopg, statements": ("postgres", on_async_psycopg_by_hand),
    "a copy of Django's connection": ("postgres", on_a_copy_of_djangos),
    "sqlite3": ("sqlite", on_sqlite3),
    "aiosqlite": ("sqlite", on_aiosqlite),
    "AsyncSession on SQLite": ("sqlite", on_async_session),
    "Session on SQLite": ("sqlite", on_session),
}


@pytest.fixture
def shop_on(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], tuple[Shop, str]]:
    def make(kind: str) -> tuple[Shop, str]:
        url = request.getfixturevalue("postgres_url") if kind == "postgres" else f"sqlite:///{tmp_path / 'shop.db'}"
        return Shop(url), url

    return make


@pytest.mark.parametrize("ours", [False, True], ids=["theirs", "tx.savepoint"])
@pytest.mark.parametrize("way", JOINED)
async def test_a_savepoint_rolled_back_in_a_joined_transaction_leaves_nothing(
    way: str, ours: bool, shop_on: Callable[[str], tuple[Shop, str]]
) -> None:
    kind, joining = JOINED[way]
    shop, url = shop_on(kind)
    await shop.begin()
    async with joining(url) as (theirs, nested), shop.service.joined(theirs, "t1") as tx:
        await shop.tell(tx, tx.savepoint if ours else nested)
    assert await shop.outcome() == EXPECTED
    await shop.service.aclose()


def own_ways(tx: Tx) -> dict[str, Nested]:
    """How a savepoint is set in a transaction that is ours."""
    connection: Any = tx.connection
    ways: dict[str, Nested] = {"tx.savepoint": tx.savepoint, "tx.execute": by_statement(tx.execute)}
    if isinstance(connection, sqlite3.Connection):
        ways["the connection"] = by_statement(connection.execute)
        ways["a cursor"] = by_statement(lambda sql: connection.cursor().execute(sql))
    else:
        ways["the connection"] = connection.transaction
        ways["a cursor"] = by_statement(connection.fetchrow)
    return ways


WAYS = ["tx.savepoint", "tx.execute", "the connection", "a cursor"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_a_savepoint_rolled_back_in_our_transaction_leaves_nothing(
    kind: str, way: str, shop_on: Callable[[str], tuple[Shop, str]]
) -> None:
    shop, _ = shop_on(kind)
    await shop.begin()
    async with shop.service.transaction("t1") as tx:
        await shop.tell(tx, tx.savepoint if way == "tx.savepoint" else own_ways(tx)[way])
    assert await shop.outcome() == EXPECTED
    await shop.service.aclose()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_a_savepoint_rolled_back_in_a_handler_leaves_nothing(
    kind: str, way: str, shop_on: Callable[[str], tuple[Shop, str]]
) -> None:
    shop, _ = shop_on(kind)
    await shop.begin()
    shop.answer = lambda tx: shop.tell(tx, own_ways(tx)[way])
    async with shop.service.transaction("t1") as tx:
        tx.publish(Asked(order_id="o1"))
    async with asyncio.timeout(20.0), shop.service.running():
        while not sum((await app_of(shop.service).store.counts()).applied.values()):  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0.02)
        found = await shop.outcome()
    assert found == {**EXPECTED, "said": ["o1", *EXPECTED["said"]]}
    await shop.service.aclose()


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_a_savepoint_from_before_the_block_that_is_rolled_back_inside_it_is_refused(
    kind: str, shop_on: Callable[[str], tuple[Shop, str]]
) -> None:
    shop, url = shop_on(kind)
    await shop.begin()
    way = on_async_psycopg_by_hand if kind == "postgres" else on_aiosqlite
    async with way(url) as (theirs, _):
        connection: Any = theirs
        await connection.execute("SAVEPOINT outside")

        async def roll_back_inside() -> None:
            async with shop.service.joined(theirs, "t1") as tx:
                tx.publish(Placed(order_id="lost"))
                await connection.execute("ROLLBACK TO outside")
                tx.publish(Placed(order_id="behind"))

        with pytest.raises(StoreError, match="savepoint"):
            await roll_back_inside()
    assert (await shop.outcome())["said"] == []
    await shop.service.aclose()


@pytest.mark.parametrize("way", ["asyncpg", "AsyncSession", "async psycopg", "aiosqlite", "sqlite3"])
async def test_what_was_said_before_the_whole_transaction_was_rolled_back_is_refused(
    way: str, shop_on: Callable[[str], tuple[Shop, str]]
) -> None:
    kind, joining = JOINED[way]
    shop, url = shop_on(kind)
    await shop.begin()

    async def roll_back_inside() -> None:
        async with joining(url) as (theirs, _), shop.service.joined(theirs, "t1") as tx:
            connection: Any = theirs
            tx.publish(Placed(order_id="gone"))
            await _awaited(connection.execute("ROLLBACK") if way == "asyncpg" else connection.rollback())
            if way == "asyncpg":
                await connection.execute("BEGIN")

    with pytest.raises(
        (StoreError, asyncpg.InterfaceError)
    ):  # the second: what asyncpg makes of the first on its way out
        await roll_back_inside()
    assert (await shop.outcome())["said"] == []
    await shop.service.aclose()


async def test_words_in_a_text_are_no_savepoint(postgres_url: str) -> None:
    shop = Shop(postgres_url)
    await shop.begin()
    async with shop.service.transaction("t1") as tx:
        tx.publish(Placed(order_id="before"))
        await tx.execute("SAVEPOINT a")
        tx.publish(Placed(order_id="inside"))
        connection: Any = tx.connection
        await connection.execute("SELECT '; ROLLBACK TO a' /* ; ROLLBACK TO a */")
        await connection.execute("DO $x$ BEGIN PERFORM 1; /*; ROLLBACK TO a */ END $x$")
    assert (await shop.outcome())["said"] == ["before", "inside"]
    await shop.service.aclose()


NAMES = {
    "sqlite": ["a", '"a"', "'a'", "`a`", "[a]", "é", '"a""b"', "/* it's */ a", "-- it's\n a"],
    "postgres": ["a", '"a"', '"a""b"', "/* it's /* nested */ */ a", "-- it's\n a", 'U&"a"'],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names])
async def test_a_savepoint_is_followed_or_refused_however_its_name_is_written(
    kind: str, name: str, shop_on: Callable[[str], tuple[Shop, str]]
) -> None:
    shop, _ = shop_on(kind)
    await shop.begin()

    async def roll_back_inside() -> None:
        async with shop.service.transaction("t1") as tx:
            tx.publish(Placed(order_id="before"))
            await tx.execute(f"SAVEPOINT {name}")
            tx.publish(Placed(order_id="gone"))
            await tx.execute(f"ROLLBACK TO {name}")

    if "nested" in name or "U&" in name:
        with pytest.raises(StoreError, match="savepoints is not understood"):
            await roll_back_inside()
        assert (await shop.outcome())["said"] == []
    else:
        await roll_back_inside()
        assert (await shop.outcome())["said"] == ["before"]
    await shop.service.aclose()


@pytest.mark.parametrize("way", ["sqlite3", "aiosqlite", "AsyncSession on SQLite", "Session on SQLite"])
async def test_what_was_said_before_an_error_that_ended_a_joined_transaction_is_refused(
    way: str, shop_on: Callable[[str], tuple[Shop, str]]
) -> None:
    kind, joining = JOINED[way]
    shop, url = shop_on(kind)
    await shop.begin()
    async with shop.service.transaction("t1") as tx:
        await tx.execute("CREATE TABLE mine (name TEXT PRIMARY KEY)")
        await tx.execute("INSERT INTO mine VALUES ('a')")

    async def go_on_behind_an_error(run: Any) -> None:
        async with shop.service.joined(run, "t1") as tx:
            wrap: Callable[[str], Any] = text if "Session" in way else str
            tx.publish(Placed(order_id="gone"))
            with pytest.raises(Exception, match="UNIQUE"):
                await _awaited(run.execute(wrap("INSERT OR ROLLBACK INTO mine VALUES ('a')")))
            await _awaited(run.execute(wrap("BEGIN")))
            await _awaited(run.execute(wrap("INSERT INTO mine VALUES ('b')")))

    async with joining(url) as (theirs, _):
        with pytest.raises(StoreError, match="ended before its block"):
            await go_on_behind_an_error(theirs)
    assert (await shop.outcome())["said"] == []
    await shop.service.aclose()


@pytest.mark.parametrize("asynchronous", [True, False], ids=["AsyncConnection", "Connection"])
async def test_savepoints_on_a_psycopg_cursor_from_before_the_block_are_followed(
    asynchronous: bool, postgres_url: str
) -> None:
    shop = Shop(postgres_url)
    await shop.begin()
    connection: Any = (
        await psycopg.AsyncConnection.connect(postgres_url) if asynchronous else psycopg.connect(postgres_url)
    )
    cursors = [connection.cursor(), connection.cursor()]
    async with shop.service.joined(connection, "t1") as tx:
        for number, cursor in enumerate([*cursors, connection.cursor(), connection]):
            tx.publish(Placed(order_id=f"before {number}"))
            await _awaited(cursor.execute("SAVEPOINT a"))
            tx.publish(Placed(order_id="gone"))
            if number == 1:
                await _awaited(cursor.executemany("ROLLBACK TO SAVEPOINT a", [()]))
            else:
                await _awaited(
                    cursor.execute(psycopg.sql.SQL("ROLLBACK TO SAVEPOINT {}").format(psycopg.sql.Identifier("a")))
                )
    await _awaited(connection.commit())
    assert (await shop.outcome())["said"] == [f"before {number}" for number in range(4)]
    await _awaited(connection.close())
    await shop.service.aclose()


async def test_a_savepoint_in_a_prepared_statement_is_refused(postgres_url: str) -> None:
    shop = Shop(postgres_url)
    await shop.begin()

    async def roll_back_inside() -> None:
        async with shop.service.transaction("t1") as tx:
            connection: Any = tx.connection
            await connection.execute("SAVEPOINT a")
            tx.publish(Placed(order_id="gone"))
            await (await connection.prepare("ROLLBACK TO a")).fetch()

    with pytest.raises(StoreError, match="not known"):
        await roll_back_inside()
    assert (await shop.outcome())["said"] == []
    await shop.service.aclose()
