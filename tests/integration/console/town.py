"""A town with trouble, for the console to show: events that failed in three ways, one that is missing, a saga that waits, a saga that
could not be undone, a timer, a schedule, a read model; and script in every text that somebody may write."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

from posthouse import (
    App,
    Event,
    Model,
    Payload,
    Personal,
    Policy,
    Run,
    Saga,
    Service,
    Turn,
    Tx,
    deadline,
    starts,
    step,
    undo,
)
from posthouse.store import HeldFilter
from tests.kit.waiting import eventually

HOSTILE = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\"'&`${1}"
BIG = 9_007_199_254_740_993
"""2⁵³ + 1: a browser that reads it as a number shows another one."""
SOON = Policy(max_attempts=2, first_delay=0.05, last_delay=0.1)

orders = Service("orders", namespace="town")
billing = Service("billing", namespace="town")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    """Somebody ordered something."""

    order_id: str
    total_cents: int
    note: str
    email: Annotated[str, Personal("contact")] = "zahra@example.org"


@orders.event("order.packed.v1", key="order_id")
class OrderPacked(Payload):
    order_id: str


@orders.event("order.recalled.v1", key="order_id")
class OrderRecalled(Payload):
    order_id: str


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str


@billing.on(OrderPlaced, policy=SOON)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    if event.data.total_cents < 0:
        raise ValueError(f"a negative total: {HOSTILE}")
    if event.data.total_cents == 0:
        raise LookupError("no such account")
    return InvoiceIssued(order_id=event.data.order_id)


@billing.on(OrderPacked, policy=SOON)
async def pack(event: Event[OrderPacked], tx: Tx) -> None:
    pass


@orders.saga("fulfilment", correlate="order_id", policy=SOON)
class Fulfilment(Saga):
    """Wait for the invoice, then for the packing."""

    order_id: str

    @starts(OrderPlaced)
    def placed(self, event: Event[OrderPlaced], turn: Turn) -> None:
        turn.set(self.late)

    @undo(placed)
    def recall(self, event: Event[OrderPlaced], turn: Turn) -> None:
        if self.order_id == "broken":
            raise RuntimeError("the warehouse does not answer")
        turn.publish(OrderRecalled(order_id=self.order_id))

    @step(InvoiceIssued)
    def invoiced(self, event: Event[InvoiceIssued], turn: Turn) -> None:
        if self.order_id == "broken":
            turn.compensate("no stock")

    @step(OrderPacked)
    def packed(self, event: Event[OrderPacked], turn: Turn) -> None:
        turn.complete()

    @deadline(3600.0)
    def late(self, turn: Turn) -> None:
        turn.compensate("late")


book = orders.projection("book", lag_budget=5.0)


@book.setup
async def tables(model: Model) -> None:
    await model.execute(f"CREATE TABLE {model.table('line')} (tenant TEXT, order_id TEXT)")


@book.on(OrderPlaced)
async def listed(event: Event[OrderPlaced], model: Model) -> None:
    await model.execute(f"INSERT INTO {model.table('line')} VALUES (?, ?)", (event.tenant, event.data.order_id))


@orders.every("0 6 * * *")
async def night_audit(run: Run, tx: Tx) -> None:
    """Close the day."""


FOLDER = Path(os.environ.get("TOWN", "."))
app = App(orders, billing, store=f"sqlite:///{FOLDER}/town.db", broker=f"embedded:///{FOLDER}/log.db")


async def place(order_id: str, cents: int, tenant: str = "kabul", note: str = "") -> None:
    async with orders.transaction(tenant, correlation=f"request-{order_id}") as tx:
        tx.publish(OrderPlaced(order_id=order_id, total_cents=cents, note=note))


async def fill() -> None:
    """Let all of it happen, until nothing moves."""
    async with app.running():
        for number in range(12):
            await place(f"good-{number:02d}", 100 + number, tenant=("kabul", "herat")[number % 2])
        await place("broken", 700)
        for number in range(5):
            await place(f"bad-{number}", -1, note=HOSTILE)
            await place(f"bad-{number}", 500)  # waits behind
        await place(HOSTILE, -5, tenant="herat", note=HOSTILE)
        for number in range(3):
            await place(f"nobody-{number}", 0)
        await place("big", -BIG)
        async with orders.transaction("kabul") as tx:
            tx.publish(OrderPacked(order_id="good-00"))
            tx.publish(OrderRecalled(order_id="later"), after=7200, timer="recall:later")
        await eventually(lambda: _held("dead", 10))
        await eventually(lambda: _held("blocked", 5))
        await eventually(_broken)
    await app.aclose()


async def _held(state: str, number: int) -> bool:
    held = await app.store.held.find(HeldFilter(consumer="billing"))
    return sum(event.state == state for event in held) >= number


async def _broken() -> bool:
    counts = await app.store.sagas.counts()
    return counts.get(("fulfilment", "compensation_failed"), 0) == 1 and counts.get(("fulfilment", "completed"), 0) == 1


if __name__ == "__main__":
    asyncio.run(fill())
