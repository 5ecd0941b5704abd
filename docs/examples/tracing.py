"""A fact, its way and its handler as a trace."""

import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from posthouse import Event, Payload, Service, Tx, drained

shop = Service("shop")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.on(OrderPlaced)
async def invoice(event: Event[OrderPlaced], tx: Tx) -> None:
    trace.get_current_span().set_attribute("shop.tenant", event.tenant)


async def main() -> None:
    async with shop.running():
        with trace.get_tracer("web").start_as_current_span("POST /orders"):
            async with shop.transaction() as tx:
                tx.publish(OrderPlaced(order_id="o1"))
        await drained(shop)


exporter = InMemorySpanExporter()  # yours is an OTLPSpanExporter()
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter))
trace.set_tracer_provider(provider)

asyncio.run(main())
provider.shutdown()
names = {span.context.span_id: span.name for span in exporter.get_finished_spans()}
for span in sorted(exporter.get_finished_spans(), key=lambda span: span.start_time):
    parent = names[span.parent.span_id] if span.parent else "nothing"
    links = [names[link.context.span_id] for link in span.links]
    print(f"{span.name} below {parent}" + (f", linked to {', '.join(links)}" if links else ""))
