"""A shop renames a field: the gate says whom that breaks, and a pact of another repository says it too."""

from posthouse import Event, Payload, Service
from posthouse.governance.bundle import Bundle, read_bundle
from posthouse.governance.comparing import compare_schemas
from posthouse.governance.document import Document
from posthouse.governance.evolution import Mode
from posthouse.governance.freezing import freeze
from posthouse.governance.gate import examine
from posthouse.governance.listing import catalogue_of
from posthouse.governance.pacts import expectations_of, pacts_of, read_pact, verify_expectation

billing = Service("billing", namespace="shop")


@billing.external("shop.orders.order.placed.v1", key="order_id")
class Order(Payload):
    order_id: str
    total_cents: int


@billing.on(Order, reads=["order_id", "total_cents"])
async def invoice(event: Event[Order]) -> None: ...


class OrderPlaced(Payload):
    order_id: str
    total_cents: int


class OrderPlacedWithNicerNames(Payload):
    order_id: str
    total: int


def orders(payload: type) -> Document:
    """The producer, as it was or as somebody would like it to be."""
    service = Service("orders", namespace="shop")
    service.event("order.placed.v1", key="order_id")(payload)
    return catalogue_of([service])


def frozen(*documents: Document) -> Bundle:
    """What `posthouse catalog freeze` writes, service by service."""
    bundle = Bundle()
    files: dict[str, bytes] = {}
    for document in documents:
        files |= freeze(document, bundle).files
        bundle = read_bundle(files)
    return bundle


def main() -> None:
    consumers = catalogue_of([billing])
    before, after = frozen(orders(OrderPlaced), consumers), frozen(orders(OrderPlacedWithNicerNames), consumers)
    report = examine(before, after, Mode.ADDITIVE, compare_schemas)
    for one in report.standing:
        print(one.path, one.rule, "| read by", one.readers)
    print("passes:", report.passes)

    # The consumer lives elsewhere: it hands over what it expects, and the producer's CI checks that.
    pacts = pacts_of(expectations_of(consumers, {known.name: known for known in billing.declared.catalogue}))
    new = after.schemas["orders/order/placed/v1.json"].schema
    for name, text in pacts.items():
        for expectation in read_pact(name, text):
            for breach in verify_expectation(expectation, new.text):
                print(name, breach.path, breach.sentence, breach.example)


main()
