from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id", idempotency="required")
class OrderPlaced(Payload):
    order_id: str


async def place(order_id: str, tenant: str) -> None:
    async with orders.transaction(tenant) as tx:
        tx.publish(OrderPlaced(order_id=order_id))
