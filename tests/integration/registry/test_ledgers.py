"""What is special to a ledger: made once by many, refused when it is of a later release, away for a while."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from posthouse.errors import StoreError, StoreUnavailable
from posthouse.governance.registry.books import Books
from posthouse.governance.registry.ledgers import open_ledger
from tests.integration.registry.client import ORDER, served
from tests.kit.servers.postgres import PostgresServer


async def test_many_may_open_a_new_ledger_at_once(store_url: str) -> None:
    ledgers = [open_ledger(store_url) for _ in range(6)]
    await asyncio.gather(*(ledger.open() for ledger in ledgers))
    for ledger in ledgers:
        async with ledger.reading() as session:
            assert await Books(session).last_id() == 0
        await ledger.aclose()


async def test_tables_of_a_later_release_are_left_alone(store_url: str) -> None:
    ledger = open_ledger(store_url)
    await ledger.open()
    async with ledger.writing() as session:
        await session.fetch("UPDATE posthouse_registry.counter SET format = 99")
    await ledger.aclose()
    later = open_ledger(store_url)
    with pytest.raises(StoreError, match="layout 99"):
        await later.open()
    await later.aclose()


async def test_what_fails_inside_a_transaction_leaves_nothing(store_url: str) -> None:
    ledger = open_ledger(store_url)
    await ledger.open()

    async def failing(statement: str) -> None:
        async with ledger.writing() as session:
            await session.fetch("UPDATE posthouse_registry.counter SET last_id = 7")
            await session.fetch(statement)
            raise KeyError

    with pytest.raises(KeyError):
        await failing("SELECT last_id FROM posthouse_registry.counter")
    with pytest.raises(StoreError):
        await failing("SELECT nonsense FROM posthouse_registry.counter")
    async with ledger.reading() as session:
        assert await Books(session).last_id() == 0
    await ledger.aclose()


async def test_a_reader_sees_one_state_while_others_write(store_url: str) -> None:
    ledger, other = open_ledger(store_url), open_ledger(store_url)
    await ledger.open()
    await other.open()
    async with ledger.reading() as session:
        assert await Books(session).last_id() == 0
        async with other.writing() as writing:
            await writing.fetch("UPDATE posthouse_registry.counter SET last_id = 7")
        assert await Books(session).last_id() == 0
    async with ledger.reading() as session:
        assert await Books(session).last_id() == 7
    await ledger.aclose()
    await other.aclose()


async def test_a_reader_waits_for_no_writer_of_its_own_process(store_url: str) -> None:
    ledger = open_ledger(store_url)
    await ledger.open()
    async with ledger.writing() as writing:
        await writing.fetch("UPDATE posthouse_registry.counter SET last_id = 7")
        async with asyncio.timeout(10), ledger.reading() as reading:
            assert await Books(reading).last_id() == 0
    await ledger.aclose()


async def test_a_role_that_may_only_use_the_tables_is_enough(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as url:
        async with served(url):
            pass
        owner = await asyncpg.connect(url)
        role = f"clerk_{url.rpartition('/')[2]}"
        await owner.execute(f"CREATE ROLE {role} LOGIN")
        await owner.execute(f"GRANT USAGE ON SCHEMA posthouse_registry TO {role}")
        await owner.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA posthouse_registry TO {role}"
        )
        try:
            async with served(url.replace("postgres@", f"{role}@")) as client:
                assert await client.register("a", ORDER) == 1
        finally:
            await owner.execute(f"DROP OWNED BY {role}")
            await owner.execute(f"DROP ROLE {role}")
            await owner.close()


async def test_a_registry_goes_on_when_its_database_comes_back(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as url:
        async with served(url) as client:
            await client.register("a", ORDER)
            owner = await asyncpg.connect(postgres_server.url)
            await owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", url.rpartition("/")[2]
            )
            await owner.close()
            async with asyncio.timeout(30):
                while (await client.ask("GET", "/subjects")).status_code != 200:
                    pass
            assert await client.get("/subjects") == ["a"]


async def test_a_writer_that_waits_too_long_is_told_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    from posthouse.governance.registry.ledgers.sqlite import SqliteLedger

    path = tmp_path_factory.mktemp("ledger") / "registry.db"
    ledger, other = SqliteLedger(path, patience=0.2), SqliteLedger(path)
    await ledger.open()
    await other.open()
    async with other.writing():
        with pytest.raises(StoreUnavailable, match="write lock"):
            async with ledger.writing():
                pass
    async with ledger.writing():
        pass
    await ledger.aclose()
    await other.aclose()
