"""`service.record`: one statement and its facts commit together, whatever becomes of the statement."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from posthouse import App, Payload, Service
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import CommitUnknown, ConfigurationError, StoreError
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import drain
from tests.kit.servers.postgres import PostgresServer
from tests.kit.waiting import eventually

TENANT = "t1"
CREATE = "CREATE TABLE orders (name text PRIMARY KEY, state text NOT NULL DEFAULT 'open')"
ADD = {"sqlite": "INSERT INTO orders (name) VALUES (?)", "postgresql": "INSERT INTO orders (name) VALUES ($1)"}
CLOSE = "UPDATE orders SET state = 'closed' WHERE state = 'open'"


class Placed(Payload):
    order_id: str


class Closed(Payload):
    order_id: str


def shop_on(store: str | PostgresStore) -> Service:
    shop = Service("shop")
    App(shop, store=store, broker=MemoryBroker(clock=SystemClock()))
    shop.event("order.placed.v1", key="order_id")(Placed)
    shop.event("order.closed.v1", key="order_id")(Closed)
    return shop


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    if request.param == "postgresql":
        url = f"{request.getfixturevalue('postgres_url')}?writers=1"
    shop = shop_on(url)
    await app_of(shop).store.upgrade()
    async with shop.transaction(TENANT) as tx:
        await tx.execute(CREATE)
    yield shop
    await shop.aclose()


@pytest_asyncio.fixture
async def on_postgres(postgres_url: str) -> AsyncIterator[Service]:
    shop = shop_on(PostgresStore(postgres_url, writers=1))
    await app_of(shop).store.upgrade()
    async with shop.transaction(TENANT) as tx:
        await tx.execute(CREATE)
    yield shop
    await shop.aclose()


def library(shop: Service) -> str:
    return (
        app_of(shop).opened.ports.store_url.partition(":")[0]
        if "://" in app_of(shop).opened.ports.store_url
        else "postgresql"
    )


async def said(shop: Service) -> list[tuple[str, str | None, int | None]]:
    return [(sent.topic, sent.key, sent.sequence) for sent in await drain(app_of(shop).store)]


async def orders(shop: Service) -> list[tuple[object, ...]]:
    async with shop.transaction(TENANT) as tx:
        return sorted(await tx.execute("SELECT name, state FROM orders"))


async def test_a_statement_and_its_fact_commit_together(shop: Service) -> None:
    add = ADD[library(shop)]
    assert await shop.record(add, ("a",), Placed(order_id="a"), tenant=TENANT)
    assert await shop.record(add, ("b",), Placed(order_id="a"), tenant=TENANT)
    assert await orders(shop) == [("a", "open"), ("b", "open")]
    assert await said(shop) == [("shop.order", "a", 1), ("shop.order", "a", 2)]


async def test_a_statement_that_changes_nothing_has_nothing_to_say(shop: Service) -> None:
    assert not await shop.record(CLOSE, (), Closed(order_id="a"), tenant=TENANT)
    unless_there = f"{ADD[library(shop)]} ON CONFLICT DO NOTHING"
    assert await shop.record(unless_there, ("a",), Placed(order_id="a"), tenant=TENANT)
    assert not await shop.record(unless_there, ("a",), Placed(order_id="a"), tenant=TENANT)
    assert await said(shop) == [("shop.order", "a", 1)]


async def test_a_fact_about_many_rows_is_said_once(shop: Service) -> None:
    for name in "abc":
        await shop.record(ADD[library(shop)], (name,), Placed(order_id=name), tenant=TENANT)
    await drain(app_of(shop).store)
    assert await shop.record(CLOSE, (), Closed(order_id="all"), tenant=TENANT)
    assert await orders(shop) == [("a", "closed"), ("b", "closed"), ("c", "closed")]
    assert await said(shop) == [("shop.order", "all", 1)]


async def test_several_facts_may_follow_from_one_statement(shop: Service) -> None:
    assert await shop.record(ADD[library(shop)], ("a",), Placed(order_id="a"), Closed(order_id="a"), tenant=TENANT)
    assert await said(shop) == [("shop.order", "a", 1), ("shop.order", "a", 2)]


async def test_a_statement_that_fails_says_nothing(shop: Service) -> None:
    assert await shop.record(ADD[library(shop)], ("a",), Placed(order_id="a"), tenant=TENANT)
    with pytest.raises(StoreError, match=r"(?i)unique"):
        await shop.record(ADD[library(shop)], ("a",), Placed(order_id="a"), tenant=TENANT)
    assert await said(shop) == [("shop.order", "a", 1)]


async def test_nothing_to_say_is_refused(shop: Service) -> None:
    with pytest.raises(ConfigurationError, match="no fact"):
        await shop.record(ADD[library(shop)], ("a",), tenant=TENANT)
    assert await orders(shop) == []


@pytest.mark.parametrize(
    ("sql", "parameters", "messages"),
    [
        ("INSERT INTO orders (name) VALUES ($1)", ["a"], 1),
        ("INSERT INTO orders (name) VALUES (:name)", {"name": "a"}, 1),
        ("insert into orders (name) values ($1) returning name -- the last word", ["a"], 1),
        ("INSERT INTO orders (name) VALUES ($1);", ["a"], 1),
        ("INSERT INTO orders (name) VALUES ('the $2nd')", [], 3),
        ("WITH a AS (SELECT 1) INSERT INTO orders (name) SELECT $1 FROM a", ["a"], 3),
        ("INSERT INTO orders (name) VALUES ('returning')", [], 4),
    ],
)
async def test_on_postgres_it_is_one_statement_where_it_can_be(
    on_postgres: Service, sql: str, parameters: Sequence[object], messages: int
) -> None:
    heard: list[str] = []
    store: Any = app_of(on_postgres).store
    connection = await store._database.acquire()
    await store._database.release(connection)  # there is one: it comes again
    with connection.query_logger(lambda record: heard.append(record.query)):
        assert await on_postgres.record(sql, parameters, Placed(order_id="a"), tenant=TENANT)
        await asyncio.sleep(0)  # the driver tells of the last one in the next turn of the loop
    assert len(heard) == messages
    assert len(await orders(on_postgres)) == 1
    assert await said(on_postgres) == [("shop.order", "a", 1)]


async def test_a_relay_is_told_of_it_at_once(on_postgres: Service) -> None:
    store: Any = app_of(on_postgres).store
    notifier = store._database.notifier
    heard = await notifier.wait(-1, 0)
    assert not await on_postgres.record(CLOSE, (), Closed(order_id="a"), tenant=TENANT)
    assert await notifier.wait(heard, 0) == heard
    assert await on_postgres.record(ADD["postgresql"], ("a",), Placed(order_id="a"), tenant=TENANT)
    assert await notifier.wait(heard, 0) == heard + 1


@pytest.mark.parametrize("parameters", [("a",), ("a", "open", "more")])
async def test_ours_never_take_the_places_of_parameters_that_are_missing(
    on_postgres: Service, parameters: Sequence[object]
) -> None:
    with pytest.raises(StoreError):
        await on_postgres.record(
            "INSERT INTO orders (name, state) VALUES ($1, $2)", parameters, Placed(order_id="a"), tenant=TENANT
        )
    assert await orders(on_postgres) == []
    assert await said(on_postgres) == []


async def test_where_transactions_are_stricter_it_is_done_step_by_step(on_postgres: Service, postgres_url: str) -> None:
    connection: Any = await asyncpg.connect(postgres_url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    shop = shop_on(PostgresStore(postgres_url, writers=8))
    try:
        many = [
            shop.record("INSERT INTO orders (name) VALUES ($1)", (str(n),), Placed(order_id="a"), tenant=TENANT)
            for n in range(40)
        ]
        assert all(await asyncio.gather(*many))
    finally:
        await shop.aclose()
        await connection.close()
    assert sorted(number or 0 for _, _, number in await said(on_postgres)) == list(range(1, 41))


SLOW = "INSERT INTO orders (name) SELECT $1 FROM pg_sleep(30)"
RUNNING = "FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%' AND state = 'active' AND pid <> pg_backend_pid()"


async def until_found(url: str, what: str) -> None:
    connection: Any = await asyncpg.connect(url)
    await eventually(lambda: connection.fetch(f"SELECT {what} {RUNNING}"))
    await connection.close()


async def test_an_answer_that_was_lost_is_unknown(on_postgres: Service, postgres_url: str) -> None:
    recording = asyncio.create_task(on_postgres.record(SLOW, ("a",), Placed(order_id="a"), tenant=TENANT))
    await until_found(postgres_url, "pg_terminate_backend(pid)")
    with pytest.raises(CommitUnknown, match="may or may not"):
        await recording
    assert await orders(on_postgres) == []
    assert await said(on_postgres) == []


async def test_one_that_was_cancelled_leaves_neither_a_seat_nor_a_statement(
    on_postgres: Service, postgres_url: str
) -> None:
    recording = asyncio.create_task(on_postgres.record(SLOW, ("a",), Placed(order_id="a"), tenant=TENANT))
    await until_found(postgres_url, "pid")
    recording.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recording
    async with asyncio.timeout(20):
        assert await on_postgres.record(
            "INSERT INTO orders (name) VALUES ($1)", ("b",), Placed(order_id="b"), tenant=TENANT
        )
    assert await orders(on_postgres) == [("b", "open")]


@pytest.mark.parametrize(
    "options", [{"pooler": "transaction"}, {"isolation": True, "runtime_url": "postgresql://runtime@nowhere/shop"}]
)
async def test_it_is_done_step_by_step_where_a_statement_alone_would_not_do(options: dict[str, Any]) -> None:
    store = PostgresStore("postgresql://nowhere/shop", **options)
    assert await store.append_after("INSERT INTO orders (name) VALUES ($1)", ("a",), row("k")) is None
    await store.aclose()


async def test_it_works_behind_a_pooler(pgbouncer: PostgresServer, postgres_url: str) -> None:
    direct = shop_on(PostgresStore(postgres_url))
    await app_of(direct).store.upgrade()
    async with direct.transaction(TENANT) as tx:
        await tx.execute(CREATE)
    shop = shop_on(PostgresStore(pgbouncer.url_of(postgres_url.rpartition("/")[2]), pooler="transaction"))
    assert await shop.record("INSERT INTO orders (name) VALUES ($1)", ("a",), Placed(order_id="a"), tenant=TENANT)
    assert await said(direct) == [("shop.order", "a", 1)]
    await shop.aclose()
    await direct.aclose()


async def test_what_a_statement_writes_is_not_read_as_our_names(postgres_url: str) -> None:
    shop = shop_on(PostgresStore(postgres_url, schema="shop_events", writers=1))
    await app_of(shop).store.upgrade()
    async with shop.transaction(TENANT) as tx:
        await tx.execute(CREATE)
    words = ["ops@posthouse.io", "{schema}", "{ours}", "{theirs}"]
    values = ", ".join(f"('{word}')" for word in words)
    assert await shop.record(f"INSERT INTO orders (name) VALUES {values}", (), Placed(order_id="o1"), tenant=TENANT)
    assert [name for name, _ in await orders(shop)] == sorted(words)
    assert [key for _, key, _ in await said(shop)] == ["o1"]
    await shop.aclose()
