from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="tenant_id")
class OrderPlaced(Payload):
    order_id: str
    tenant_id: str
