from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.shipped.v1", key="order_id")
class OrderShipped(Payload):
    order_id: str
    parcel: str
    order_url: str
