"""How long an event is on its way, and what it costs to wait for one."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from benchmarks import byhand
from benchmarks.reading import Reading, Scale, at_most, delays
from benchmarks.shop import BUSINESS, TENANT, OrderPlaced, orders_in, placed
from posthouse import App, Event, Service, Tx
from posthouse.app import app_of

RATE = 200.0
"""Events per second."""

HANDLED = "CREATE TABLE IF NOT EXISTS handled (number INTEGER PRIMARY KEY, at REAL NOT NULL)"
NOTE = "INSERT INTO handled (number, at) VALUES (?, ?)"


def billing_with_times(folder: Path) -> Service:
    """The consumer, noting when it has written its row. The clock is the machine's, the same in every process."""
    billing = Service("billing", namespace="shop")
    App(billing, store=f"sqlite:///{folder / 'billing.db'}", broker=f"embedded:///{folder / 'log.db'}")
    billing.external("shop.orders.order.placed.v1", key="order_id")(OrderPlaced)

    @billing.setup
    async def create(tx: Tx) -> None:
        await tx.execute(HANDLED)

    @billing.on(OrderPlaced)
    async def write(event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute(NOTE, (event.data.total_cents, time.perf_counter()))

    return billing


async def latency(folder: Path, scale: Scale) -> list[Reading]:
    """From commit to the end of the handler at 200 events per second, everything in one process."""
    orders, billing = orders_in(folder), billing_with_times(folder)
    async with running(orders, billing):
        return await _delays("latency", folder, orders, scale, {})


async def latency_two(folder: Path, scale: Scale) -> list[Reading]:
    """The same with relay and consumer in a process of their own."""
    orders = orders_in(folder)
    async with running_elsewhere(folder):
        try:
            return await _delays("latency-two", folder, orders, scale, {})
        finally:
            await orders.aclose()


async def idle(folder: Path, scale: Scale) -> list[Reading]:
    """Two services that wait for events: the share of one core that it costs."""
    seconds = scale.seconds(5.0)
    async with running(orders_in(folder), billing_with_times(folder)):
        await asyncio.sleep(0.5)
        began = time.process_time()
        await asyncio.sleep(seconds)
        share = (time.process_time() - began) / seconds * 100
    return [at_most("idle", share, 5.0, "% of a core")]


async def _delays(measure: str, folder: Path, orders: Service, scale: Scale, goals: dict[str, float]) -> list[Reading]:
    count = max(100, int(RATE * scale.seconds(10.0)))
    committed = await _publish_steadily(orders, count)
    handled = await _handled(folder / "billing.db", count)
    ours = [handled[number] - at for number, at in committed.items()]
    limit = folder / "limit"
    limit.mkdir()
    producer, consumer = [await byhand.made_store(limit / name) for name in ("orders.db", "billing.db")]
    with closing(producer), closing(consumer), closing(byhand.made_log(limit / "log.db")) as log:
        chain = [byhand.chain(producer, log, consumer, number) for number in range(1, min(count, 500) + 1)]
    return delays(measure, ours, chain, goals)


async def _publish_steadily(orders: Service, count: int) -> dict[int, float]:
    """When each event was committed."""
    committed: dict[int, float] = {}
    began = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        order = placed(number)
        async with orders.transaction(TENANT) as tx:
            await tx.execute(BUSINESS, (order.order_id, order.total_cents))
            tx.publish(order)
        committed[number] = time.perf_counter()
    return committed


async def _handled(path: Path, count: int, patience: float = 30.0) -> dict[int, float]:
    """When each event was handled, once all of them are."""
    deadline = time.monotonic() + patience
    with closing(sqlite3.connect(path)) as connection:
        while True:
            found: dict[int, float] = dict(connection.execute("SELECT number, at FROM handled").fetchall())
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {len(found):,} of {count:,} events arrived in {patience:g} s")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running(*services: Service) -> AsyncIterator[None]:
    """Run all parts of the services until the block ends."""
    stop = asyncio.Event()
    runtimes = [await app_of(service).opened.prepare() for service in services]
    tasks = [asyncio.create_task(runtime.run(stop)) for runtime in runtimes]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)
        for service in services:
            await service.aclose()


@asynccontextmanager
async def running_elsewhere(folder: Path) -> AsyncIterator[None]:
    """Run relay and consumer in a process of their own until the block ends."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.latency", str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        await child.stdout.readline()
        yield
    finally:
        child.terminate()
        await child.wait()


async def _serve(folder: Path) -> None:
    """The other process: says that it is ready, and ends with SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with running(orders_in(folder), billing_with_times(folder)):
        print("ready", flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
