"""Bundles for the gate's tests: a shop as it was, and as somebody would like it to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date

from posthouse import Payload, Service
from posthouse.governance.bundle import Bundle, Files, read_bundle
from posthouse.governance.comparing import compare_schemas
from posthouse.governance.document import Document
from posthouse.governance.evolution import Mode
from posthouse.governance.freezing import freeze
from posthouse.governance.gate import Objection, Report, examine
from posthouse.governance.listing import catalogue_of

PLACED = "orders/order/placed/v1.json"
SUBJECT = "shop.orders.order.placed.v1"


class Placed(Payload):
    order_id: str
    total_cents: int
    note: str = ""


class PlacedWithoutTotal(Payload):
    order_id: str
    note: str = ""


class PlacedWithVoucher(Payload):
    order_id: str
    total_cents: int
    note: str = ""
    voucher: str = ""


class PlacedByOwner(Payload):
    order_id: str
    total_cents: int


Declare = Callable[[Service], object]


def placed(payload: type = Placed, /, **terms: object) -> Declare:
    """Declares version 1 as some payload, ordered by `order_id` unless the terms say otherwise."""
    said = {"key": "order_id", **terms}
    return lambda service: service.event("order.placed.v1", **said)(payload)  # type: ignore[arg-type]  # any term


def orders(*declare: Declare, namespace: str = "shop", owner: str = "checkout") -> Document:
    """The producer alone."""
    service = Service("orders", namespace=namespace, owner=owner)
    for one in declare or (placed(),):
        one(service)
    return catalogue_of([service])


def billing(reads: Sequence[str] | None = ("total_cents",), *, consumer: str | None = None) -> Document:
    """A consumer in a repository of its own, which declares what it needs."""
    service = Service("billing", namespace="shop")

    class Order(Payload):
        order_id: str
        total_cents: int = 0
        note: str = ""

    declared = service.external(SUBJECT, key="order_id")(Order)

    @service.on(declared, reads=reads, consumer=consumer)
    async def invoice(event: object) -> None: ...

    return catalogue_of([service])


def frozen(*documents: Document) -> Bundle:
    """Documents frozen one after the other into one folder; one service several times says how it became what it is."""
    files: Files = {}
    for document in documents:
        files = {**files, **freeze(document, read_bundle(files), prune=True).files}
    return read_bundle(files)


def report(
    before: Bundle,
    after: Bundle,
    mode: Mode = Mode.ADDITIVE,
    code: Document | None = None,
    retired: Mapping[str, date] | None = None,
) -> Report:
    return examine(before, after, mode, compare_schemas, code=code, retired=retired)


def only(found: Report) -> Objection:
    (one,) = found.objections
    return one
