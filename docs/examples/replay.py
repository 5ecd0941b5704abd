"""Billing charged no tax for a while. Mended, it bills those orders again; shipping hears nothing of it."""

import asyncio

from typer.testing import CliRunner

from posthouse import App, Event, Payload, Service, Tx
from posthouse.cli import app as posthouse

shop, billing, shipping = Service("shop"), Service("billing"), Service("shipping")
for service in (shop, billing, shipping):
    App(service, store=f"sqlite:///{service.name}.db", broker="embedded:///log.db")

TAX = {"in force": False}


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str
    total_cents: int


@billing.event("invoice.issued.v1", key="order_id")
class InvoiceIssued(Payload):
    order_id: str


@billing.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS invoices (order_id TEXT PRIMARY KEY, cents INTEGER)")


@billing.on(OrderPlaced)
async def bill(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    order, factor = event.data, 120 if TAX["in force"] else 100  # the bug, and its mending
    if event.replayed:
        await tx.execute("DELETE FROM invoices WHERE order_id = :id", {"id": order.order_id})
    await tx.execute(
        "INSERT INTO invoices VALUES (:id, :cents)", {"id": order.order_id, "cents": order.total_cents * factor // 100}
    )
    return InvoiceIssued(order_id=order.order_id)


heard: list[str] = []


@shipping.on(OrderPlaced, InvoiceIssued)
async def ship(event: Event[OrderPlaced | InvoiceIssued]) -> None:
    heard.append(f"{event.type} {event.data.order_id}")


async def a_day(*orders: str) -> None:
    told = len(heard) + 2 * len(orders)
    async with shop.running(), billing.running(), shipping.running():
        for order_id in orders:
            async with shop.transaction(tenant="t1") as tx:
                tx.publish(OrderPlaced(order_id=order_id, total_cents=1000))
        while len(heard) < told:  # noqa: ASYNC110  # a script that ends
            await asyncio.sleep(0.01)


async def invoices() -> None:
    async with billing.transaction(tenant="t1") as tx:
        rows = await tx.execute("SELECT order_id, cents FROM invoices ORDER BY order_id")
        print(*(f"{order} {cents}" for order, cents in rows), sep=", ")
    await billing.aclose()


def call(*words: str) -> None:
    """As on a command line, but for what is another each time."""
    lines = CliRunner().invoke(posthouse, words).output.splitlines()
    print(*(line for line in lines if "begins with" not in line and "the job" not in line), sep="\n")


if __name__ == "__main__":
    asyncio.run(a_day("o1", "o2", "o3"))
    asyncio.run(invoices())
    TAX["in force"] = True  # the release with the mended handler
    call("replay", "__main__:billing", "--reprocess", "--dry-run")
    call("replay", "__main__:billing", "--reprocess", "--yes", "--why", "ticket 7: billed without tax", "--by", "ada")
    asyncio.run(a_day("o4"))
    asyncio.run(invoices())
    print(len(heard), "facts came to shipping, two of each order")
