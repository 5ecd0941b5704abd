from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.updated.v1", key="order_id")
class OrderUpdated(Payload):
    order_id: str
    address: str | None
    note: str | None
