from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.paid.v1", key="order_id")
class OrderPaid(Payload):
    order_id: str
    amount_cents: int
