from posthouse import App, Event, Payload, Rights, Service, Tx

orders = Service("orders", namespace="shop", owner="checkout")
billing = Service("billing", namespace="shop", owner="finance")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    """A customer has placed an order."""

    order_id: str


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...


app = App(orders, billing, rights=Rights(read={"shop.orders.*": ["ledger"]}))
