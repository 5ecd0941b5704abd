from posthouse import App, Event, Payload, Service, Settings, Tx

billing = Service("billing", namespace="shop", owner="team finance")
App(billing, settings=Settings(in_flight=1_000))


@billing.external("shop.orders.order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...
