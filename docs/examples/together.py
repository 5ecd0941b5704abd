"""Two services in one App: one store, one broker, one relay, and the connections of one."""

import asyncio

from posthouse import App, Event, Payload, Service, Settings, Tx, drained

orders = Service("orders", namespace="shop")
billing = Service("billing", namespace="shop")
app = App(orders, billing, store="sqlite://", broker="memory://", settings=Settings(in_flight=200))


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    print("invoice for", event.data.order_id)


async def main() -> None:
    async with app.running():
        async with orders.transaction() as tx:
            tx.publish(OrderPlaced(order_id="o1"))
        await drained(orders, billing)


asyncio.run(main())
