"""An application in which everything happens: events that flow, one that dies, sagas that end in every way, a read model, a
schedule, a timer. Runbooks are tried on it, and Prometheus scrapes it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from posthouse.app import App, app_of
from posthouse.cli.target import services_of
from tests.kit.waiting import eventually

APP = '''
"""Orders are placed, billed, delivered and listed. A total below 0 cannot be billed; 7 is delivered in part, 13 not undone;
66 makes billing speak for everybody."""

import asyncio
import contextlib
import sys

from posthouse import App, Event, Payload, Policy, Service, Tx
from posthouse.broker import Frame
from posthouse.clock import new_id
from posthouse.errors import RuleBroken
from posthouse.processes import Model, Run, Saga, Turn, deadline, starts, undo

orders, billing = Service("orders", namespace="shop"), Service("billing", namespace="shop")
app = App(orders, billing)


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    total_cents: int


@billing.on(OrderPlaced, policy=Policy(max_attempts=1))
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    if event.data.total_cents < 0:
        raise ValueError("a negative total")
    if event.data.total_cents == 66:
        with contextlib.suppress(RuleBroken):
            async with orders.transaction("platform") as other:
                other.publish(OrderPlaced(order_id="everybody's", total_cents=66))


@orders.saga("delivery", correlate="order_id", policy=Policy(max_attempts=1))
class Delivery(Saga):
    order_id: str

    @starts(OrderPlaced)
    def ordered(self, event: Event[OrderPlaced], turn: Turn) -> None:
        if event.data.total_cents == 7:
            turn.partial("the second parcel is lost")
        elif event.data.total_cents == 13:
            turn.compensate("the van broke down")
        elif event.data.total_cents == 99:
            turn.set(self.too_late)
        else:
            turn.complete()

    @undo(ordered)
    def called_back(self, event: Event[OrderPlaced], turn: Turn) -> None:
        if event.data.total_cents == 13:
            raise ValueError("the carrier does not answer")

    @deadline(3600.0)
    def too_late(self, turn: Turn) -> None:
        turn.complete()


listings = billing.projection("listings", lag_budget=5.0)


@listings.setup
async def listing_tables(model: Model) -> None:
    await model.execute(f"CREATE TABLE {model.table('listing')} (order_id TEXT PRIMARY KEY)")


@listings.on(OrderPlaced)
async def listed(event: Event[OrderPlaced], model: Model) -> None:
    await model.execute(f"INSERT INTO {model.table('listing')} VALUES ('{event.data.order_id}') ON CONFLICT DO NOTHING")


@orders.every("0 6 1 1 *")
async def sweep(run: Run, tx: Tx) -> None:
    pass


async def place(*placed: tuple[str, int]) -> None:
    async with orders.transaction("t1") as tx:
        for order_id, total_cents in placed:
            tx.publish(OrderPlaced(order_id=order_id, total_cents=total_cents))


async def spoil() -> None:
    """What nobody can read, in the topic of the orders."""
    await app.broker.publish([Frame(topic="shop.orders.order", id=new_id(), body=b"{")])


async def flow(name: str, seconds: float) -> None:
    """Ten orders a second, for so long."""
    for number in range(round(seconds * 10)):
        await place((f"{name}-{number}", 100))
        await asyncio.sleep(0.1)


async def main(work: str) -> None:
    await eval(work)
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
'''
PLACED = (("a", 100), ("bad", -1), ("bad", 5), ("part", 7), ("stuck", 13), ("later", 99))
"""`bad` dies at billing, and one waits behind it."""


def bring_into_trouble(folder: Path) -> None:
    """Write the application to the folder, place its orders, and run it until they are where they end."""
    (folder / "app.py").write_text(APP, encoding="utf-8")
    asyncio.run(_work())
    sys.modules.pop("app", None)


async def _work() -> None:
    sys.modules.pop("app", None)
    host = app_of(services_of("app")[0])
    place: Callable[..., object] = sys.modules["app"].place
    async with host.running(), asyncio.timeout(30):
        await place(*PLACED)  # type: ignore[misc]
        await eventually(lambda: _settled(host))


async def _settled(host: App) -> bool:
    counts = await host.store.counts()
    sagas = {status for _, status in await host.store.sagas.counts()}
    return (
        not counts.unsent and sum(counts.held.values()) == 2 and sagas >= {"partial", "compensation_failed", "running"}
    )
