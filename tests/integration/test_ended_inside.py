"""A transaction that is the store's to end: ways round it are refused, and one that was found is said, never passed over."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from posthouse import App, Event, Payload, Policy, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreError
from posthouse.store import HeldEvent, HeldFilter
from posthouse.stores.postgres import PostgresStore


class Placed(Payload):
    order_id: str


class Made(Payload):
    order_id: str


@pytest_asyncio.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, writers=1)
    await store.upgrade()
    async with store.begin() as tx:
        await tx.execute("CREATE TABLE mine (name text PRIMARY KEY)")
    yield store
    await store.aclose()


async def names(store: PostgresStore) -> list[object]:
    async with store.begin() as tx:
        return [name for (name,) in await tx.execute("SELECT name FROM mine ORDER BY name")]


ENDS = [
    "COMMIT",
    "/* shop:inv */ COMMIT",
    "-- done\nCOMMIT",
    "/* a /* b */ */ ROLLBACK",
    "SELECT 1; COMMIT; BEGIN",
    r"SELECT E'\''; COMMIT; --'",
    "END",
    "COMMIT AND CHAIN",
]


@pytest.mark.parametrize("sql", ENDS)
async def test_a_statement_that_would_end_the_transaction_is_refused(store: PostgresStore, sql: str) -> None:
    async with store.begin() as tx:
        await tx.execute("INSERT INTO mine VALUES ('a')")
        connection: Any = tx.connection
        ways: list[Callable[[str], Any]] = [
            tx.execute,
            connection.execute,
            connection.fetch,
            connection.fetchval,
            connection.prepare,
            lambda sql: connection.executemany(sql, [()]),
        ]
        for way in ways:
            with pytest.raises(StoreError, match="not yours"):
                await way(sql)
        assert await names_in(tx) == ["a"]
    assert await names(store) == ["a"]


async def names_in(tx: Any) -> list[object]:
    return [name for (name,) in await tx.execute("SELECT name FROM mine ORDER BY name")]


async def test_a_routine_is_made_although_its_text_has_an_end(store: PostgresStore) -> None:
    async with store.begin() as tx:
        connection: Any = tx.connection
        await connection.execute(
            "CREATE FUNCTION two() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT 'COMMIT; x'"
        )
        assert (await tx.execute("SELECT two()")).scalar() == 2


BECOME = """
CREATE FUNCTION become(who text) RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.tenant', who, false) $$
"""
SHOW = "SELECT current_setting('app.tenant', true)"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT become('t1')",
        "SELECT \"become\"('t1')",
        "SELECT public.become('t1')",
        "/* it's */ SELECT lower(become('t1'))",
        "INSERT INTO mine (name) VALUES (become('t1'))",
        "WITH x AS (SELECT become ('t1')) SELECT * FROM x",
    ],
)
async def test_what_a_function_leaves_in_the_session_does_not_reach_the_next(store: PostgresStore, sql: str) -> None:
    async with store.begin() as tx:
        await tx.execute(BECOME)
    async with store.begin() as tx:
        await tx.execute(sql)
        assert (await tx.execute(SHOW)).scalar() == "t1"
    async with store.begin() as tx:
        assert (await tx.execute(SHOW)).scalar() in (None, "")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM mine WHERE name = ANY($1::text[]) AND (name <> '' OR name IN ('become(', 'b'))",
        "INSERT INTO mine (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING name",
        "UPDATE mine SET name = lower(name) WHERE EXISTS (SELECT count(*) FROM mine)",
        "DELETE FROM mine WHERE name = coalesce($1, 'x')",
    ],
)
async def test_plain_statements_need_no_reset(sql: str) -> None:
    from posthouse.stores.postgres.harmless import leaves_nothing

    assert leaves_nothing(sql)


# A commit behind our back, as nobody does by accident.


async def commit_on_postgres(tx: Tx) -> None:
    own: Any = tx.transaction
    await asyncpg.Connection.execute(own.ready(), "COMMIT")


async def commit_on_sqlite(tx: Tx) -> None:
    connection: Any = tx.connection
    sqlite3.Cursor.execute(connection.cursor(), "COMMIT")


@pytest.mark.parametrize("deliveries", [2, 5], ids=["the last one", "more to come"])
@pytest.mark.parametrize("fails_first", [False, True], ids=["first run", "a retry"])
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_an_event_whose_handler_committed_behind_our_back_is_set_aside(
    kind: str, fails_first: bool, deliveries: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else f"sqlite:///{tmp_path / 'shop.db'}"
    shop = Service("shop")
    App(shop, store=url, broker=MemoryBroker(clock=SystemClock()), settings=Settings(start="earliest"))
    shop.event("order.placed.v1", key="order_id")(Placed)
    shop.event("invoice.made.v1", key="order_id")(Made)
    runs: list[str] = []

    @shop.on(Placed, policy=Policy(first_delay=0.05, last_delay=0.05, max_attempts=deliveries))
    async def invoice(event: Event[Placed], tx: Tx) -> Made:
        runs.append(event.data.order_id)
        if fails_first and len(runs) == 1:
            raise ValueError("not yet")
        await tx.execute("INSERT INTO mine VALUES ('effect')")
        await (commit_on_postgres if kind == "postgres" else commit_on_sqlite)(tx)
        return Made(order_id=event.data.order_id)

    await app_of(shop).store.upgrade()
    async with shop.transaction("t1") as tx:
        await tx.execute("CREATE TABLE mine (name text)")
        tx.publish(Placed(order_id="o1"))
    async with asyncio.timeout(20.0), shop.running():
        found = await set_aside(shop)
    assert "committed before its block ended" in found.reason
    assert len(runs) == 1 + fails_first
    async with shop.transaction("t1") as tx:
        assert (await tx.execute("SELECT count(*) FROM mine")).scalar() == 1
    await shop.aclose()


async def set_aside(shop: Service) -> HeldEvent:
    while True:
        found = [held for held in await app_of(shop).store.held.find(HeldFilter()) if held.state == "quarantined"]
        if found:
            return found[0]
        await asyncio.sleep(0.02)
