"""Which fields a handler looks at."""

from posthouse import Event, Payload, Service
from posthouse.testing import Harness, recording

orders = Service("orders")
billing = Service("billing")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    total_cents: int
    note: str = ""


@billing.on(OrderPlaced, reads=["order_id", "total_cents"])
async def invoice(event: Event[OrderPlaced]) -> None:
    assert event.data.order_id
    assert event.data.total_cents >= 0


async def test_the_invoice_reads_what_it_says() -> None:
    with recording(billing) as reads:
        async with Harness(billing) as harness:
            await harness.publish(OrderPlaced(order_id="o1", total_cents=1200))
            await harness.settled()
    reads.assert_declared()
    (suggestion,) = reads.suggestions()
    assert suggestion.endswith('invoice on orders.order.placed.v1: reads=["order_id", "total_cents"]')
