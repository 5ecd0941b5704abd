from typing import Annotated

from msgspec import Meta

from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")

Skus = Annotated[list[Annotated[str, Meta(max_length=40)]], Meta(max_length=200)]


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    skus: Skus
