"""txoutbox: a relay with leases over one table, one call of a function for each message."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
from txoutbox import OutboxMessage, Relay, RelayConfig
from txoutbox.adapters.postgres import PostgresStorage

from benchmarks.peers.job import BUSINESS, CONNECTIONS, CREATE, PATIENCE, Countdown, key, payload, shared


async def prepare(url: str) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await pool.execute(CREATE)
        await PostgresStorage(pool).create_schema()


async def add(url: str, count: int) -> float:
    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        outbox = PostgresStorage(pool)

        async def once(_: int, number: int) -> None:
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(BUSINESS, key(number), number)
                await outbox.insert(connection, "orders.placed", payload(number), key=key(number))

        return await shared(range(CONNECTIONS), count, once)


async def drain(url: str, count: int) -> float:
    async with asyncpg.create_pool(url, min_size=2, max_size=CONNECTIONS) as pool:
        countdown = Countdown(count)

        async def publish(message: OutboxMessage) -> None:
            countdown()

        settings = RelayConfig(batch_size=1_000, concurrency=100, lease=timedelta(minutes=5))
        async with (
            Relay(PostgresStorage(pool, delete_on_ack=True), publish, config=settings),
            asyncio.timeout(PATIENCE),
        ):
            await countdown.done.wait()
        return countdown.took
