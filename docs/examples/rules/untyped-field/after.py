from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    gift: bool
