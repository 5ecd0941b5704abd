"""The catalogue in the formats of others: AsyncAPI, EventCatalog, Markdown, CloudEvents types, Terraform."""

import json
from pathlib import Path

from posthouse import App, Event, Payload, Service, Tx
from posthouse.governance.exports import FORMATS, Source, export
from posthouse.governance.listing import catalogue_of

orders = Service("orders", namespace="shop", owner="team checkout")
billing = Service("billing", namespace="shop", owner="team finance")
app = App(orders, billing, broker="pubsub://acme-prod")


@orders.event("order.placed.v1", key="order_id", retention="warm")
class OrderPlaced(Payload):
    """A customer has placed an order."""

    order_id: str
    total_cents: int


@billing.event("invoice.issued.v1", key="order_id", retention="cold")
class InvoiceIssued(Payload):
    """The customer has been billed."""

    order_id: str


@billing.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> InvoiceIssued:
    return InvoiceIssued(order_id=event.data.order_id)


def main() -> None:
    services = [orders, billing]
    broker = app.opened.ports.broker_url
    source = Source(document=catalogue_of(services), brokers={one.name: broker for one in services})
    for format in FORMATS:
        for path, text in export(source, format).items():
            place = Path("exported", format, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    asyncapi = json.loads(Path("exported/asyncapi/asyncapi.json").read_text())
    print(*asyncapi["operations"])
    flow = Path("exported/markdown/catalogue.md").read_text().partition("## Flow")[2]
    print(flow.partition("mermaid\n")[2].partition("```")[0], end="")
    for path in sorted(Path("exported").rglob("*")):
        if path.suffix in (".tf", ".mdx"):
            print(path.relative_to("exported").as_posix())


if __name__ == "__main__":
    main()
