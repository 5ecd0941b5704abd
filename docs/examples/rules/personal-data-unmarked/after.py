from typing import Annotated

from posthouse import Payload, Personal, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    email: Annotated[str, Personal("contact")]
