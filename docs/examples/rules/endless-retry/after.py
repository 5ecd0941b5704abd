from posthouse import Event, Payload, Policy, Service, Tx

orders = Service("orders", namespace="shop", owner="team orders")
billing = Service("billing", namespace="shop", owner="team billing")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.on(OrderPlaced, policy=Policy(max_attempts=7))
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None: ...
