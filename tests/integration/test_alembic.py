"""What Alembic's users call: a revision makes our tables on every driver, and autogenerate leaves alone whatever is ours."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection, Integer, MetaData, Table, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from posthouse import App, Event, Model, Payload, Service
from posthouse.alembic import downgrade, upgrade, without_posthouse
from posthouse.errors import ConfigurationError, StoreError
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.scripts import drop_script, upgrade_script
from posthouse.testing.store_contract.samples import row
from posthouse.testing.store_contract.steps import add


class RoomListed(Payload):
    room_id: str


DRIVERS = ["asyncpg", "psycopg", "psycopg2"]


def migrated(url: str, driver: str, *steps: Callable[[], None]) -> None:
    """Run the functions of revisions as `alembic upgrade` does, in one transaction."""
    url = url.replace("postgresql:", f"postgresql+{driver}:", 1)

    def run(connection: Connection) -> None:
        with Operations.context(MigrationContext.configure(connection)):
            for step in steps:
                step()

    async def run_async() -> None:
        engine = create_async_engine(url)
        try:
            async with engine.begin() as connection:
                await connection.run_sync(run)
        finally:
            await engine.dispose()

    if driver == "asyncpg":
        asyncio.run(run_async())
        return
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            run(connection)
    finally:
        engine.dispose()


def differences(url: str, theirs: MetaData) -> Sequence[object]:
    """What autogenerate would write, looking at every schema."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    try:
        with engine.connect() as connection:
            options = {"include_schemas": True, "include_name": without_posthouse(connection)}
            assert not connection.in_transaction(), "Alembic would leave the commit to somebody else"
            found: Sequence[object] = compare_metadata(MigrationContext.configure(connection, opts=options), theirs)
            return found
    finally:
        engine.dispose()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_revision_makes_the_tables_on_every_driver_and_drops_them(postgres_url: str, driver: str) -> None:
    async def used() -> None:
        store = PostgresStore(postgres_url, schema="events")
        assert await store.pending_migrations(post=True) == []
        async with store.begin() as tx:
            assert (await tx.execute("SELECT shards FROM events.meta")).scalar() == 4
        await store.aclose()

    def make() -> None:
        upgrade(schema="events", shards=4)

    migrated(postgres_url, driver, make, make)
    asyncio.run(used())
    migrated(postgres_url, driver, lambda: downgrade(schema="events"), lambda: downgrade(schema="events"))
    assert differences(postgres_url, MetaData()) == []
    migrated(postgres_url, driver, make)
    asyncio.run(used())


def test_a_downgrade_is_refused_while_an_event_was_not_sent(postgres_url: str) -> None:
    async def say() -> None:
        store = PostgresStore(postgres_url)
        await add(store, row("k"))
        await store.aclose()

    migrated(postgres_url, "psycopg", upgrade)
    asyncio.run(say())
    with pytest.raises(DBAPIError, match=r"has 1 events that were not sent(.|\n)*posthouse run"):
        migrated(postgres_url, "asyncpg", downgrade)


def test_a_downgrade_waits_for_an_open_producer_and_counts_what_it_commits(postgres_url: str) -> None:
    """It counted nothing, waited for the producer's lock, and dropped what the producer had committed meanwhile."""
    migrated(postgres_url, "psycopg", upgrade)
    shop = Service("shop")
    shop.event("room.listed.v1", key="room_id")(RoomListed)
    App(shop, store=postgres_url, broker="memory://?single_host=true")
    with psycopg.connect(postgres_url) as producer, ThreadPoolExecutor() as threads:
        shop.outbox.add_now(producer, RoomListed(room_id="r1"), tenant="t1")
        going_down = threads.submit(migrated, postgres_url, "psycopg", downgrade)
        with psycopg.connect(postgres_url, autocommit=True) as other:
            while not other.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
                assert not going_down.done()
        producer.commit()
        with pytest.raises(DBAPIError, match="has 1 events that were not sent"):
            going_down.result()


def test_a_downgrade_under_an_old_snapshot_is_refused(postgres_url: str) -> None:
    migrated(postgres_url, "psycopg", upgrade)
    with psycopg.connect(postgres_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.Error, match="READ COMMITTED alone"):
            connection.execute(drop_script())


STREAM_EVENT = """
INSERT INTO posthouse.stream_event (tenant, aggregate, stream, version, event_id, type, headers, body)
VALUES ('t1', 'folio', 'f1', 1, 'e1', 'folio.opened.v1', NULL, '{}')
"""
SAGA = """
INSERT INTO posthouse.saga (tenant, saga, id, attempt, status, turn, reason, started_at, changed_at, progress, state)
VALUES ('t1', 'stay', 's1', 1, 'running', 1, '', 0, 0, '{}', '{}')
"""


@pytest.mark.parametrize(
    ("done", "refusal"),
    [
        ("CREATE TABLE posthouse.customers (id text)", "did not make: customers"),
        ("CREATE SEQUENCE posthouse.numbers", "did not make: numbers"),
        ("CREATE FUNCTION posthouse.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'", "did not make: mine"),
        (SAGA, r"has 1 sagas that are not over(.|\n)*DELETE FROM posthouse\.saga"),
        (STREAM_EVENT, r"has 1 events of streams, which are nowhere else(.|\n)*TRUNCATE posthouse\.stream_event"),
    ],
)
def test_a_downgrade_drops_nothing_that_is_not_ours_or_nowhere_else(postgres_url: str, done: str, refusal: str) -> None:
    migrated(postgres_url, "psycopg", upgrade)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(done.encode())
    with pytest.raises(DBAPIError, match=refusal):
        migrated(postgres_url, "psycopg", downgrade)


def test_an_upgrade_into_a_schema_with_tables_of_others_is_refused(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE SCHEMA app; CREATE TABLE app.customers (id text); CREATE SCHEMA empty")
    with pytest.raises(DBAPIError, match="schema app has tables of somebody else"):
        migrated(postgres_url, "psycopg", lambda: upgrade(schema="app"))

    async def by_the_store() -> None:
        store = PostgresStore(postgres_url, schema="app")
        with pytest.raises(StoreError, match="schema app has tables of somebody else"):
            await store.upgrade()
        await store.aclose()

    asyncio.run(by_the_store())
    migrated(postgres_url, "psycopg", lambda: upgrade(schema="empty"), lambda: downgrade(schema="empty"))


@pytest.mark.parametrize("schema", ["public", "pg_catalog", "information_schema"])
def test_a_schema_that_is_everybodys_is_refused(schema: str) -> None:
    with pytest.raises(ConfigurationError, match="needs a schema of its own"):
        upgrade_script(schema)


@pytest.mark.parametrize("script", [upgrade_script, drop_script])
def test_a_schema_that_cannot_be_called_so_is_refused(script: Callable[[str], str]) -> None:
    with pytest.raises(ConfigurationError, match="schema='Facts; DROP'"):
        script("Facts; DROP")


def test_the_script_can_be_printed_and_run_by_hand(postgres_url: str) -> None:
    printed = io.StringIO()
    options = {"as_sql": True, "output_buffer": printed}
    with Operations.context(MigrationContext.configure(dialect_name="postgresql", opts=options)):
        upgrade()
    engine = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:", 1))
    with engine.begin() as connection:
        connection.exec_driver_sql(printed.getvalue())
    engine.dispose()

    async def pending() -> Sequence[str]:
        store = PostgresStore(postgres_url)
        try:
            return await store.pending_migrations(post=True)
        finally:
            await store.aclose()

    assert asyncio.run(pending()) == []


async def with_everything(url: str) -> None:
    """A store and a log under names of the user's choice, and a read model beside his tables."""
    rooms = Service("rooms")
    rooms.event("room.listed.v1", key="room_id")(RoomListed)
    listings = rooms.projection("listings")

    @listings.setup
    async def tables(model: Model) -> None:
        await model.execute(f"CREATE TABLE {model.table('listing')} (room_id TEXT)")

    @listings.on(RoomListed)
    async def listed(event: Event[RoomListed], model: Model) -> None:
        pass

    place = "?" if "?" not in url else "&"
    app = App(rooms, store=f"{url}{place}schema=facts", broker=f"{url}{place}schema=wire")
    await app.store.upgrade()
    async with app.running():
        pass


async def test_autogenerate_sees_nothing_of_ours_whatever_it_is_called(postgres_url: str) -> None:
    await with_everything(postgres_url)
    theirs = MetaData()
    Table("orders", theirs, Column("id", Integer, primary_key=True))
    found = await asyncio.to_thread(differences, postgres_url, theirs)
    assert [change[0] for change in found if isinstance(change, tuple)] == ["add_table"], found
    engine = create_async_engine(postgres_url.replace("postgresql:", "postgresql+asyncpg:", 1))
    async with engine.begin() as connection:
        await connection.run_sync(theirs.create_all)
        for schema, table in (("facts", "outbox"), ("wire", "frames"), ("public", "listings_listing_1")):
            assert await connection.scalar(text("SELECT to_regclass(:name)"), {"name": f"{schema}.{table}"})
    assert await asyncio.to_thread(differences, postgres_url, theirs) == []
    async with engine.begin() as connection:
        await connection.execute(text("SET LOCAL ROLE pg_signal_backend"))  # that may read nothing of ours
        assert await connection.run_sync(lambda sync: without_posthouse(sync)("facts", "schema", {})) is False
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE stray (n int)"))
    assert "remove_table" in str(await asyncio.to_thread(differences, postgres_url, theirs)), "a table of the user's"
    await engine.dispose()


async def test_autogenerate_sees_nothing_of_ours_in_a_file_of_sqlite(tmp_path: Path) -> None:
    rooms = Service("rooms")
    listings = rooms.projection("listings")

    @listings.setup
    async def tables(model: Model) -> None:
        await model.execute(f"CREATE TABLE {model.table('listing')} (room_id TEXT)")

    app = App(rooms, store=f"sqlite:///{tmp_path}/rooms.db", broker="memory://")
    await app.open()
    await app.aclose()
    engine = create_engine(f"sqlite:///{tmp_path}/rooms.db")
    with engine.begin() as connection:
        names = connection.scalars(text("SELECT name FROM sqlite_master WHERE type = 'table'")).all()
        assert {"posthouse_outbox", "listings_listing_1"} <= set(names)
        options = {"include_name": without_posthouse(connection)}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), MetaData()) == []
    engine.dispose()
