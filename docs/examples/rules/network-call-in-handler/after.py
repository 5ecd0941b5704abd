import httpx

from posthouse import Event, Payload, Service, Tx

orders = Service("orders", namespace="shop", owner="team orders")
billing = Service("billing", namespace="shop", owner="team billing")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str
    number: str


async def ask_for_a_number(event: Event[OrderPlaced]) -> str:
    async with httpx.AsyncClient(headers={"Idempotency-Key": event.id}) as client:
        return (await client.post("https://tax.example/invoices", json={"order": event.data.order_id})).text


@billing.on(OrderPlaced, calling=ask_for_a_number)
async def invoice(event: Event[OrderPlaced], tx: Tx, number: str) -> InvoiceIssued:
    return InvoiceIssued(order_id=event.data.order_id, number=number)
