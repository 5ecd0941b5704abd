from posthouse import Event, Payload, Service, Tx

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.on(OrderPlaced)
async def correct(event: Event[OrderPlaced], tx: Tx) -> OrderPlaced:
    return OrderPlaced(order_id=event.data.order_id.strip())
