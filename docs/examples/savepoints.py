"""A part of a transaction that may fail by itself."""

import asyncio
import contextlib

from posthouse import Payload, Service

orders = Service("orders", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.event("coupon.used.v1", key="coupon")
class CouponUsed(Payload):
    coupon: str
    order_id: str


async def place(order_id: str, coupon: str) -> None:
    async with orders.transaction(tenant="t1") as tx:
        await tx.execute("CREATE TABLE IF NOT EXISTS used (coupon TEXT PRIMARY KEY)")
        tx.publish(OrderPlaced(order_id=order_id))
        with contextlib.suppress(Exception):  # used already: the order stands without it
            async with tx.savepoint():
                tx.publish(CouponUsed(coupon=coupon, order_id=order_id))
                await tx.execute("INSERT INTO used VALUES (:coupon)", {"coupon": coupon})


async def main() -> None:
    await place("o1", "spring")
    await place("o2", "spring")
    print((await orders.host.store.counts()).committed)
    await orders.aclose()


asyncio.run(main())
