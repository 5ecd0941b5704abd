from datetime import date

from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id", deprecated=date(2026, 1, 31))
class OrderPlaced(Payload):
    order_id: str
