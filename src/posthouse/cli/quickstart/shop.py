"""The shop of the demonstration: orders says what happened to orders, billing keeps a ledger of it."""

from __future__ import annotations

from posthouse import Event, Payload, Policy, Service, Tx

orders = Service("orders", namespace="shop")
billing = Service("billing", namespace="shop")

PATIENCE = Policy(max_attempts=3, first_delay=0.3, last_delay=1.0)
"""Little of it: the demonstration ends within a minute."""


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    total_cents: int


@orders.event("order.paid.v1", key="order_id")
class OrderPaid(Payload):
    order_id: str


@orders.event("order.shipped.v1", key="order_id")
class OrderShipped(Payload):
    order_id: str


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str
    total_cents: int


@orders.setup
async def order_table(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS orders (tenant TEXT, order_id TEXT, PRIMARY KEY (tenant, order_id))")


@billing.setup
async def ledger_table(tx: Tx) -> None:
    await tx.execute(
        "CREATE TABLE IF NOT EXISTS ledger (line INTEGER PRIMARY KEY, tenant TEXT, order_id TEXT, sequence INTEGER, "
        "event_id TEXT)"
    )


@billing.on(OrderPlaced, policy=PATIENCE)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    if event.data.total_cents <= 0:
        raise ValueError(f"an invoice over {event.data.total_cents} cents cannot be written")
    await _enter(event, event.data.order_id, tx)
    return InvoiceIssued(order_id=event.data.order_id, total_cents=event.data.total_cents)


@billing.on(OrderPaid, OrderShipped, policy=PATIENCE)
async def note(event: Event[OrderPaid | OrderShipped], tx: Tx) -> None:
    await _enter(event, event.data.order_id, tx)


async def _enter(event: Event[object], order_id: str, tx: Tx) -> None:
    """The ledger has no unique key: an event that were applied twice would show."""
    row = (event.tenant, order_id, event.sequence, event.id)
    await tx.execute("INSERT INTO ledger (tenant, order_id, sequence, event_id) VALUES (?, ?, ?, ?)", row)
