from posthouse import Event, Payload, Service, Tx

orders = Service("orders", namespace="shop", owner="team checkout", topics="subject")
billing = Service("billing", namespace="shop", owner="team finance")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.event("order.cancelled.v1", key="order_id")
class OrderCancelled(Payload):
    order_id: str


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    await tx.execute("INSERT INTO invoice VALUES (:order_id)", {"order_id": event.data.order_id})


@billing.on(OrderCancelled)
async def withdraw(event: Event[OrderCancelled], tx: Tx) -> None:
    await tx.execute("DELETE FROM invoice WHERE order_id = :order_id", {"order_id": event.data.order_id})
