"""Schedules on PostgreSQL: tenants that the database keeps apart, and functions that take a driver's connection."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import asyncpg
import pytest
from msgspec.structs import replace

from posthouse import App, Run, Service, Tx
from posthouse.app import app_of
from posthouse.errors import ConfigurationError
from posthouse.store import Store
from posthouse.stores.postgres import PostgresStore
from tests.kit.servers.roles import Ground
from tests.kit.waiting import eventually


def hotel_on(store: PostgresStore, folder: Path) -> Service:
    hotel = Service("hotel")
    App(hotel, store=store, broker=f"embedded:///{folder / 'log.db'}?single_host=true")
    return hotel


async def made_due(store: Store) -> None:
    """As if its moment had come."""

    async def adopted() -> bool:
        return bool(await store.schedules.find())

    await eventually(adopted, "the schedule", within=15.0, pause=0.02)
    async with store.begin() as tx:
        row = await store.schedules.lock(tx, "hotel", "audit")
        assert row is not None
        await store.schedules.save(tx, replace(row, next_at=row.now - 1))


async def isolated(ground: Ground) -> PostgresStore:
    owner = PostgresStore(ground.owner_url)
    await owner.upgrade()
    await owner.set_roles(ground.application, ground.runtime)
    await owner.aclose()
    return PostgresStore(ground.application_url, isolation=True, runtime_url=ground.runtime_url)


async def whose(tx: Tx) -> Collection[str]:
    return ["a", "b"]


async def test_each_tenant_has_a_run_in_a_transaction_of_its_own(ground: Ground, tmp_path: Path) -> None:
    store, ran = await isolated(ground), dict[str, object]()
    hotel = hotel_on(store, tmp_path)

    @hotel.every("0 6 * * *", tenants=whose)
    async def audit(run: Run, tx: Tx) -> None:
        ran[run.tenant] = (await tx.execute("SELECT current_setting('posthouse.tenant')")).scalar()

    async with hotel.running():
        await made_due(store)
        await eventually(lambda: ran == {"a": "a", "b": "b"}, "both runs", within=20.0)

        async def done() -> bool:
            (row,) = await store.schedules.find()
            return row.done_at is not None

        await eventually(done, "the note that it is done", within=10.0, pause=0.02)


async def test_where_tenants_are_kept_apart_a_schedule_says_for_whom(ground: Ground, tmp_path: Path) -> None:
    store = await isolated(ground)
    hotel = hotel_on(store, tmp_path)

    @hotel.every("0 6 * * *")
    async def audit(run: Run, tx: Tx) -> None: ...

    with pytest.raises(ConfigurationError, match="say for whom the schedule audit runs"):
        await app_of(hotel).opened.prepare()
    await hotel.aclose()


async def test_a_run_may_take_the_connection_of_a_driver(postgres_url: str, tmp_path: Path) -> None:
    store, ran = PostgresStore(postgres_url), list[object]()
    await store.upgrade()
    hotel = hotel_on(store, tmp_path)

    @hotel.every("0 6 * * *")
    async def audit(run: Run, connection: asyncpg.Connection) -> None:
        ran.append(await connection.fetchval("SELECT txid_current_if_assigned()"))

    async with hotel.running():
        await made_due(store)

        async def done() -> bool:
            (row,) = await store.schedules.find()
            return row.done_at is not None

        await eventually(done, "the run", within=20.0, pause=0.02)
        assert len(ran) == 1
