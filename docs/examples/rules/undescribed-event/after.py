from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    """A customer has placed an order; nothing is paid yet."""

    order_id: str
