import asyncio

from posthouse import Event, Payload, Service, Tx, drained

shop = Service("shop")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    cents: int


@shop.on(OrderPlaced)  # once per event, in order per key, in one transaction with what it writes
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS invoices (order_id TEXT)")
    await tx.execute("INSERT INTO invoices VALUES (:order_id)", {"order_id": event.data.order_id})
    print(f"{event.tenant} owes {event.data.cents} cents for {event.data.order_id}")


async def main() -> None:
    async with shop.running():
        async with shop.transaction(tenant="t1") as tx:  # your rows and your facts commit together
            tx.publish(OrderPlaced(order_id="o1", cents=1200))
            tx.publish(OrderPlaced(order_id="o2", cents=350))
        figures = await drained(shop)
    print([f"{line.committed} committed, {line.applied} applied" for line in figures.lines])


asyncio.run(main())
