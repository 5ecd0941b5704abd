"""The other process of a load: relays what the first one commits, and handles it."""

from __future__ import annotations

import asyncio
import sys
import time

import asyncpg
import msgspec

from benchmarks.postgres.backlog import HEADERS
from benchmarks.postgres.load import PATIENCE, Job
from benchmarks.postgres.shop import orders_on
from benchmarks.shop import OrderPlaced
from posthouse import App, Event, Policy, Service
from posthouse.app import app_of
from posthouse.broker import Frame

PAUSE = 0.1
"""Seconds between two looks of the relay by hand."""

# What it found, in order.
TAKE = """
WITH gone AS (DELETE FROM polled WHERE id IN (SELECT id FROM polled ORDER BY id LIMIT 1000) RETURNING *)
SELECT topic, event_id, key, body FROM gone ORDER BY id
"""


class Seen:
    """When each event was handled, by its number."""

    def __init__(self, count: int) -> None:
        self.at: dict[int, float] = {}
        self.done = asyncio.Event()
        self._count = count

    def __call__(self, event: Event[OrderPlaced]) -> None:
        self.at[event.data.total_cents] = time.perf_counter()
        if len(self.at) >= self._count:
            self.done.set()


def billing_that_notes(job: Job, seen: Seen) -> Service:
    """A handler that touches nothing but its transaction, and notes when it was called."""
    billing = Service("billing", namespace="shop")
    App(billing, store=job.store, broker=job.broker)
    billing.external("shop.orders.order.placed.v1", key="order_id")(OrderPlaced)

    @billing.on(OrderPlaced, policy=Policy(grouped=True))
    async def note(event: Event[OrderPlaced]) -> None:
        seen(event)

    return billing


async def poll_by_hand(store: str, orders: Service, stop: asyncio.Event) -> None:
    """Look every 100 ms, publish what is there."""
    connection = await asyncpg.connect(store)
    while not stop.is_set():
        while rows := await connection.fetch(TAKE):
            await app_of(orders).broker.publish(
                [
                    Frame(topic=topic, id=event_id, key=key, body=body, headers=HEADERS)
                    for topic, event_id, key, body in rows
                ]
            )
        await asyncio.sleep(PAUSE)
    await connection.close()


async def work(job: Job) -> dict[int, float]:
    """Until all events were handled, or patience ends."""
    seen = Seen(job.count)
    orders, billing = orders_on(job.store, job.broker), billing_that_notes(job, seen)
    relaying, handling = await app_of(orders).opened.prepare(), await app_of(billing).opened.prepare()
    stop = asyncio.Event()
    tasks = [asyncio.create_task(handling.run(stop, ["consumers"]))]
    if job.way == "outbox":
        tasks.append(asyncio.create_task(relaying.run(stop, ["relay"])))
    if job.way == "poll":
        tasks.append(asyncio.create_task(poll_by_hand(job.store, orders, stop)))
    await asyncio.sleep(0.3)  # subscriptions and leases are taken
    print("ready", flush=True)
    try:
        async with asyncio.timeout(PATIENCE):
            await seen.done.wait()
    except TimeoutError:
        pass
    stop.set()
    await asyncio.gather(*tasks)
    await asyncio.gather(orders.aclose(), billing.aclose())
    return seen.at


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Job)))).decode())
