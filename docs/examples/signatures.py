"""Signed facts: one is changed in the outbox by hand, and reaches no handler."""

import asyncio
import sqlite3
import subprocess
import sys

from posthouse import App, Event, Payload, Service, Signing, Tx
from posthouse.store import HeldFilter

orders = Service("orders", namespace="shop")
billed = asyncio.Event()


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    total_cents: int


@orders.on(OrderPlaced)
async def bill(event: Event[OrderPlaced], tx: Tx) -> None:
    print(f"{event.data.order_id}: {event.data.total_cents}")
    billed.set()


app = App(
    orders,
    signing=Signing(keys="keys.toml", private="private/orders", verify={"shop.*": "require"}),
)

NEW_KEY = ["keys", "new", "orders-1", "--source", "/shop/orders", "--topic", "shop.orders.*"]
FILES = ["--private", "private/orders", "--file", "keys.toml"]
LESS = "UPDATE posthouse_outbox SET body = CAST(replace(body, '99900', '10000') AS BLOB) WHERE key = 'o2'"


async def main() -> None:
    command = [sys.executable, "-m", "posthouse", *NEW_KEY, *FILES]
    await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
    await app.open()
    async with orders.transaction() as tx:
        tx.publish(OrderPlaced(order_id="o1", total_cents=500))
        tx.publish(OrderPlaced(order_id="o2", total_cents=99900))
    with sqlite3.connect("orders.db") as database:
        assert database.execute(LESS).rowcount == 1
    database.close()
    async with app.running():
        await billed.wait()
        while not (found := await app.store.held.find(HeldFilter())):  # noqa: ASYNC110  # another one quarantines it
            await asyncio.sleep(0.05)
    print(f"the other: {found[0].state}, {found[0].reason}")


if __name__ == "__main__":
    asyncio.run(main())
