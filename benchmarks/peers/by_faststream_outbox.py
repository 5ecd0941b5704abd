"""faststream-outbox: a FastStream broker whose queue is a table."""

from __future__ import annotations

import asyncio

from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.peers.job import CONNECTIONS, CREATE, PATIENCE, Countdown, key, payload, shared

METADATA = MetaData()
TABLE = make_outbox_table(METADATA, table_name="outbox")
BUSINESS = text("INSERT INTO placed (order_id, total) VALUES (:order_id, :total)")


def engine_of(url: str) -> AsyncEngine:
    return create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=2 * CONNECTIONS)


async def prepare(url: str) -> None:
    engine = engine_of(url)
    async with engine.begin() as connection:
        await connection.execute(text(CREATE))
        await connection.run_sync(METADATA.create_all)
    await engine.dispose()


async def add(url: str, count: int) -> float:
    engine = engine_of(url)
    broker = OutboxBroker(engine, outbox_table=TABLE, logger=None)

    async def once(_: int, number: int) -> None:
        async with engine.begin() as connection:
            await connection.execute(BUSINESS, {"order_id": key(number), "total": number})
            await broker.publish(payload(number), queue="orders", session=connection)

    took = await shared(range(CONNECTIONS), count, once)
    await engine.dispose()
    return took


async def drain(url: str, count: int) -> float:
    engine = engine_of(url)
    broker = OutboxBroker(engine, outbox_table=TABLE, logger=None)
    countdown = Countdown(count)

    @broker.subscriber(
        "orders", max_workers=CONNECTIONS, fetch_batch_size=500, min_fetch_interval=0.01, terminal_flush_batch_size=100
    )
    async def handle(order: dict[str, str | int]) -> None:
        countdown()

    async with broker, asyncio.timeout(PATIENCE):
        await broker.start()
        await countdown.done.wait()
    await engine.dispose()
    return countdown.took
