from posthouse import Event, Payload, Service, Tx

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.event("order.accepted.v1", key="order_id")
class OrderAccepted(Payload):
    order_id: str


@orders.on(OrderPlaced)
async def accept(event: Event[OrderPlaced], tx: Tx) -> OrderAccepted:
    return OrderAccepted(order_id=event.data.order_id)
