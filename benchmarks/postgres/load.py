"""Open-loop load: so many commits per second, whether or not anything keeps up, and when each was handled."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import asyncpg
import msgspec

from benchmarks.postgres.consuming import frames
from benchmarks.postgres.server import BenchServer, run
from benchmarks.postgres.shop import BUSINESS, orders_on
from benchmarks.shop import KEYS, TENANT, placed
from posthouse.app import app_of
from posthouse.stores.postgres import PostgresStore

Way = Literal["outbox", "direct", "poll"]
"""Posthouse; a publish of the producer after its commit; a relay by hand that looks every 100 ms."""
BrokerKind = Literal["embedded", "postgres"]

CONNECTIONS = 16
WARM_UP = 0.1
"""The share of the events, the first ones, that does not count."""
PATIENCE = 30.0
"""Seconds that the other process has for all events; what is late then counts as if it came at the end."""

# The outbox of the relay by hand.
POLLED = """
CREATE TABLE polled (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text, event_id text, key text, body bytea)
"""
ADD_POLLED = "INSERT INTO polled (topic, event_id, key, body) VALUES ($1, $2, $3, $4)"

Once = Callable[[int], Awaitable[float]]
"""Commits event `number`; when that was."""


class Job(msgspec.Struct, frozen=True):
    """What the other process does: relay and handle `count` events, then say when it saw each."""

    store: str
    broker: str
    way: Way
    count: int


class Run(msgspec.Struct, frozen=True):
    """What came of a load: the seconds from commit to handler, and the commits per second that there were."""

    delays: Sequence[float]
    rate: float


async def loaded(server: BenchServer, kind: BrokerKind, way: Way, rate: float, seconds: float) -> Run:
    """One run, with a database and a log of its own. Relay and handler live in a process of their own."""
    count = int(rate * seconds)
    async with server.prepared() as url:
        with tempfile.TemporaryDirectory(prefix="posthouse-bench-") as folder:
            broker = (
                f"{url}?schema=log" if kind == "postgres" else f"embedded:///{Path(folder) / 'log.db'}?single_host=true"
            )
            await run(url, POLLED)
            async with WAYS[way](url, broker, count) as once:
                handling = await started(Job(store=url, broker=broker, way=way, count=count))
                committed = await steadily(once, count, rate)
                handled = await finished(handling, count)
    gave_up = time.perf_counter()
    took = max(committed) - min(committed)
    counted = range(int(count * WARM_UP), count)
    return Run([handled.get(number, gave_up) - committed[number] for number in counted], count / took)


async def steadily(once: Once, count: int, rate: float) -> list[float]:
    """When each event was committed. A late commit makes no later one late: each has its time."""
    committed = [0.0] * count
    free = asyncio.Semaphore(CONNECTIONS)

    async def one(number: int) -> None:
        async with free:
            committed[number] = await once(number)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            early = began + number / rate - time.perf_counter()
            if early > 0:
                await asyncio.sleep(early)
            group.create_task(one(number))
    return committed


async def started(job: Job) -> asyncio.subprocess.Process:
    """The other process, once it is ready."""
    command = [sys.executable, "-m", "benchmarks.postgres.worker", msgspec.json.encode(job).decode()]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=1 << 24)
    assert child.stdout is not None
    if not await child.stdout.readline():
        raise RuntimeError("the process that relays and handles did not start")
    return child


async def finished(child: asyncio.subprocess.Process, count: int) -> dict[int, float]:
    """When each event was handled: all of them, or under too much load those that were when patience ended."""
    async with asyncio.timeout(2 * PATIENCE):
        output, _ = await child.communicate()
    handled = msgspec.json.decode(output, type=dict[int, float])
    if len(handled) != count:
        print(f"  too much load: {len(handled):,} of {count:,} events were handled in time", file=sys.stderr)
    return handled


@contextlib.asynccontextmanager
async def through_outbox(url: str, broker: str, count: int) -> AsyncIterator[Once]:
    """Posthouse: the row and the event in one transaction."""
    orders = orders_on(PostgresStore(url, writers=CONNECTIONS), broker)
    await app_of(orders).opened.prepare()

    async def once(number: int) -> float:
        order = placed(number)
        async with orders.transaction(TENANT) as tx:
            await tx.execute(BUSINESS, (order.order_id, order.total_cents))
            tx.publish(order)
        return time.perf_counter()

    yield once
    await orders.aclose()


@contextlib.asynccontextmanager
async def published_directly(url: str, broker: str, count: int) -> AsyncIterator[Once]:
    """The row is committed, then the event is published. A crash between both loses it."""
    given = frames(count, KEYS)
    orders = orders_on(url, broker)
    await app_of(orders).opened.prepare()
    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:

        async def once(number: int) -> float:
            order = placed(number)
            await pool.execute(BUSINESS, order.order_id, order.total_cents)
            committed = time.perf_counter()
            await app_of(orders).broker.publish([given[number]])
            return committed

        yield once
    await orders.aclose()


@contextlib.asynccontextmanager
async def into_polled_table(url: str, broker: str, count: int) -> AsyncIterator[Once]:
    """The row and the event in one transaction by hand."""
    given = frames(count, KEYS)
    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:

        async def once(number: int) -> float:
            order, frame = placed(number), given[number]
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(BUSINESS, order.order_id, order.total_cents)
                await connection.execute(ADD_POLLED, frame.topic, frame.id, frame.key, frame.body)
            return time.perf_counter()

        yield once


WAYS: Mapping[Way, Callable[[str, str, int], contextlib.AbstractAsyncContextManager[Once]]] = {
    "outbox": through_outbox,
    "direct": published_directly,
    "poll": into_polled_table,
}
