"""Connections of a process: each has a name that says whose it is, and there are no more than were allowed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import psycopg
import pytest
from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from posthouse import App, Event, Payload, Service, Tx
from posthouse.broker import Topology
from posthouse.brokers import open_broker
from posthouse.brokers.kafka.client import Client as KafkaClient
from posthouse.brokers.nats.client import Client as NatsClient
from posthouse.brokers.rabbitmq.client import address_of
from posthouse.cli.doctor import examine_all
from posthouse.cli.verbs import VERBS
from posthouse.clock import SystemClock
from posthouse.local.naming import client_name, name_verb, named
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.postgres.database import RUNTIME_CONNECTIONS
from tests.kit.servers.nats import NatsServer
from tests.kit.servers.redis import RedisServer
from tests.kit.waiting import eventually

OTHERS = "SELECT application_name, count(*) AS sessions FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() GROUP BY 1"
COUNT = 60


class Placed(Payload):
    order_id: str


def busy_shop(store: str, broker: str) -> Service:
    """A handler on each library that a handler may ask for."""
    shop = Service("shop")
    shop.event("order.placed.v1", key="order_id")(Placed)
    App(shop, store=store, broker=broker)

    @shop.on(Placed, consumer="by_tx")
    async def by_tx(event: Event[Placed], tx: Tx) -> None:
        await tx.execute("INSERT INTO applied VALUES ('tx')")

    @shop.on(Placed, consumer="by_asyncpg")
    async def by_asyncpg(event: Event[Placed], connection: asyncpg.Connection) -> None:
        await connection.execute("INSERT INTO applied VALUES ('asyncpg')")

    @shop.on(Placed, consumer="by_session")
    async def by_session(event: Event[Placed], session: AsyncSession) -> None:
        await session.execute(text("INSERT INTO applied VALUES ('session')"))

    @shop.on(Placed, consumer="by_psycopg")
    def by_psycopg(event: Event[Placed], connection: psycopg.Connection) -> None:
        connection.execute("INSERT INTO applied VALUES ('psycopg')")

    return shop


@contextlib.asynccontextmanager
async def watched(url: str) -> AsyncIterator[list[dict[str, int]]]:
    """What pg_stat_activity shows, again and again while the block lasts."""
    seen: list[dict[str, int]] = []
    connection = await asyncpg.connect(url, server_settings={"application_name": "the test"})

    async def watch() -> None:
        while True:
            seen.append({row["application_name"]: row["sessions"] for row in await connection.fetch(OTHERS)})
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        await connection.close()


async def prepared(url: str) -> None:
    store = PostgresStore(url)
    await store.upgrade()
    await store.aclose()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE applied (by text)")


async def worked(url: str, shop: Service) -> None:
    """Publish many at once, and wait until every consumer has applied all."""

    async def publish(number: int) -> None:
        async with shop.transaction("acme") as tx:
            tx.publish(Placed(order_id=f"o{number}"))

    await asyncio.gather(*(publish(number) for number in range(COUNT)))

    def applied() -> int:
        with psycopg.connect(url, application_name="the test") as connection:
            found = connection.execute("SELECT count(*) FROM applied").fetchone()
            assert found is not None
            return int(found[0])

    await eventually(lambda: asyncio.to_thread(applied), right=lambda count: count == 4 * COUNT, within=60, pause=0.1)


async def test_under_load_no_connection_is_without_a_name(postgres_url: str) -> None:
    await prepared(postgres_url)
    shop = busy_shop(postgres_url, postgres_url)
    async with watched(postgres_url) as seen, shop.running():
        await worked(postgres_url, shop)
    names = {name for look in seen for name in look} - {"the test"}
    roles = {name.removeprefix("posthouse/shop/").partition(" ")[0] for name in names}
    assert all(name.startswith("posthouse/shop/") for name in names), names
    assert {"store", "listen", "handlers"} <= roles <= {"store", "broker", "listen", "handlers"}


async def test_under_load_there_are_no_more_connections_than_the_page_says(postgres_url: str) -> None:
    await prepared(postgres_url)
    writers, broker, libraries = 2, 2, 2
    shop = busy_shop(f"{postgres_url}?writers={writers}", f"{postgres_url}?connections={broker}")
    async with watched(postgres_url) as seen, shop.running():
        await worked(postgres_url, shop)

    def peak(*roles: str) -> int:
        return max(sum(n for name, n in look.items() if name.split("/")[-1].split(" ")[0] in roles) for look in seen)

    assert peak("handlers") <= libraries * writers
    assert peak("listen") <= 2
    assert peak("store", "broker") <= writers + RUNTIME_CONNECTIONS + broker
    assert (
        peak("store", "broker", "listen", "handlers")
        <= libraries * writers + 2 + writers + RUNTIME_CONNECTIONS + broker
    )


async def test_the_doctor_tells_the_bound_of_the_page_for_the_handlers_that_are_declared(postgres_url: str) -> None:
    await prepared(postgres_url)
    shop = busy_shop(f"{postgres_url}?writers=3", f"{postgres_url}?connections=2")
    found = {(one.part, check.name): check.found for one in await examine_all([shop]) for check in one.checks}
    handlers, store, broker, listening = 2 * 3, 3 + RUNTIME_CONNECTIONS, 2, 2
    assert found["store", "connections"].endswith(f"opens up to {handlers + store + broker + listening}")
    assert found["broker", "connections"].endswith("opens up to 3 for its broker")


async def test_a_name_that_the_url_says_goes_before_ours(postgres_url: str) -> None:
    await prepared(postgres_url)
    store = PostgresStore(f"{postgres_url}?application_name=checkout")
    async with store.begin() as tx:
        assert (await tx.execute("SHOW application_name")).scalar() == "checkout"
    await store.aclose()


def test_a_command_connects_under_its_verb() -> None:
    with named("shop"):
        assert client_name("store") == "posthouse/shop/store"
        forget = name_verb("status")
        assert client_name("store") == "posthouse/status/store"
        forget()
        assert client_name("store") == "posthouse/shop/store"


@pytest.mark.parametrize("who", ["shop, billing", "ö" * 100, "a" * 100, *VERBS])
def test_a_name_is_one_that_every_server_takes(who: str) -> None:
    with named(who):
        name = client_name("listen 0123abcd 0123456789abcdef")
    assert len(name.encode()) <= 63
    assert name.startswith("posthouse/")
    assert name.endswith("/listen 0123abcd 0123456789abcdef")


async def test_brokers_know_us_by_name_too(redis_server: RedisServer, nats_server: NatsServer) -> None:
    with named("shop"):
        redis = open_broker(redis_server.url, clock=SystemClock())
        nats = NatsClient([nats_server.url], timeout=5, driver={})
        kafka = KafkaClient("a:9092", timeout=5, driver={})
        rabbitmq = address_of("rabbitmq://guest@host", 5)
    await redis.ensure(Topology(topics=["shop.order"]))
    async with Redis.from_url(redis_server.url) as client:
        asked = await client.client_list()
    assert "posthouse/shop/broker" in {client["name"] for client in asked}
    await redis.aclose()
    assert (await nats.connection()).options["name"] == "posthouse/shop/broker"
    await nats.aclose()
    assert kafka.config()["client.id"] == "posthouse/shop/broker"
    assert "name=posthouse%2Fshop%2Fbroker" in rabbitmq
