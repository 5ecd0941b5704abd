from posthouse import Event, Payload, Service, Tx

DAY = 86_400
billing = Service("billing", namespace="shop", owner="team finance", inbox_retention=1 * DAY)


@billing.external("shop.orders.order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...
