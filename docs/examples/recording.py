"""One statement and the fact that follows from it."""

import asyncio

from posthouse import Payload, Service, Tx

orders = Service("orders", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.setup
async def create(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS placed (order_id TEXT PRIMARY KEY)")


async def place(order_id: str) -> bool:
    once = "INSERT INTO placed (order_id) VALUES (:order_id) ON CONFLICT DO NOTHING"
    return await orders.record(once, {"order_id": order_id}, OrderPlaced(order_id=order_id), tenant="t1")


async def main() -> None:
    print("o1 is new:", await place("o1"))
    print("o1 is new:", await place("o1"))  # nothing was written, so nothing is said
    print((await orders.host.store.counts()).committed)
    await orders.aclose()


asyncio.run(main())
