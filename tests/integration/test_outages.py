"""Servers that are away for a while, for real: what the log says, what the health says, and that nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable

import httpx
import psycopg
import pytest
from fastapi import FastAPI, Response

from posthouse import App, Event, Payload, Service, Tx, starting
from posthouse.errors import BrokerError, ConfigurationError, StoreOutdated, StoreUnavailable
from posthouse.health import Health
from posthouse.stores.postgres import PostgresStore
from tests.kit.servers.nats import NatsServer
from tests.kit.servers.ports import free_port
from tests.kit.servers.restartable import RestartablePostgres, restartable_postgres
from tests.kit.waiting import eventually

__all__ = ["restartable_postgres"]

AWAY = 3.0
"""Seconds of an outage."""
CONSUMERS = ("billing", "mailing", "packing")


class Placed(Payload):
    order_id: str


def applying(name: str) -> Callable[..., object]:
    async def apply(event: Event[Placed], tx: Tx) -> None:
        await tx.execute("INSERT INTO applied VALUES (:who, :id)", {"who": name, "id": event.data.order_id})

    return apply


def shop_on(store: str, broker: str) -> Service:
    """Several consumers that note what they apply."""
    shop = Service("shop")
    shop.event("order.placed.v1", key="order_id")(Placed)
    App(shop, store=store, broker=broker)
    for name in CONSUMERS:
        shop.on(Placed, consumer=name)(applying(name))
    return shop


async def furnished(url: str) -> None:
    store = PostgresStore(url)
    await store.upgrade()
    await store.aclose()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE applied (who text, order_id text)")


def applied(url: str) -> list[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        return sorted(connection.execute("SELECT who, order_id FROM applied").fetchall())


async def place(shop: Service, order: str) -> None:
    async with shop.transaction("acme") as tx:
        tx.publish(Placed(order_id=order))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{r.name}: {r.getMessage()}" for r in caplog.records if r.levelno >= logging.WARNING]


def state(health: Health, name: str) -> str:
    return {part.name: part.state for part in health.parts}[name]


async def test_a_broker_that_is_away_is_two_lines_and_nothing_is_lost(
    postgres_url: str, nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    await furnished(postgres_url)
    shop = shop_on(postgres_url, nats_server.url)
    async with shop.running():
        await place(shop, "before")
        await eventually(lambda: len(applied(postgres_url)) == 3)
        caplog.clear()
        await asyncio.to_thread(nats_server.end, signal.SIGTERM)
        try:
            await place(shop, "meanwhile")
            await eventually(lambda: state(shop.health(), "relay") == "waiting")
            until = time.monotonic() + AWAY
            await eventually(lambda: time.monotonic() > until)
            health = shop.health()
        finally:
            await asyncio.to_thread(nats_server.start)
        assert (health.live, health.ready, state(health, "broker"), state(health, "store")) == (
            True, True, "waiting", "ready",
        )  # fmt: skip
        await eventually(lambda: len(applied(postgres_url)) == 6)
        await eventually(lambda: all(part.state == "ready" for part in shop.health().parts))
    said = warnings(caplog)
    assert len(said) == 2, said
    assert f"the broker ({nats_server.url}) is away" in said[0]
    assert "is back after" in said[1]
    assert applied(postgres_url) == [(who, order) for who in CONSUMERS for order in ("before", "meanwhile")]


async def test_a_database_that_is_away_is_two_lines_and_nothing_is_lost(
    restartable_postgres: RestartablePostgres, nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = restartable_postgres.url
    await furnished(url)
    shop = shop_on(url, nats_server.url)
    async with shop.running():
        await place(shop, "before")
        await eventually(lambda: len(applied(url)) == 3)
        caplog.clear()
        await asyncio.to_thread(restartable_postgres.stop)
        await eventually(lambda: not shop.health().ready)
        until = time.monotonic() + AWAY
        await eventually(lambda: time.monotonic() > until)
        assert shop.health().live
        await asyncio.to_thread(restartable_postgres.start)
        await eventually(lambda: shop.health().ready)
        await place(shop, "after")
        await eventually(lambda: len(applied(url)) == 6)
        await eventually(lambda: all(part.state == "ready" for part in shop.health().parts))
    said = [line for line in warnings(caplog) if "another run" not in line]
    assert len(said) == 2, said
    assert "the database (" in said[0]
    assert "is back after" in said[1]


# Starting.


@contextlib.asynccontextmanager
async def served(shop: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A web application that publishes, and says how it is."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with shop.running():
            yield

    web = FastAPI(lifespan=lifespan)

    @web.post("/orders/{order_id}")
    async def order(order_id: str) -> None:
        await place(shop, order_id)

    @web.get("/ready")
    async def ready(response: Response) -> Health:
        response.status_code = 200 if (health := shop.health()).ready else 503
        return health

    client = httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop")
    async with client, web.router.lifespan_context(web):
        yield client


async def test_a_web_application_starts_without_its_broker_publishes_and_goes_on_when_it_comes(
    postgres_url: str, nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    await furnished(postgres_url)
    await asyncio.to_thread(nats_server.end, signal.SIGTERM)
    try:
        url = nats_server.url.replace(
            "127.0.0.1", "localhost"
        )  # another server than that of the tests before, for the log
        async with served(shop_on(postgres_url, url)) as client:
            assert (await client.post("/orders/o1")).status_code == 200
            answer = await client.get("/ready")
            assert answer.status_code == 200, "the broker delays events and loses none"
            parts = {part["name"]: part for part in answer.json()["parts"]}
            assert parts["store"]["state"] == "ready"
            assert parts["broker"]["state"] == "waiting"
            assert parts["broker"]["since"] <= time.time()
            assert "nothing listens at localhost" in parts["broker"]["reason"]
            assert applied(postgres_url) == []
            await asyncio.to_thread(nats_server.start)
            await eventually(lambda: len(applied(postgres_url)) == 3)
            assert (await client.post("/orders/o2")).status_code == 200
            await eventually(lambda: len(applied(postgres_url)) == 6)
            parts = {part["name"]: part["state"] for part in (await client.get("/ready")).json()["parts"]}
            assert set(parts.values()) == {"ready"}
            assert {"relay", "timers", "shop.billing", "shop.mailing", "shop.packing"} <= parts.keys()
    finally:
        if nats_server._process is None:
            await asyncio.to_thread(nats_server.start)
    assert applied(postgres_url) == [(who, order) for who in CONSUMERS for order in ("o1", "o2")]
    assert len(warnings(caplog)) == 2, warnings(caplog)


async def test_whoever_leaves_while_the_broker_is_still_away_is_not_kept(postgres_url: str) -> None:
    await furnished(postgres_url)
    shop = shop_on(postgres_url, f"nats://127.0.0.1:{free_port()}")
    began = time.monotonic()
    async with shop.running():
        await place(shop, "o1")
        assert state(shop.health(), "broker") == "waiting"
    assert time.monotonic() - began < 15
    async with App(shop, store=postgres_url, broker="memory://").store.begin() as tx:
        assert (await tx.execute("SELECT count(*) FROM posthouse.outbox")).scalar() == 1
    await shop.aclose()


async def test_what_is_certainly_wrong_still_refuses_at_once(postgres_url: str, nats_server: NatsServer) -> None:
    missing = shop_on(postgres_url, nats_server.url)
    with pytest.raises(StoreOutdated):
        async with missing.running():
            pytest.fail("it ran without tables")
    await furnished(postgres_url)
    password = shop_on(postgres_url, nats_server.url.replace("nats://", "nats://nobody:wrong@"))
    with pytest.raises(BrokerError, match="refuses us"):
        async with password.running():
            pytest.fail("it ran with a wrong password")
    option = shop_on(postgres_url, f"{nats_server.url}?partitoins=3")
    with pytest.raises(ConfigurationError, match="partitions"):
        async with option.running():
            pytest.fail("it ran with a wrong option")


async def test_a_store_that_is_away_is_waited_for_and_then_named(
    restartable_postgres: RestartablePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = restartable_postgres.url
    await furnished(url)
    await asyncio.to_thread(restartable_postgres.stop)
    shop = shop_on(url, "memory://?single_host=true")
    with monkeypatch.context() as patch:
        patch.setattr(starting, "STORE_WITHIN", 1.0)
        with pytest.raises(StoreUnavailable, match=r"did not answer within 1 s: shop cannot start without it"):
            async with shop.running():
                pytest.fail("it ran without a store")
    entered = asyncio.create_task(_enter(shop))
    await eventually(lambda: shop.health().parts[0].state == "waiting")
    await asyncio.to_thread(restartable_postgres.start)
    assert (await entered).ready


async def _enter(shop: Service) -> Health:
    async with shop.running():
        return shop.health()
