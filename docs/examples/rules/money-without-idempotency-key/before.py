from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.paid.v1", key="order_id", retention="cold")
class OrderPaid(Payload):
    order_id: str
    amount_cents: int


async def pay(order_id: str, cents: int, tenant: str) -> None:
    async with orders.transaction(tenant) as tx:
        paid = OrderPaid(order_id=order_id, amount_cents=cents)
        tx.publish(paid)
