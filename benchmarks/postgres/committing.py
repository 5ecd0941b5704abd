"""What an event costs its producer: commits with a business row and an event beside commits with the row alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks.byhand import HEADERS, TOPIC, envelope
from benchmarks.postgres.server import BenchServer, run
from benchmarks.postgres.shop import BUSINESS, orders_on
from benchmarks.postgres.sink import NowhereBroker
from benchmarks.reading import Reading, Scale, compare
from benchmarks.shop import TENANT, placed
from posthouse.app import app_of
from posthouse.stores.postgres import PostgresStore

COMMITS = {1: 400, 8: 2_000, 32: 2_000}
"""Commits of a round, by number of connections."""

BY_HAND = """
CREATE TABLE numbers (topic text, tenant text, key text, last bigint NOT NULL, PRIMARY KEY (topic, tenant, key));
CREATE TABLE letters (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, tenant text NOT NULL, key text, number bigint,
    event_id text NOT NULL, headers text, body bytea NOT NULL)
"""
NUMBER = """
INSERT INTO numbers (topic, tenant, key, last) VALUES ($1, $2, $3, 1)
ON CONFLICT (topic, tenant, key) DO UPDATE SET last = numbers.last + 1 RETURNING last
"""
LETTER = """
INSERT INTO letters (topic, tenant, key, number, event_id, headers, body) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""

Commit = Callable[[asyncpg.Connection, int], Awaitable[None]]


async def commit(server: BenchServer, scale: Scale) -> list[Reading]:
    """Commits with a business row and a keyed event beside the business row alone, at 1, 8 and 32 connections: in a
    transaction of ours, in one of the user's that we join, and each as one statement. Then ours beside a numbered event
    written by hand."""
    return [reading for connections in COMMITS for reading in await _commit(server, scale, connections)]


async def _commit(server: BenchServer, scale: Scale, connections: int) -> list[Reading]:
    count = scale.count(COMMITS[connections])
    async with server.prepared() as url:
        orders = orders_on(PostgresStore(url, writers=connections), NowhereBroker(0))
        await app_of(orders).open()
        pool = [await asyncpg.connect(url) for _ in range(connections)]

        async def ours(_: asyncpg.Connection, number: int) -> None:
            order = placed(number)
            async with orders.transaction(TENANT) as tx:
                await tx.execute(BUSINESS, (order.order_id, order.total_cents))
                tx.publish(order)

        async def joined(connection: asyncpg.Connection, number: int) -> None:
            order = placed(number)
            async with connection.transaction():
                await connection.execute(BUSINESS, order.order_id, order.total_cents)
                await orders.outbox.add(connection, order, tenant=TENANT)

        async def at_once(_: asyncpg.Connection, number: int) -> None:
            order = placed(number)
            await orders.record(BUSINESS, (order.order_id, order.total_cents), order, tenant=TENANT)

        async def measured(name: str, commit: Commit, beside: Commit = row_alone, goal: float | None = 0.6) -> Reading:
            return await compare(
                f"{name}, {connections} connection{'s' * (connections > 1)}",
                lambda _: committed(pool, commit, count),
                lambda _: committed(pool, beside, count),
                rounds=scale.turns(7),
                count=count,
                goal=goal,
            )

        try:
            await run(url, BY_HAND)
            return [
                await measured("commit", ours),
                await measured("commit, joined", joined),
                await measured("commit, one statement", at_once, row_at_once),
                await measured("commit, one statement ÷ transaction", at_once, row_alone, None),
                await measured("commit ÷ event by hand", ours, by_hand, None),
            ]
        finally:
            await asyncio.gather(*(connection.close() for connection in pool))
            await orders.aclose()


async def row_alone(connection: asyncpg.Connection, number: int) -> None:
    """The same transaction without an event."""
    order = placed(number)
    async with connection.transaction():
        await connection.execute(BUSINESS, order.order_id, order.total_cents)


async def row_at_once(connection: asyncpg.Connection, number: int) -> None:
    """The row alone, in a statement that commits by itself."""
    order = placed(number)
    await connection.execute(BUSINESS, order.order_id, order.total_cents)


async def by_hand(connection: asyncpg.Connection, number: int) -> None:
    """The same transaction with the next number of the key and an event, in statements of their own."""
    order = placed(number)
    event_id, body = envelope(order)
    async with connection.transaction():
        await connection.execute(BUSINESS, order.order_id, order.total_cents)
        next_number = await connection.fetchval(NUMBER, TOPIC, TENANT, order.order_id)
        await connection.execute(LETTER, TOPIC, TENANT, order.order_id, next_number, event_id, HEADERS, body)


async def committed(pool: list[asyncpg.Connection], once: Commit, count: int) -> float:
    """The seconds for so many commits, shared by the connections."""

    async def share(connection: asyncpg.Connection, first: int) -> None:
        for number in range(first, count, len(pool)):
            await once(connection, number)

    began = time.perf_counter()
    await asyncio.gather(*(share(connection, first) for first, connection in enumerate(pool)))
    return time.perf_counter() - began
