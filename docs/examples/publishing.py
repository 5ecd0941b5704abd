"""Idempotency keys and timers."""

import asyncio

from posthouse import Payload, Service

orders = Service("orders", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.event("hold.expired.v1", key="order_id")
class HoldExpired(Payload):
    order_id: str


async def place(order_id: str) -> None:
    async with orders.transaction(tenant="t1") as tx:
        tx.publish(OrderPlaced(order_id=order_id), idempotency_key=f"orders:order:{order_id}:placed")
        tx.publish(HoldExpired(order_id=order_id), after=600, timer=f"hold:{order_id}")


async def pay(order_id: str) -> None:
    async with orders.transaction(tenant="t1") as tx:
        print("the hold was still waiting:", await tx.cancel(f"hold:{order_id}"))


async def main() -> None:
    await place("o1")
    await place("o1")  # the client asked twice: one fact, one timer
    await pay("o1")
    counts = await orders.host.store.counts()
    print(counts.committed, counts.timers, "timers")
    await orders.aclose()


asyncio.run(main())
