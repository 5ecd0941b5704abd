"""What services declare, as one value; frozen into files, changed, and compared."""

from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from pydantic import BaseModel

from posthouse import Event, Payload, Service, Tx
from posthouse.contracts import avro
from posthouse.governance.agreement import disagreements
from posthouse.governance.folder import read_folder, write_folder
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of

orders = Service("orders", namespace="shop", owner="team checkout", residency="eu-west")
billing = Service("billing", namespace="shop", owner="team finance")


@orders.event("order.placed.v1", key="order_id", deprecated=date(2027, 1, 31))
class OrderPlaced(Payload):
    """A customer has placed an order."""

    order_id: str
    total: float


@orders.event("order.placed.v2", key="order_id", retention="warm")
class OrderPlacedInCents(Payload):
    """A customer has placed an order; money is counted in cents."""

    order_id: str
    total_cents: int


@billing.event("invoice.issued.v1", key="order_id", retention="cold")
class InvoiceIssued(Payload):
    order_id: str


@billing.on(OrderPlacedInCents, reads=["order_id", "total_cents"])
async def invoice(event: Event[OrderPlacedInCents], tx: Tx) -> InvoiceIssued:
    return InvoiceIssued(order_id=event.data.order_id)


def show() -> None:
    document = catalogue_of([orders, billing])
    for entry in document.events:
        print(entry.subject, "|", entry.owner, "| kept", entry.retention, "| next", entry.successor)
    for name, reading in document.readers("shop.orders.order.placed.v2").items():
        print(name.rpartition(".")[2], "reads", *(reading.fields or ["any field"]))


def freeze_and_compare() -> None:
    folder = Path("event-schemas")
    write_folder(folder, freeze(catalogue_of([orders, billing]), read_folder(folder)).files)
    print(*sorted(path.relative_to(folder).as_posix() for path in folder.rglob("v*.json")))

    changed = Service("orders", namespace="shop", owner="team checkout")
    changed.event("order.placed.v1", key="order_id")(OrderPlaced)

    @changed.event("order.placed.v2", key="order_id")
    class OrderPlacedToday(Payload):
        order_id: str
        total_cents: int
        currency: str

    for found in disagreements(catalogue_of([changed]), read_folder(folder)):
        print(found.kind, "|", found.sentence.partition(":")[0])


def one_meaning_one_hash() -> None:
    service = Service("library")

    @service.event("book.lent.v1")
    @dataclass(frozen=True)
    class BookLent:
        title: str
        until: date | None = None

    @service.event("book.lent.v2")
    class BookLentModel(BaseModel):
        title: str
        until: date | None = None

    first, second = catalogue_of([service]).events
    print("one hash:", first.hash == second.hash)


def another_encoding() -> None:
    parcels = Service("parcels")

    @parcels.event("parcel.sent.v1", key="order_id")
    @avro
    class ParcelSent(Payload):
        order_id: str
        sent_at: datetime

    (entry,) = catalogue_of([parcels]).events
    print(entry.content_type, entry.schema)


if __name__ == "__main__":
    show()
    freeze_and_compare()
    one_meaning_one_hash()
    another_encoding()
