"""A shop and its billing, as they are deployed: what they are in code, where they run in the environment."""

from __future__ import annotations

import asyncio
import sys

from posthouse import App, Event, Payload, Service, Tx

shop = Service("shop", owner="team checkout")
billing = Service("billing", owner="team money")
app = App(shop, billing)  # POSTHOUSE_STORE and POSTHOUSE_BROKER say where


@shop.event("order.placed.v1", key="customer", retention="cold")
class OrderPlaced(Payload):
    """A customer has placed an order."""

    order_id: str
    customer: str
    total_cents: int


@billing.setup
async def make_tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS invoice (order_id TEXT PRIMARY KEY, cents INTEGER NOT NULL)")


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    row = {"order_id": event.data.order_id, "cents": event.data.total_cents}
    await tx.execute("INSERT INTO invoice VALUES (:order_id, :cents)", row)


async def place(first: int, last: int) -> None:
    """Orders of nine customers, each in a transaction of its own."""
    for number in range(first, last):
        async with shop.transaction(tenant="t1") as tx:
            order = OrderPlaced(order_id=f"o{number}", customer=f"c{number % 9}", total_cents=100 + number)
            tx.publish(order, idempotency_key=f"shop:place:{order.order_id}")
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(place(int(sys.argv[1]), int(sys.argv[2])))
