from posthouse import Event, Payload, Service, Tx

orders = Service("orders", namespace="shop", owner="team orders")
billing = Service("billing", namespace="shop", owner="team billing")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str


@billing.on(OrderPlaced)
async def issue(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    return InvoiceIssued(order_id=event.data.order_id)


@orders.on(InvoiceIssued)
async def note(event: Event[InvoiceIssued], tx: Tx) -> None:
    await tx.execute("UPDATE orders SET invoiced = 1 WHERE id = :order_id", {"order_id": event.data.order_id})
