"""A user's own test: no server, no sleeping."""

from posthouse import Event, Payload, Service, Tx
from posthouse.testing import Harness

billing = Service("billing", namespace="shop")


@billing.external("shop.orders.order.placed.v1", key="order_id")  # another team's event, as billing reads it
class OrderPlaced(Payload):
    order_id: str
    total_cents: int


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str


@billing.event("reminder.sent.v1", key="order_id")
class ReminderSent(Payload):
    order_id: str


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    tx.publish(ReminderSent(order_id=event.data.order_id), after=14 * 86_400)
    return InvoiceIssued(order_id=event.data.order_id)


async def test_an_order_gets_an_invoice_now_and_a_reminder_after_two_weeks() -> None:
    async with Harness(billing) as harness:
        await harness.publish(OrderPlaced(order_id="o1", total_cents=1200))
        await harness.settled()
        assert [event.data.order_id for event in await harness.published(InvoiceIssued)] == ["o1"]
        assert await harness.published(ReminderSent) == []
        await harness.advance(14 * 86_400)
        assert [event.data.order_id for event in await harness.published(ReminderSent)] == ["o1"]


async def test_a_second_delivery_changes_nothing() -> None:
    async with Harness(billing) as harness:
        await harness.publish(OrderPlaced(order_id="o1", total_cents=1200))
        await harness.assert_replay_safe()
