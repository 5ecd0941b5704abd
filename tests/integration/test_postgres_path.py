"""The whole way of an event between two services on PostgreSQL, each in a schema of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreOutdated
from posthouse.store import HeldFilter
from posthouse.testing import rehost
from posthouse.watch.status import Status, status
from tests.kit.running import at_work
from tests.kit.waiting import eventually

orders = Service("orders", namespace="shop")
billing = Service("billing", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    number: int


@orders.event("order.noted.v1")
class OrderNoted(Payload):
    note: str


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str


broken: set[str] = set()


@billing.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS invoice (id bigserial, order_id text, number int)")
    await tx.execute("CREATE TABLE IF NOT EXISTS note (note text)")


@billing.on(OrderPlaced, policy=Policy(max_attempts=3, first_delay=0.05))
async def invoice(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    sql = "INSERT INTO invoice (order_id, number) VALUES ($1, $2)"
    await tx.execute(sql, (event.data.order_id, event.data.number))
    if event.data.order_id in broken:
        raise RuntimeError("the ledger is closed")
    return InvoiceIssued(order_id=event.data.order_id)


@billing.on(OrderNoted)
async def note(event: Event[OrderNoted], connection: asyncpg.Connection) -> None:
    await connection.execute("INSERT INTO note VALUES ($1)", event.data.note)


@pytest_asyncio.fixture
async def running(postgres_url: str) -> AsyncIterator[MemoryBroker]:
    """Both services at work, on one broker in memory."""
    broken.clear()
    clock = SystemClock()
    broker = MemoryBroker(clock=clock)
    before, runtimes = [], []
    for service in (orders, billing):
        before.append(rehost(service, store=f"{postgres_url}?schema={service.name}", broker=broker, clock=clock))
        with pytest.raises(StoreOutdated, match="posthouse db upgrade"):
            await app_of(service).open()
        await app_of(service).store.upgrade()
        runtimes.append(await app_of(service).opened.prepare())
    async with at_work(*(runtime.run for runtime in runtimes)):
        yield broker
    for service, parts in zip((orders, billing), before, strict=True):
        await service.aclose()
        service.hosted_by(parts)


async def settled() -> Status:
    """Wait until everything that was said is applied or held."""

    async def quiet() -> Status | None:
        figures = await status([orders, billing])
        return figures if figures.quiet and figures == await status([orders, billing]) else None

    return await eventually(quiet)


async def invoices(order_id: str) -> list[object]:
    async with billing.transaction("t1") as tx:
        return [
            n for (n,) in await tx.execute("SELECT number FROM invoice WHERE order_id = $1 ORDER BY id", (order_id,))
        ]


async def last_invoice(order_id: str, number: int) -> bool:
    return (await invoices(order_id))[-1:] == [number]


async def test_many_keys_are_applied_once_and_in_order(running: MemoryBroker) -> None:
    async def place(order_id: str) -> None:
        for number in range(10):
            async with orders.transaction("t1") as tx:
                tx.publish(OrderPlaced(order_id=order_id, number=number))

    names = [f"o{number}" for number in range(12)]
    await asyncio.gather(*(place(name) for name in names))
    figures = await settled()
    for name in names:
        assert await invoices(name) == list(range(10))
    line = next(line for line in figures.lines if line.consumer == "billing" and "order" in line.topic)
    assert (line.committed, line.applied, line.held) == (120, 120, {})


async def test_what_was_rolled_back_is_never_seen(running: MemoryBroker) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with orders.transaction("t1") as tx:
            tx.publish(OrderPlaced(order_id="lost", number=1))
            raise ZeroDivisionError
    async with orders.transaction("t1") as tx:
        tx.publish(OrderPlaced(order_id="kept", number=1))
    await settled()
    assert (await invoices("lost"), await invoices("kept")) == ([], [1])


async def test_a_failing_event_keeps_its_key_waiting_and_nothing_else(running: MemoryBroker) -> None:
    broken.add("bad")
    for number in range(3):
        async with orders.transaction("t1") as tx:
            tx.publish(OrderPlaced(order_id="bad", number=number))
            tx.publish(OrderPlaced(order_id="good", number=number))

    await eventually(lambda: app_of(billing).store.held.find(HeldFilter(state="dead")))
    await settled()
    assert (await invoices("bad"), await invoices("good")) == ([], [0, 1, 2])
    held = await app_of(billing).store.held.find(HeldFilter())
    assert [(event.entry.sequence, event.state) for event in held] == [(1, "dead"), (2, "blocked"), (3, "blocked")]
    broken.clear()
    await billing.held.retry(held[0].id)
    await eventually(lambda: last_invoice("bad", 2))
    assert await invoices("bad") == [0, 1, 2]
    assert not (await settled()).lines[0].held


async def test_a_handler_may_have_the_drivers_connection(running: MemoryBroker) -> None:
    async with orders.transaction("t1") as tx:
        tx.publish(OrderNoted(note="hello"))
    await settled()
    async with billing.transaction("t1") as tx:
        assert await tx.execute("SELECT note FROM note") == [("hello",)]


async def test_a_fact_is_said_later(running: MemoryBroker) -> None:
    async with orders.transaction("t1") as tx:
        tx.publish(OrderPlaced(order_id="later", number=7), after=0.2)
    await eventually(lambda: last_invoice("later", 7))
    assert await invoices("later") == [7]
