"""A release publishes its contracts; a consumer that does not know them yet fetches them, and waits while they are away."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from posthouse import App, Event, Payload, Service, Settings, Tx, drained
from posthouse.cli.catalog.bundling import publish
from posthouse.contracts.release import hash_of, packed
from posthouse.governance.folder import read_folder, write_folder
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of
from posthouse.history.audit.place import open_place
from posthouse.store import HeldFilter

logging.getLogger("posthouse").setLevel(logging.CRITICAL)
here = Path.cwd()
log = "embedded:///log.db"
invoiced = asyncio.Event()


class OrderPlaced(Payload):
    order_id: str


class OrderPlacedWithNote(Payload):
    order_id: str
    note: str = ""


def release(payload: type[Payload]) -> Service:
    """The service that owns the fact, as it is in one release."""
    service = Service("orders", namespace="shop")
    service.event("order.placed.v1", key="order_id")(payload)
    return service


def frozen(folder: str, *releases: Service) -> dict[str, bytes]:
    for one in releases:
        write_folder(here / folder, freeze(catalogue_of([one]), read_folder(here / folder)).files)
    files = [file for file in (here / folder).rglob("*") if file.is_file()]
    return {str(file.relative_to(here / folder)): file.read_bytes() for file in files}


before, today = release(OrderPlaced), release(OrderPlacedWithNote)
frozen("known-to-billing", before)
contracts = packed(frozen("event-schemas", before, today))

billing = Service("billing", namespace="shop", schemas="known-to-billing")


@billing.external("shop.orders.order.placed.v1", key="order_id")
class Placed(Payload):
    order_id: str


@billing.on(Placed)
async def invoice(event: Event[Placed], tx: Tx) -> None:
    print(f"invoices {event.data.order_id}")
    invoiced.set()


producer = App(today, store="sqlite:///orders.db", broker=log)
consumer = App(
    billing,
    store="sqlite:///billing.db",
    broker=log,
    settings=Settings(contracts=f"file://{here}/published"),
)


async def main() -> None:
    print("same bytes:", hash_of(contracts) == hash_of(packed(frozen("event-schemas"))))
    async with producer.running(), consumer.running():
        async with today.transaction(tenant="t1") as tx:
            tx.publish(OrderPlacedWithNote(order_id="o1", note="by the door"))
        await drained(today, billing)
        for held in await consumer.store.held.find(HeldFilter()):
            print(f"{held.state}, {held.attempts} runs counted: {held.reason.partition(': ')[2].partition(':')[0]}")

        place = open_place(f"file://{here}/published")
        print("published:", publish(place, contracts), "and again:", publish(place, contracts))
        await invoiced.wait()


if __name__ == "__main__":
    asyncio.run(main())
