"""DBOS: durable workflows on a queue; each is checkpointed in tables of its own."""

from __future__ import annotations

import asyncio
import time

from dbos import DBOS, DBOSClient, DBOSConfig

from benchmarks.peers.job import CONNECTIONS, PATIENCE, in_threads, payload

handled = 0


@DBOS.workflow(name="placed")
def placed(order: dict[str, str | int]) -> None:
    global handled
    handled += 1


def _launch(url: str) -> None:
    settings: DBOSConfig = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config=settings)
    DBOS.launch()


async def prepare(url: str) -> None:
    await asyncio.to_thread(_launch, url)
    await asyncio.to_thread(DBOS.destroy)


async def add(url: str, count: int) -> float:
    client = DBOSClient(system_database_url=url)
    took = await asyncio.to_thread(
        in_threads,
        count,
        lambda number: client.enqueue({"queue_name": "orders", "workflow_name": "placed"}, payload(number)),
    )
    client.destroy()
    return took


async def drain(url: str, count: int) -> float:
    began = time.perf_counter()
    await asyncio.to_thread(_launch, url)
    await asyncio.to_thread(
        lambda: DBOS.register_queue("orders", polling_interval_sec=0.01, worker_concurrency=8 * CONNECTIONS)
    )
    while handled < count:
        if time.perf_counter() > began + PATIENCE:
            raise RuntimeError(f"DBOS ran {handled:,} of {count:,} workflows in {PATIENCE:g} s")
        await asyncio.sleep(0.01)
    took = time.perf_counter() - began
    await asyncio.to_thread(DBOS.destroy)
    return took
