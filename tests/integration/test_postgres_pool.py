"""One pool for a store and a broker that belong together: they use each other's connections."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import psycopg
import pytest

from posthouse import App, Service
from posthouse.broker import Frame, Topology
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import SystemClock
from posthouse.local.postgres.pool import Share
from posthouse.local.sharing import Sharing
from posthouse.stores.postgres import PostgresStore
from posthouse.testing.store_contract.samples import entry, row
from posthouse.testing.store_contract.steps import add
from tests.kit.waiting import eventually

# Our sessions in this database.
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def sessions(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(SESSIONS).fetchone()
        assert found is not None
        return int(found[0])


async def test_a_store_and_a_broker_on_one_url_take_turns_on_one_connection(postgres_url: str) -> None:
    store, broker = PostgresStore(postgres_url), PostgresBroker(postgres_url, clock=SystemClock())
    sharing = Sharing()
    store.share(sharing)
    broker.share(sharing)
    await store.upgrade()
    await broker.ensure(Topology(topics=["shop.orders"]))
    await store.counts()
    assert await asyncio.to_thread(sessions, postgres_url) == 1
    for number in range(3):
        await add(store, row("k"))
        frame = Frame(topic="shop.orders", id=f"e{number}", key="k", body=b"{}")
        assert (await broker.publish([frame]))[0].accepted
    assert await asyncio.to_thread(sessions, postgres_url) <= 2, "one more, from which hints are sent meanwhile"
    await store.aclose()
    assert (await broker.publish([frame]))[0].accepted, "whoever is left goes on"
    await broker.aclose()
    await eventually(lambda: asyncio.to_thread(sessions, postgres_url), right=lambda found: found == 0)


async def test_a_share_waits_for_its_own_connections_and_not_for_those_of_others(postgres_url: str) -> None:
    first = Share(postgres_url, pooled=False, most=1, patience=0.1)
    second = Share(postgres_url, pooled=False, most=1, patience=10)
    first.sharing = second.sharing = Sharing()
    held = await first.acquire()
    with pytest.raises(TimeoutError):
        await first.acquire()
    other = await second.acquire()
    assert other.get_server_pid() != held.get_server_pid()
    await first.release(held)
    assert await first.acquire() is held
    await first.release(held)
    await second.release(other)
    await first.aclose()
    await second.aclose()
    await eventually(lambda: asyncio.to_thread(sessions, postgres_url), right=lambda found: found == 0)


async def test_a_connection_of_a_share_that_was_closed_is_not_lost_to_the_others(postgres_url: str) -> None:
    first = Share(postgres_url, pooled=False, most=1, patience=10)
    second = Share(postgres_url, pooled=False, most=1, patience=10)
    first.sharing = second.sharing = Sharing()
    await second.release(await second.acquire())
    held = await first.acquire()
    await first.aclose()
    await first.release(held)
    assert await second.acquire() is held
    await second.release(held)
    await second.aclose()


async def test_connections_that_have_expired_are_made_anew(postgres_url: str) -> None:
    share = Share(postgres_url, pooled=False, most=2, patience=10)
    idle, busy = await share.acquire(), await share.acquire()
    await share.release(idle)
    share.expire()
    await share.release(busy)
    fresh = await share.acquire()
    assert fresh is not idle
    assert fresh is not busy
    await share.release(fresh)
    await share.aclose()


async def test_a_connection_that_was_in_use_when_all_expired_is_never_handed_out_again(postgres_url: str) -> None:
    share = Share(postgres_url, pooled=False, most=4, patience=10)
    busy = await share.acquire()
    share.expire()
    await share.release(await share.acquire())
    await share.release(busy)
    assert busy.is_closed()
    later = [await share.acquire() for _ in range(4)]
    assert busy not in later
    for connection in later:
        await share.release(connection)
    await share.aclose()


async def test_a_share_never_has_more_connections_than_its_most(postgres_url: str) -> None:
    share = Share(postgres_url, pooled=False, most=2, patience=10)
    seen: set[int] = set()

    async def use() -> None:
        for _ in range(20):
            connection = await share.acquire()
            connection.mark_unclean()
            seen.add(await connection.fetchval("SELECT pg_backend_pid()"))
            await share.release(connection)

    await asyncio.gather(*(use() for _ in range(8)))
    assert len(seen) == 2
    await share.aclose()


async def test_a_share_that_was_closed_gives_nothing_out(postgres_url: str) -> None:
    share = Share(postgres_url, pooled=False, most=1, patience=10)
    held = await share.acquire()
    waiting = asyncio.create_task(share.acquire())
    await asyncio.sleep(0)  # it has begun to wait
    closing = asyncio.create_task(share.aclose())
    await asyncio.sleep(0)
    await share.release(held)
    with pytest.raises(asyncpg.InterfaceError, match="closed by this process"):
        await waiting
    await closing
    with pytest.raises(asyncpg.InterfaceError, match="closed by this process"):
        await share.acquire()
    await eventually(lambda: asyncio.to_thread(sessions, postgres_url), right=lambda found: found == 0)


async def test_a_role_that_the_login_has_from_the_start_is_there_again_after_a_reset(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f'ALTER DATABASE "{owner.info.dbname}" SET role = pg_monitor'.encode())
    share = Share(postgres_url, pooled=False, most=1, patience=10)
    for words in ("RESET ROLE", "SET ROLE NONE", "SET ROLE pg_read_all_stats", "SET SESSION AUTHORIZATION pg_monitor"):
        connection = await share.acquire()
        assert await connection.fetchval("SELECT current_user || ' ' || (session_user = current_user)") == (
            "pg_monitor false"
        ), words
        connection.mark_unclean()
        await connection.execute(words)
        await share.release(connection)
    assert (await share.acquire()) is connection
    assert await connection.fetchval("SELECT current_user") == "pg_monitor"
    await share.release(connection)
    await share.aclose()


@pytest.mark.parametrize("error", [asyncpg.InternalClientError("another operation is in progress"), RuntimeError("?")])
async def test_a_commit_is_one_also_when_the_connection_cannot_be_reset(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(self: object, *, timeout: float | None = None) -> None:
        raise error

    with monkeypatch.context() as patch:
        async with store.begin() as tx:
            theirs: Any = tx.connection
            await theirs.execute("CREATE TABLE kept ()")
            patch.setattr(asyncpg.Connection, "reset", fail)
    async with store.begin() as tx:
        assert (await tx.execute("SELECT to_regclass('kept')::text")).scalar() == "kept"


async def test_stores_in_two_schemas_that_share_connections_claim_each_in_its_own(postgres_url: str) -> None:
    sharing = Sharing()
    stores = [PostgresStore(postgres_url, schema=schema) for schema in ("one", "two")]
    for store in stores:
        store.share(sharing)
        await store.upgrade()
        for number in (1, 2):
            async with store.begin(lazily=True) as tx:
                assert await store.inbox.claim(tx, "billing", [entry(number)]) == [True]
    for store in stores:
        await store.aclose()


async def test_an_app_whose_store_and_broker_are_one_database_has_one_pool(postgres_url: str) -> None:
    app = App(Service("shop"), store=postgres_url, broker=postgres_url)
    await app.store.upgrade()
    await app.broker.ensure(Topology(topics=["shop.orders"]))
    await app.store.counts()
    assert await asyncio.to_thread(sessions, postgres_url) == 1
    await app.aclose()
    await eventually(lambda: asyncio.to_thread(sessions, postgres_url), right=lambda found: found == 0)
