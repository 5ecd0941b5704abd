import asyncio

from posthouse import Event, Payload, Service, Tx, drained

orders = Service("orders", namespace="shop")
billing = Service("billing", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    total_cents: int


@billing.on(OrderPlaced)  # once per event, in order per key, in one transaction
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS invoice (order_id TEXT, cents INTEGER)")
    row = {"order_id": event.data.order_id, "cents": event.data.total_cents}
    await tx.execute("INSERT INTO invoice VALUES (:order_id, :cents)", row)
    print(f"{event.tenant} owes {event.data.total_cents} cents for {event.data.order_id}")


async def main() -> None:
    async with orders.running(), billing.running():
        async with orders.transaction(tenant="t1") as tx:  # your rows and your facts commit together
            tx.publish(OrderPlaced(order_id="o1", total_cents=1200))
            tx.publish(OrderPlaced(order_id="o2", total_cents=350))
        figures = await drained(orders, billing)
    print([f"{line.committed} committed, {line.applied} applied" for line in figures.lines])


asyncio.run(main())
