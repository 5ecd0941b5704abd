"""What services declare is listed as one value."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import date

import pydantic
import pytest

from posthouse import App, Event, Payload, Policy, Service, Settings, Tx
from posthouse.errors import ConfigurationError
from posthouse.governance.document import Document, HandlerEntry, Reading
from posthouse.governance.listing import catalogue_of

orders = Service("orders", namespace="shop", owner="sales", residency="eu")
App(orders, settings=Settings(in_flight=50))
billing = Service("billing", namespace="shop")


@orders.event("order.placed.v1", key="order_id", retention="cold", deprecated=date(2027, 1, 31))
class OrderPlaced:
    """A guest ordered.

    More about it.
    """

    order_id: str
    total_cents: int


@orders.event("order.placed.v3", key="order_id", owner="checkout", residency="me")
@dataclasses.dataclass(frozen=True)
class OrderPlacedAgain:
    order_id: str


@orders.event("order.cancelled.v1")
class OrderCancelled(pydantic.BaseModel):
    order_id: str


@billing.event("invoice.issued.v1")
class InvoiceIssued(Payload):
    order_id: str


@billing.event("invoice.refused.v1")
class InvoiceRefused(Payload):
    order_id: str


@billing.external("shop.stock.item.reserved.v1", key="item")
class ItemReserved(Payload):
    item: str


@billing.on(
    OrderPlaced, OrderCancelled, reads=["total_cents", "order_id"], policy=Policy(max_attempts=3, on_dead="skip")
)
async def invoice(event: Event[object], tx: Tx) -> Iterable[InvoiceIssued] | None:
    return None


@billing.on(ItemReserved, consumer="stock", publishes=[InvoiceRefused])
async def reserve(event: Event[ItemReserved], tx: Tx) -> InvoiceIssued | None:
    return None


DOCUMENT = catalogue_of([orders, billing])


def handler(document: Document, name: str) -> HandlerEntry:
    return next(entry for entry in document.handlers if entry.name.endswith(f".{name}"))


def test_an_event_is_listed_with_its_terms_and_its_docstring() -> None:
    entry = DOCUMENT.event("shop.orders.order.placed.v1")
    assert entry is not None
    assert (entry.service, entry.aggregate, entry.verb, entry.version) == ("orders", "order", "placed", 1)
    assert (entry.owner, entry.residency, entry.retention, entry.key) == ("sales", "eu", "cold", "order_id")
    assert entry.description == "A guest ordered.\n\nMore about it."
    assert (entry.topic, entry.content_type, entry.format) == ("shop.orders.order", "application/json", "json")
    assert entry.schema_uri == f"schemas://orders/order/placed/v1#{entry.hash}"


def test_the_next_version_that_is_declared_is_the_successor() -> None:
    first, later = (DOCUMENT.event(f"shop.orders.order.placed.v{n}") for n in (1, 3))
    assert first is not None
    assert later is not None
    assert (first.deprecated, first.successor) == (date(2027, 1, 31), "shop.orders.order.placed.v3")
    assert (later.deprecated, later.successor, later.description) == (None, None, "")
    assert (later.owner, later.residency) == ("checkout", "me")
    assert {entry.successor for entry in DOCUMENT.events if entry is not first} == {None}


def test_a_topic_is_listed_with_its_guarantee_and_who_uses_it() -> None:
    (topic,) = [topic for topic in DOCUMENT.topics if topic.name == "shop.orders.order"]
    assert (topic.owner, topic.ordering) == ("checkout, sales", ("order_id",))
    assert (topic.guarantee, topic.parallelism) == ("ordered per key", "one per key")
    assert (topic.dead_letters, topic.producers, topic.consumers) == (
        "shop.orders.order.dlq",
        ("orders",),
        ("billing",),
    )
    (foreign,) = [topic for topic in DOCUMENT.topics if topic.name == "shop.stock.item"]
    assert (foreign.owner, foreign.producers, foreign.consumers) == ("", (), ("billing.stock",))
    (plain,) = [topic for topic in DOCUMENT.topics if topic.name == "shop.billing.invoice"]
    assert (plain.guarantee, plain.parallelism, plain.ordering) == ("unordered", "in flight", ())


def test_a_handler_is_listed_with_what_it_reads_and_says() -> None:
    entry = handler(DOCUMENT, "invoice")
    assert (entry.service, entry.consumer) == ("billing", "billing")
    assert entry.reads == (
        Reading(subject="shop.orders.order.cancelled.v1", fields=("order_id",)),
        Reading(subject="shop.orders.order.placed.v1", fields=("order_id", "total_cents")),
    )
    assert entry.publishes == ("shop.billing.invoice.issued.v1",), "from its return annotation"
    assert (entry.reliability.max_attempts, entry.reliability.on_dead, entry.reliability.in_flight) == (3, "skip", 1000)


def test_a_foreign_fact_is_read_in_the_fields_that_its_reader_declared() -> None:
    entry = handler(DOCUMENT, "reserve")
    (reading,) = entry.reads
    assert (reading.subject, reading.fields) == ("shop.stock.item.reserved.v1", ("item",))
    assert reading.schema is not None
    assert '"item"' in reading.schema
    assert entry.publishes == ("shop.billing.invoice.issued.v1", "shop.billing.invoice.refused.v1")
    assert DOCUMENT.event("shop.stock.item.reserved.v1") is None, "its owner is not listed"


def test_a_handler_that_says_nothing_may_read_any_field() -> None:
    service = Service("copy")

    @service.on(OrderPlaced)
    async def copy(event: Event[OrderPlaced]) -> None: ...

    assert handler(catalogue_of([service]), "copy").reads == (
        Reading(subject="shop.orders.order.placed.v1", fields=None),
    )


def test_the_list_does_not_depend_on_the_order_of_services() -> None:
    assert catalogue_of([billing, orders]) == DOCUMENT
    assert DOCUMENT.services == ("billing", "orders")


def test_readers_of_a_subject_are_found() -> None:
    assert list(DOCUMENT.readers("shop.orders.order.placed.v1")) == [f"{__name__}.invoice"]


def test_bad_declarations_are_refused_with_a_hint() -> None:
    service = Service("copy")
    with pytest.raises(
        ConfigurationError, match=r"no field of shop\.orders\.order\.placed\.v1\. Did you mean 'total_cents'"
    ):
        service.on(OrderPlaced, reads=["total_cent"])(lambda event: None)
    with pytest.raises(ConfigurationError, match=r"write reads=\['order_id'\]"):
        service.on(OrderPlaced, reads="order_id")(lambda event: None)
    with pytest.raises(ConfigurationError, match="belongs to the service 'billing': 'copy' cannot publish it"):
        service.on(OrderPlaced, publishes=[InvoiceIssued])(lambda event: None)
    with pytest.raises(ConfigurationError) as caught:
        service.event("a.made.v1", retention="warmer", deprecated="2027-01-31")(OrderCancelled)  # type: ignore[arg-type]
    assert [problem.split("=")[0] for problem in caught.value.problems] == [
        "Service.event(retention",
        "Service.event(deprecated",
    ]
    assert "Did you mean 'warm'" in caught.value.problems[0]
    assert "date(2027, 1, 31)" in caught.value.problems[1]
    with pytest.raises(ConfigurationError, match="residency"):
        Service("copy", residency=" ")


async def test_residency_travels_with_the_event() -> None:
    from posthouse.contracts import event_type_of

    assert event_type_of(OrderPlacedAgain).metadata.residency == "me"
    assert event_type_of(OrderPlaced).metadata.retention == "cold"
    assert event_type_of(InvoiceIssued).metadata.residency is None
