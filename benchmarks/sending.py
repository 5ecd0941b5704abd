"""The way out: from a transaction to the outbox, and from there to the log."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from benchmarks import byhand
from benchmarks.reading import Reading, Scale, compare, timed
from benchmarks.shop import BUSINESS, TENANT, discard, fill, orders_in, placed, relay
from posthouse import Service
from posthouse.app import app_of

# As if nothing had been relayed, by nobody.
REWIND = ("UPDATE posthouse_shard SET cursor = 0, owner = NULL", "DELETE FROM posthouse_member")


async def publish(folder: Path, scale: Scale) -> list[Reading]:
    """One business row and one keyed event in each transaction."""
    return [await _publish("publish", folder, scale, at_once=1, count=scale.count(300), rounds=15, goal=0.7)]


async def publish_100(folder: Path, scale: Scale) -> list[Reading]:
    """A hundred business rows and a hundred keyed events in each transaction."""
    return [await _publish("publish-100", folder, scale, at_once=100, count=scale.count(5_000), rounds=9, goal=None)]


async def _publish(
    measure: str, folder: Path, scale: Scale, *, at_once: int, count: int, rounds: int, goal: float | None
) -> Reading:
    orders = orders_in(folder)
    await app_of(orders).open()
    limit = await byhand.made_store(folder / "limit.db")

    async def ours(number: int) -> float:
        began = time.perf_counter()
        for first in range(number * count, (number + 1) * count, at_once):
            async with orders.transaction(TENANT) as tx:
                for order in map(placed, range(first, first + at_once)):
                    await tx.execute(BUSINESS, (order.order_id, order.total_cents))
                    tx.publish(order)
        return time.perf_counter() - began

    async def theirs(number: int) -> float:
        numbers = range(number * count, (number + 1) * count)
        return timed(partial(byhand.publish, limit, numbers, at_once=at_once))

    try:
        return await compare(measure, ours, theirs, rounds=scale.turns(rounds), count=count, goal=goal)
    finally:
        await orders.aclose()
        limit.close()


async def relay_outbox(folder: Path, scale: Scale) -> list[Reading]:
    """Drain an outbox into an empty log."""
    count = scale.count(100_000)
    source = orders_in(folder)
    await app_of(source).open()
    await fill(source, count)
    await source.aclose()
    store = byhand.opened(folder / "orders.db")

    async def ours(number: int) -> float:
        place = folder / f"ours-{number}"
        place.mkdir()
        orders = orders_in(folder, log=place / "log.db")
        for statement in REWIND:
            store.execute(statement)
        await app_of(orders).opened.prepare()
        began = time.perf_counter()
        await relay(orders)
        took = time.perf_counter() - began
        await _refuse_unless_stored(orders, count)
        await orders.aclose()
        discard(place)
        return took

    async def theirs(number: int) -> float:
        place = folder / f"limit-{number}"
        place.mkdir()
        log = byhand.made_log(place / "log.db")
        took = timed(partial(byhand.relay, store, log))
        log.close()
        discard(place)
        return took

    try:
        return [await compare("relay", ours, theirs, rounds=scale.turns(3), count=count, goal=0.6)]
    finally:
        store.close()


async def _refuse_unless_stored(orders: Service, count: int) -> None:
    stored = (await app_of(orders).broker.progress("nobody", [byhand.TOPIC]))[byhand.TOPIC].stored
    if stored != count:
        raise RuntimeError(f"the relay moved {stored:,} of {count:,} events")
