from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.address_corrected.v1", key="order_id")
class AddressCorrected(Payload):
    order_id: str
    address: str


@orders.event("order.annotated.v1", key="order_id")
class OrderAnnotated(Payload):
    order_id: str
    note: str
