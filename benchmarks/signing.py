"""What signatures cost: the same work with every fact signed and proved, and with none, in turns."""

from __future__ import annotations

import asyncio
import base64
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks import shop
from benchmarks.postgres import shop as postgres_shop
from benchmarks.postgres.server import BenchServer
from benchmarks.reading import Reading, Scale
from benchmarks.shop import TENANT, Done, OrderPlaced, placed, relay
from benchmarks.spending import Kind, Spent, compared, nothing, spent
from posthouse import App, Event, Policy, Service, Signing, Tx
from posthouse.app import app_of
from posthouse.broker import Frame
from posthouse.brokers.memory import MemoryBroker, MemoryLog, Stored
from posthouse.clock import SystemClock
from posthouse.trust.signatures.keys import Key, write_keys

GOAL = 0.75
"""The share of the speed that is left."""
TOGETHER = 50
"""Events of a transaction, where there are several."""
PATIENCE = 120.0
TOPIC = "shop.orders.order"

Fresh = Callable[[], AbstractAsyncContextManager[str]]
"""The URL of an empty store that has its tables."""


class Ground(NamedTuple):
    """What the two stores differ in."""

    name: str
    fresh: Fresh
    business: str


async def embedded(folder: Path, scale: Scale) -> list[Reading]:
    """Publish and consume by one and by fifty, every fact signed and proved, beside none, on SQLite."""
    numbers = itertools.count()

    @asynccontextmanager
    async def fresh() -> AsyncIterator[str]:
        url = f"sqlite:///{folder / f'{next(numbers)}.db'}"
        orders = Service("setup")
        app = App(orders, store=url, broker=MemoryBroker(clock=SystemClock()))
        orders.setup(shop.create)
        await app.open()
        await app.aclose()
        yield url

    return await _signing(Ground("SQLite", fresh, shop.BUSINESS), folder, scale)


async def on_postgres(server: BenchServer, scale: Scale) -> list[Reading]:
    """Publish and consume by one and by fifty, every fact signed and proved, beside none."""
    async with server.prepared() as original:

        @asynccontextmanager
        async def fresh() -> AsyncIterator[str]:
            with server.copied(original) as url:
                yield url

        with tempfile.TemporaryDirectory(prefix="posthouse-bench-") as folder:
            return await _signing(Ground("PostgreSQL", fresh, postgres_shop.BUSINESS), Path(folder), scale)


async def _signing(ground: Ground, folder: Path, scale: Scale) -> list[Reading]:
    signing, rounds, bare = _key(folder), scale.turns(7), _bare()
    count, many = scale.count(1_000), scale.count(5_000)
    logs = {on: await _said(ground, signing if on else None, many) for on in (True, False)}

    async def publish(at_once: int, count: int, kind: Kind) -> Spent:
        also = bare.sign if kind == "limit" else nothing
        async with ground.fresh() as url:
            orders = _orders(url, MemoryBroker(clock=SystemClock()), signing if kind == "ours" else None)
            await app_of(orders).open()
            await _place(orders, range(at_once), at_once, ground.business)
            took = await spent(_place(orders, range(count), at_once, ground.business, also))
            await orders.aclose()
            return took

    async def consume(at_once: int, count: int, kind: Kind) -> Spent:
        on, also = kind == "ours", bare.verify if kind == "limit" else nothing
        async with ground.fresh() as url:
            log, done = MemoryLog(), Done(count)
            log.topics[TOPIC] = [Stored(frame, time.time()) for frame in logs[on][:count]]
            billing = _billing(url, log, signing if on else None, at_once, done, ground.business, also)
            [consumer] = (await app_of(billing).opened.prepare()).consumers
            async with asyncio.timeout(PATIENCE):
                took = await spent(consumer.run(done.stop))
            await billing.aclose()
            return took

    readings = []
    for at_once, size in ((1, count), (TOGETHER, many)):
        for name, work in (("publish", publish), ("consume", consume)):
            title = f"{ground.name}: {name} by {at_once}"
            readings += await compared(title, partial(work, at_once, size), rounds, size, GOAL)
    return readings


class Bare(NamedTuple):
    """Signing and verifying, and nothing else."""

    sign: Callable[[], object]
    verify: Callable[[], object]


def _bare() -> Bare:
    key, said = Ed25519PrivateKey.generate(), bytes(600)
    return Bare(partial(key.sign, said), partial(key.public_key().verify, key.sign(said), said))


def _key(folder: Path) -> Signing:
    secret, public, private = Ed25519PrivateKey.generate(), folder / "keys.toml", folder / "private"
    key = Key(id="orders-1", public=secret.public_key().public_bytes_raw(), source="/shop/orders")
    write_keys(public, [key])
    private.write_text(f"orders-1:{base64.b64encode(secret.private_bytes_raw()).decode()}\n")
    return Signing(keys=public, private=private)


def _orders(store: str, broker: MemoryBroker, signing: Signing | None) -> Service:
    orders = Service("orders", namespace="shop")
    App(orders, store=store, broker=broker, signing=signing)
    orders.event("order.placed.v1", key="order_id")(OrderPlaced)
    return orders


def _billing(
    store: str,
    log: MemoryLog,
    signing: Signing | None,
    at_once: int,
    done: Done,
    business: str,
    also: Callable[[], object],
) -> Service:
    billing = Service("billing", namespace="shop")
    App(billing, store=store, broker=MemoryBroker(clock=SystemClock(), log=log), signing=signing)
    billing.external("shop.orders.order.placed.v1", key="order_id")(OrderPlaced)

    @billing.on(OrderPlaced, policy=Policy() if at_once == 1 else Policy(grouped=True, group_size=at_once))
    async def write(event: Event[OrderPlaced], tx: Tx) -> None:
        await tx.execute(business, (event.data.order_id, event.data.total_cents))
        also()
        done()

    return billing


async def _place(
    orders: Service, numbers: Sequence[int], at_once: int, business: str, also: Callable[[], object] = nothing
) -> None:
    for first in range(0, len(numbers), at_once):
        async with orders.transaction(TENANT) as tx:
            for order in map(placed, numbers[first : first + at_once]):
                await tx.execute(business, (order.order_id, order.total_cents))
                tx.publish(order)
                also()


async def _said(ground: Ground, signing: Signing | None, count: int) -> Sequence[Frame]:
    """So many facts as the relay puts them into a log."""
    log = MemoryLog()
    async with ground.fresh() as url:
        orders = _orders(url, MemoryBroker(clock=SystemClock(), log=log), signing)
        await app_of(orders).open()
        await _place(orders, range(count), 500, ground.business)
        await relay(orders)
        await orders.aclose()
    return [stored.frame for stored in log.topics[TOPIC]]
