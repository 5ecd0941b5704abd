"""A house in three databases, copied to where its commands run: orders are billed, and letters tell of the invoices."""

from __future__ import annotations

import asyncio
import os
import sys

from posthouse import App, Event, Payload, Service, Tx
from posthouse.history.archive.settings import ArchiveSettings
from posthouse.settings import Settings

orders, billing, mail = (Service(name, namespace="shop") for name in ("orders", "billing", "mail"))
RELEASE = os.environ.get("RELEASE", "wrong")
SETTINGS = Settings(
    outbox_retention=float(os.environ.get("KEEPS", "86400")),
    archive=ArchiveSettings(every=0.2),
)
for service in (orders, billing, mail):
    App(
        service,
        store=os.environ[f"{service.name.upper()}_STORE"],
        broker=os.environ["BROKER"],
        archive=os.environ["ARCHIVE"] if service is billing else None,
        settings=SETTINGS,
    )


@orders.event("order.placed.v1", key="key")
class OrderPlaced(Payload):
    key: str
    number: int


@billing.event("invoice.written.v1", key="key")
class InvoiceWritten(Payload):
    key: str
    number: int


@billing.setup
@mail.setup
async def tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS done (id bigserial, key text, number int, release text)")


async def note(tx: Tx, key: str, number: int) -> None:
    await tx.execute(
        "INSERT INTO done (key, number, release) VALUES (:key, :number, :release)",
        {"key": key, "number": number, "release": RELEASE},
    )


@billing.on(OrderPlaced)
async def bill(event: Event[OrderPlaced], tx: Tx) -> InvoiceWritten:
    order = event.data
    if event.replayed:
        await tx.execute(
            "DELETE FROM done WHERE key = :key AND number = :number", {"key": order.key, "number": order.number}
        )
    await note(tx, order.key, order.number)
    return InvoiceWritten(key=order.key, number=order.number)


@mail.on(InvoiceWritten)
async def tell(event: Event[InvoiceWritten], tx: Tx) -> None:
    await note(tx, event.data.key, event.data.number)


async def say(first: int, last: int) -> None:
    for number in range(first, last + 1):
        async with orders.transaction(tenant="t1") as tx:
            for key in "abcde":
                tx.publish(OrderPlaced(key=key, number=number))
    await orders.aclose()


async def remind(number: int) -> None:
    """A fact that follows from no event: somebody pressed a button."""
    async with billing.transaction(tenant="t1") as tx:
        tx.publish(InvoiceWritten(key="z", number=number))
    await billing.aclose()


if __name__ == "__main__":
    numbers = [int(given) for given in sys.argv[2:]]
    asyncio.run(say(*numbers) if sys.argv[1] == "say" else remind(*numbers))
