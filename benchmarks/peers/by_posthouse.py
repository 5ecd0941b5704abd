"""Posthouse, in the same frame as the others."""

from __future__ import annotations

import asyncpg

from benchmarks.peers.job import CONNECTIONS, shared
from benchmarks.postgres.backlog import drained
from benchmarks.postgres.server import run
from benchmarks.postgres.shop import BUSINESS, CREATE, orders_on
from benchmarks.postgres.sink import NowhereBroker
from benchmarks.shop import TENANT, placed
from posthouse.app import app_of
from posthouse.stores.postgres import PostgresStore


async def prepare(url: str) -> None:
    store = PostgresStore(url)
    await store.upgrade()
    await store.aclose()
    await run(url, CREATE)


async def add(url: str, count: int) -> float:
    orders = orders_on(url, NowhereBroker(0))
    await app_of(orders).open()
    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]

    async def once(connection: asyncpg.Connection, number: int) -> None:
        order = placed(number)
        async with connection.transaction():
            await connection.execute(BUSINESS, order.order_id, order.total_cents)
            await orders.outbox.add(connection, order, tenant=TENANT)

    took = await shared(connections, count, once)
    for connection in connections:
        await connection.close()
    await orders.aclose()
    return took


async def drain(url: str, count: int) -> float:
    return await drained(url, count)
