"""What a step of a saga costs, with ten thousand of them in flight, and what waiting timers cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import asyncpg
import msgspec

from benchmarks.byhand import TOPIC
from benchmarks.postgres.consuming import CONNECTIONS, PATIENCE, frames, warmed
from benchmarks.postgres.server import BenchServer
from benchmarks.postgres.shop import BUSINESS
from benchmarks.reading import Reading, Scale, compare
from benchmarks.shop import TENANT, Done, OrderPlaced
from posthouse import App, Event, Payload, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Frame
from posthouse.brokers.memory import MemoryBroker, MemoryLog, Stored
from posthouse.clock import SystemClock
from posthouse.processes import Saga, Turn, deadline, starts, step
from posthouse.stores.postgres import PostgresStore

IN_FLIGHT = 10_000
WAITING = 100_000
DAY = 86_400.0


class Billed(Payload):
    """What both say for each order."""

    order_id: str


async def sagas(server: BenchServer, scale: Scale) -> list[Reading]:
    """A step that changes the state, clears a deadline and says a fact, beside a handler that writes a row and says one."""
    count = scale.count(3_000)
    given = frames(count, count)
    async with server.prepared() as original:
        await _start(original, max(scale.count(IN_FLIGHT), count))

        async def stepped(_: int) -> float:
            with server.copied(original) as url:
                return await _consumed(url, given, saga=True)

        async def handled(_: int) -> float:
            with server.copied(original) as url:
                return await _consumed(url, given, saga=False)

        step = await compare("saga step", stepped, handled, rounds=scale.turns(5), count=count, goal=0.5)
        with server.copied(original) as crowded:
            await _wait(crowded, scale.count(WAITING))

            async def among_timers(_: int) -> float:
                with server.copied(crowded) as url:
                    return await _consumed(url, given, saga=True)

            name = "saga step, 100,000 timers waiting ÷ none"
            timers = await compare(name, among_timers, stepped, rounds=scale.turns(5), count=count, goal=0.9)
    return [step, timers]


def _billing(url: str, given: Sequence[Frame], done: Done, *, saga: bool) -> Service:
    log = MemoryLog()
    log.topics[TOPIC] = [Stored(frame, time.time()) for frame in given]
    store = PostgresStore(url, writers=CONNECTIONS)
    billing = Service("billing", namespace="shop")
    App(billing, store=store, broker=MemoryBroker(clock=SystemClock(), log=log))
    billing.external("shop.orders.order.placed.v1", key="order_id")(OrderPlaced)
    billing.event("order.billed.v1", key="order_id")(Billed)
    if saga:
        _with_saga(billing, done)
    else:

        @billing.on(OrderPlaced)
        async def bill(event: Event[OrderPlaced], tx: Tx) -> Billed:
            await tx.execute(BUSINESS, (event.data.order_id, event.data.total_cents))
            done()
            return Billed(order_id=event.data.order_id)

    return billing


def _with_saga(billing: Service, done: Done) -> type[Saga]:
    @billing.saga("billing", correlate="order_id")
    class Billing(Saga):
        order_id: str
        total_cents: int = 0

        @starts
        def begin(self, turn: Turn) -> None:
            turn.set(self.overdue)

        @step(OrderPlaced)
        def placed(self, event: Event[OrderPlaced], turn: Turn) -> None:
            self.total_cents = event.data.total_cents
            turn.clear(self.overdue)
            turn.publish(Billed(order_id=self.order_id))
            done()

        @deadline(DAY)
        def overdue(self, turn: Turn) -> None:
            turn.compensate("overdue")

    return Billing


async def _start(url: str, count: int) -> None:
    """So many sagas, each with a deadline that waits."""
    billing = _billing(url, (), Done(count), saga=True)
    cls = billing.declared.saga_types["billing"].cls
    for first in range(0, count, 200):
        async with billing.transaction(TENANT) as tx:
            for number in range(first, min(first + 200, count)):
                await billing.start_saga(tx, msgspec.convert({"order_id": f"o{number}"}, cls))
    await billing.aclose()


async def _wait(url: str, count: int) -> None:
    """So many timers for another day, made of those that wait already."""
    connection = await asyncpg.connect(url)
    columns = [
        row["column_name"]
        for row in await connection.fetch(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'posthouse' AND table_name = 'timer' "
            "AND is_identity = 'NO' ORDER BY ordinal_position"
        )
    ]
    copied = ", ".join("t.name || ' ' || n" if column == "name" else f"t.{column}" for column in columns)
    await connection.execute(
        f"INSERT INTO posthouse.timer ({', '.join(columns)}) SELECT {copied} FROM posthouse.timer t, "
        f"generate_series(1, greatest(1, {count} / (SELECT count(*)::int FROM posthouse.timer))) n"
    )
    await connection.execute("ANALYZE posthouse.timer")
    await connection.close()


async def _consumed(url: str, given: Sequence[Frame], *, saga: bool) -> float:
    """The seconds that one consumer takes for all of them, while the scheduler of timers runs beside it."""
    done = Done(len(given))
    billing = _billing(url, given, done, saga=saga)
    runtime = await app_of(billing).opened.prepare()
    consumer = next(c for c in runtime.consumers if c.name == ("billing.billing" if saga else "billing"))
    store = app_of(billing).store
    assert isinstance(store, PostgresStore)
    await warmed(store)
    timing = asyncio.create_task(runtime.timers.run(done.stop))
    began = time.perf_counter()
    async with asyncio.timeout(PATIENCE):
        await consumer.run(done.stop)
    took = time.perf_counter() - began
    await timing
    await _refuse_unless_billed(billing, len(given))
    await billing.aclose()
    return took


async def _refuse_unless_billed(billing: Service, count: int) -> None:
    """A figure for work that was not done is worth nothing."""
    said = (await app_of(billing).store.counts()).committed.get("shop.billing.order", 0)
    if said != count:
        raise RuntimeError(f"{said:,} of {count:,} facts were said")
