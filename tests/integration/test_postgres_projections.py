"""Read models on PostgreSQL: late commits, readers during swaps, tenants kept apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import asyncpg
import psycopg
import pytest

from posthouse import App, Event, Payload, Service
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.processes import Aggregate, Model, Plan, Projection
from posthouse.processes.projection import bulk, keeping
from posthouse.stores.postgres import PostgresStore
from posthouse.watch.status import drained
from tests.kit.servers.roles import Ground

POLICY = "USING (tenant = NULLIF(current_setting('posthouse.tenant', true), ''))"


class Hotel:
    """Rooms, and a model of them that notes every change."""

    def __init__(self, store: PostgresStore, *, guarded: bool = False) -> None:
        self.service = Service("rooms")
        App(self.service, store=store, broker=MemoryBroker(clock=SystemClock()))

        @self.service.event("room.priced.v1", key="room_id")
        class RoomPriced(Payload):
            room_id: str
            price: int

        self.RoomPriced = RoomPriced
        self.rooms: Aggregate[int, object] = self.service.aggregate(
            "room", initial=int, evolve=lambda count, _: count + 1, events=(RoomPriced,)
        )
        self.prices: Projection = self.service.projection("prices")

        @self.prices.setup
        async def tables(model: Model) -> None:
            table = model.table("price")
            await model.execute(
                f"CREATE TABLE {table} (tenant text, room text, version integer, price bigint, "
                "PRIMARY KEY (tenant, room, version))"
            )
            if guarded:
                await model.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
                await model.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
                await model.execute(f"CREATE POLICY tenant ON {table} {POLICY}")

        @self.prices.on(RoomPriced)
        async def priced(events: Sequence[Event[RoomPriced]], model: Model) -> None:
            rows = [(e.tenant, e.data.room_id, int(e.extensions["streamversion"]), e.data.price) for e in events]
            await model.execute_many(f"INSERT INTO {model.table('price')} VALUES ($1, $2, $3, $4)", rows)

    async def price(self, room: str, *prices: int, tenant: str = "t1") -> None:
        """One event for each price."""
        await self.rooms.execute(
            room, lambda _: [self.RoomPriced(room_id=room, price=one) for one in prices], tenant=tenant
        )

    async def seen(self, tenant: str = "t1") -> list[tuple[object, ...]]:
        """What a reader of this tenant sees."""
        async with self.service.transaction(tenant) as tx:
            table = await self.prices.table(tx, "price")
            return list(await tx.execute(f"SELECT tenant, room, version, price FROM {table} ORDER BY 1, 2, 3"))


@asynccontextmanager
async def running(store: PostgresStore, *, guarded: bool = False) -> AsyncIterator[Hotel]:
    hotel = Hotel(store, guarded=guarded)
    async with hotel.service.running():
        yield hotel


@asynccontextmanager
async def plain(url: str) -> AsyncIterator[Hotel]:
    store = PostgresStore(url)
    await store.upgrade()
    async with running(store) as hotel:
        yield hotel


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 7)


async def test_what_commits_after_the_bulk_read_is_brought_by_the_group(postgres_url: str) -> None:
    """Its place among the streams lies before what was read: a cursor by number would have lost it."""
    async with plain(postgres_url) as hotel:
        await hotel.price("r1", 1)
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def late() -> None:
            async with hotel.service.transaction("t1") as tx:
                await hotel.rooms.append(tx, "late", [hotel.RoomPriced(room_id="late", price=5)], expected=0)
                await hotel.rooms.append(tx, "r1", [hotel.RoomPriced(room_id="r1", price=2)], expected=1)
                begun.set()
                await go_on.wait()

        writing = asyncio.create_task(late())
        await begun.wait()
        await hotel.price("r2", 3)
        done = await app_of(hotel.service).projections.rebuild("prices")
        assert done.events == 2
        assert await hotel.seen() == [("t1", "r1", 1, 1), ("t1", "r2", 1, 3)]
        go_on.set()
        await writing
        await drained(hotel.service)
        assert await hotel.seen() == [
            ("t1", "late", 1, 5), ("t1", "r1", 1, 1), ("t1", "r1", 2, 2), ("t1", "r2", 1, 3),
        ]  # fmt: skip


async def test_readers_never_miss_a_table_while_generations_come_and_go(postgres_url: str) -> None:
    async with plain(postgres_url) as hotel:
        await hotel.price("r1", *range(20))
        await drained(hotel.service)
        stop, reads = asyncio.Event(), list[int]()

        async def read() -> None:
            while not stop.is_set():
                reads.append(len(await hotel.seen()))
                await asyncio.sleep(0)

        reading = [asyncio.create_task(read()) for _ in range(3)]
        for _ in range(3):
            await app_of(hotel.service).projections.rebuild("prices", Plan(drop_after=1.0))
        stop.set()
        await asyncio.gather(*reading)
        assert set(reads) == {20}
        numbers = [
            row.number for row in await app_of(hotel.service).store.projections.generations() if row.state == "live"
        ]
        assert numbers == [4]


async def test_readers_on_connections_of_their_own_ask_for_the_table_too(postgres_url: str) -> None:
    async with plain(postgres_url) as hotel:
        await app_of(hotel.service).projections.rebuild("prices")
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            assert await hotel.prices.table(connection, "price") == "prices_price_2"
        await connection.close()
        async with await psycopg.AsyncConnection.connect(postgres_url) as theirs:
            assert await hotel.prices.table(theirs, "price") == "prices_price_2"


@pytest.mark.parametrize("source", ["log", "streams"])
async def test_a_rebuild_keeps_tenants_apart_where_the_store_does(
    ground: Ground, source: Literal["log", "streams"]
) -> None:
    owner = PostgresStore(ground.owner_url)
    await owner.upgrade()
    await owner.set_roles(ground.application, ground.runtime)
    await owner.aclose()
    ground.execute(
        f'GRANT CREATE ON SCHEMA public TO "{ground.application}"',
        f'ALTER ROLE "{ground.runtime}" SET search_path = pg_catalog, pg_temp',
    )
    store = PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url)
    async with running(store, guarded=True) as hotel:
        for tenant in ("a", "b"):
            for number in range(6):
                await hotel.price(f"r{number}", 1, 2, tenant=tenant)
        await drained(hotel.service)
        done = await app_of(hotel.service).projections.rebuild("prices", Plan(source=source, drop_after=0.0))
        assert done.events == 24
        await hotel.price("r0", 3, tenant="b")
        await drained(hotel.service)
        for tenant, changes in (("a", 12), ("b", 13)):
            seen = await hotel.seen(tenant)
            assert len(seen) == changes
            assert {row[0] for row in seen} == {tenant}
        assert await hotel.seen("c") == []
        async with asyncio.timeout(20):
            while len(await app_of(hotel.service).store.projections.generations()) > 1:  # noqa: ASYNC110 - the keeper's doing
                await asyncio.sleep(0.05)
    assert ground.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'prices%'") == [("prices_price_2",)]


async def test_a_reader_who_stays_keeps_nobody_from_anything(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither those who feed the live generation, nor another reader of the old one, nor the end of the process."""
    monkeypatch.setattr(keeping, "PATIENCE", 0.2)
    reader = await asyncpg.connect(postgres_url)
    async with reader.transaction(), asyncio.timeout(60), plain(postgres_url) as hotel:
        await hotel.price("r1", 1)
        await drained(hotel.service)
        assert await reader.fetchval("SELECT count(*) FROM prices_price_1") == 1
        await app_of(hotel.service).projections.rebuild("prices", Plan(drop_after=0.0))
        while "generation 1 stays for now" not in caplog.text:  # noqa: ASYNC110 - the keeper's doing
            await asyncio.sleep(0.05)
        await hotel.price("r1", 2)
        await drained(hotel.service)
        assert len(await hotel.seen()) == 2
        async with hotel.service.transaction("t1") as tx:
            assert (await tx.execute("SELECT count(*) FROM prices_price_1")).scalar() == 1
    async with asyncio.timeout(60), plain(postgres_url) as hotel:
        while len(await app_of(hotel.service).store.projections.generations()) > 1:  # noqa: ASYNC110 - the keeper's doing
            await asyncio.sleep(0.05)
    assert await reader.fetchval("SELECT to_regclass('prices_price_1')") is None
    await reader.close()
