"""Sagas, aggregates and events in a transaction that the user's own library began."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from posthouse import App, Event, Payload, Service
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import VersionConflict
from posthouse.processes import Aggregate, Saga, Turn, deadline, on, starts, undo
from posthouse.store.sagas import SagaFilter

End = Callable[[bool], Awaitable[None]]


class Placed(Payload):
    order_id: str


class Paid(Payload):
    order_id: str
    cents: int


class Cancelled(Payload):
    order_id: str


def shop_on(store: str) -> tuple[Service, type[Saga], Aggregate[int, Paid]]:
    shop = Service("shop")
    App(shop, store=store, broker=MemoryBroker(clock=SystemClock()))
    shop.event("order.placed.v1", key="order_id")(Placed)
    shop.event("account.paid.v1", key="order_id")(Paid)
    shop.event("order.cancelled.v1", key="order_id")(Cancelled)

    @shop.saga("order", correlate="order_id")
    class Order(Saga):
        order_id: str

        @starts
        async def begin(self, turn: Turn) -> None:
            await turn.execute("INSERT INTO orders (name) VALUES ('from the saga')")
            turn.publish(Placed(order_id=self.order_id))
            turn.set(self.overdue)

        @undo(begin)
        def take_back(self, turn: Turn) -> None:
            turn.publish(Cancelled(order_id=self.order_id))

        @deadline(600.0)
        def overdue(self, turn: Turn) -> None:
            turn.compensate("overdue")

        @on(Paid)
        def paid(self, event: Event[Paid], turn: Turn) -> None:
            turn.complete()

    def evolve(total: int, event: Paid) -> int:
        return total + event.cents

    accounts = shop.aggregate("account", initial=int, evolve=evolve, events=[Paid])
    return shop, Order, accounts


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[tuple[Any, End]]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()

    async def end(commit: bool) -> None:
        await (transaction.commit() if commit else transaction.rollback())

    yield connection, end
    await connection.close()


@asynccontextmanager
async def by_sqlalchemy(url: str) -> AsyncIterator[tuple[Any, End]]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), poolclass=NullPool)
    async with AsyncSession(engine) as session:

        async def end(commit: bool) -> None:
            await (session.commit() if commit else session.rollback())

        yield session, end
    await engine.dispose()


@asynccontextmanager
async def by_aiosqlite(url: str) -> AsyncIterator[tuple[Any, End]]:
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:

        async def end(commit: bool) -> None:
            await (connection.commit() if commit else connection.rollback())

        yield connection, end


@asynccontextmanager
async def by_sqlite_session(url: str) -> AsyncIterator[tuple[Any, End]]:
    async with by_sqlalchemy(url.replace("sqlite://", "sqlite+aiosqlite://")) as found:
        yield found


WAYS: dict[str, tuple[str, Any]] = {
    "asyncpg": ("postgres", by_asyncpg),
    "AsyncSession on PostgreSQL": ("postgres", by_sqlalchemy),
    "aiosqlite": ("sqlite", by_aiosqlite),
    "AsyncSession on SQLite": ("sqlite", by_sqlite_session),
}


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_saga_a_stream_and_a_fact_are_there_with_their_transaction_or_not_at_all(
    way: str, commit: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kind, theirs = WAYS[way]
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else f"sqlite:///{tmp_path / 'shop.db'}"
    shop, order, accounts = shop_on(url)
    await app_of(shop).store.upgrade()
    async with shop.transaction("t1") as tx:
        await tx.execute("CREATE TABLE orders (name text)")
    made: Any = order
    async with theirs(url) as (session, end):
        async with shop.joined(session, "t1") as tx:
            assert await shop.start_saga(tx, made(order_id="o1"))
            await accounts.append(tx, "o1", [Paid(order_id="o1", cents=5)], expected="new")
            assert await accounts.decide(tx, "o1", lambda total: [Paid(order_id="o1", cents=total * 2)]) == 15
            with pytest.raises(VersionConflict):
                await accounts.append(tx, "o1", [Paid(order_id="o1", cents=5)], expected="new")
        async with shop.joined(session, "t1") as tx:
            assert not await shop.start_saga(tx, made(order_id="o1")), "the transaction sees what it has begun"
        await end(commit)
    counts = await app_of(shop).store.counts()
    sagas = await app_of(shop).store.sagas.find(SagaFilter())
    async with shop.transaction("t1") as tx:
        rows = (await tx.execute("SELECT count(*) FROM orders")).scalar()
        account = await accounts.load(tx, "o1")
    found = (len(sagas), counts.timers, sum(counts.committed.values()), rows, account.state, account.version)
    assert found == ((1, 1, 3, 1, 15, 2) if commit else (0, 0, 0, 0, 0, 0))
    await shop.aclose()


async def publish_and_fail(shop: Service, connection: aiosqlite.Connection) -> None:
    async with shop.joined(connection, "t1") as tx:
        tx.publish(Placed(order_id="o1"))
        raise ZeroDivisionError


async def test_what_fails_inside_the_block_says_nothing_and_leaves_the_rest_to_you(tmp_path: Path) -> None:
    shop, _, _ = shop_on(f"sqlite:///{tmp_path / 'shop.db'}")
    await app_of(shop).open()
    async with aiosqlite.connect(tmp_path / "shop.db") as connection:
        await connection.execute("CREATE TABLE mine (name text)")
        await connection.execute("INSERT INTO mine VALUES ('stays')")
        with pytest.raises(ZeroDivisionError):
            await publish_and_fail(shop, connection)
        await connection.commit()
        rows = await connection.execute_fetchall("SELECT count(*) FROM mine")
    assert [tuple(row) for row in rows] == [(1,)]
    assert (await app_of(shop).store.counts()).committed == {}
    await shop.aclose()
