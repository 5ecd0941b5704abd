"""Catalogues to export: a shop as people declare one, and one whose every text is hostile."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from msgspec.structs import replace

from posthouse import App, Event, Payload, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.contracts import avro
from posthouse.governance.document import Document
from posthouse.governance.exports import Source
from posthouse.governance.listing import catalogue_of

orders = Service("orders", namespace="shop", owner="team checkout", residency="eu-west")
App(orders, broker="kafka://u:secret@k1,k2")
billing = Service("billing", namespace="shop", owner="team finance")
App(billing, broker="kafka://u:secret@k1,k2", settings=Settings(in_flight=50))
parcels = Service("parcels", namespace="shop", envelope="binary")
App(parcels, broker="pubsub://acme?emulator=localhost:1")
hotel = Service("hotel", envelope="melmastoon")
App(hotel, broker="sqs://eu-central-1")


class Line(Payload):
    """A line may have lines of its own."""

    text: str
    lines: tuple[Line, ...] = ()


@orders.event("order.placed.v1", key="order_id", deprecated=date(2027, 1, 31))
class OrderPlaced(Payload):
    """A customer has placed an order."""

    order_id: str


@orders.event("order.placed.v2", key="order_id", retention="warm")
class OrderPlacedWithLines(Payload):
    """A customer has placed an order.

    With its lines.
    """

    order_id: str
    place: tuple[int, str]
    lines: list[Line]


@billing.event("invoice.issued.v1", key="order_id", retention="cold")
class InvoiceIssued(Payload):
    order_id: str


@parcels.event("parcel.sent.v1", key="order_id")
@avro
class ParcelSent(Payload):
    order_id: str


@hotel.event("guest.arrived.v1")
class GuestArrived(Payload):
    name: str


@parcels.external("shop.stock.item.counted.v1", key="item")
class ItemCounted(Payload):
    item: str


@billing.on(OrderPlacedWithLines, reads=["order_id"])
async def invoice(event: Event[OrderPlacedWithLines], tx: Tx) -> InvoiceIssued:
    return InvoiceIssued(order_id=event.data.order_id)


@parcels.on(InvoiceIssued, consumer="pack")
async def pack(event: Event[InvoiceIssued], tx: Tx) -> Iterable[ParcelSent]:
    return [ParcelSent(order_id=event.data.order_id)]


@parcels.on(ItemCounted)
async def count(event: Event[ItemCounted], tx: Tx) -> None: ...


@hotel.on(OrderPlaced)
async def remember(event: Event[OrderPlaced], tx: Tx) -> None: ...


SERVICES = [orders, billing, parcels, hotel]
SHOP = Source(
    document=catalogue_of(SERVICES),
    brokers={service.name: app_of(service).opened.ports.broker_url for service in SERVICES},
)

HOSTILE = (
    'q" \' ` `` \\ | ${file("/etc/passwd")} %{ if true }x%{ endif } $${a} {danger()} <script>alert(1)</script> '
    "[x](javascript:x) **b** _i_ ![i](u) #{r} &amp; --- ``` \n---\nimport x from 'y'\n\n- list\n# head\n* star\n"
    "1. one\n: a #quot; *alias &anchor !tag %d @x \t\x07\x85\u2028 ü 😀 end"
)
"""Something for every format to trip over."""


def poisoned(text: str = HOSTILE) -> Document:
    """Every text that people write freely, and names that grammar would refuse."""
    document = SHOP.document
    return replace(
        document,
        services=tuple(_bad(name, text) for name in document.services),
        events=tuple(
            replace(
                entry,
                subject=_bad(entry.subject, text),
                service=_bad(entry.service, text),
                namespace=text,
                topic=_bad(entry.topic, text),
                owner=text,
                key=text,
                residency=text,
                description=text,
            )
            for entry in document.events
        ),
        topics=tuple(
            replace(
                topic,
                name=_bad(topic.name, text),
                owner=text,
                ordering=(text,),
                dead_letters=_bad(topic.dead_letters, text),
                subjects=tuple(_bad(subject, text) for subject in topic.subjects),
                producers=tuple(_bad(name, text) for name in topic.producers),
                consumers=tuple(_bad(name, text) for name in topic.consumers),
            )
            for topic in document.topics
        ),
        handlers=tuple(
            replace(
                handler,
                name=_bad(handler.name, text),
                service=_bad(handler.service, text),
                consumer=_bad(handler.consumer, text),
                reads=tuple(replace(reading, subject=_bad(reading.subject, text)) for reading in handler.reads),
                publishes=tuple(_bad(subject, text) for subject in handler.publishes),
            )
            for handler in document.handlers
        ),
    )


def _bad(name: str, text: str) -> str:
    return f"{text}{name}"


POISONED = Source(document=poisoned())
