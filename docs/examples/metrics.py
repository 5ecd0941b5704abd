"""Figures of a process: in a registry of prometheus-client that is there already, and through OpenTelemetry."""

import asyncio

from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from posthouse import App, Event, Payload, Service, Tx
from posthouse.watch.opentelemetry import export
from posthouse.watch.process import samples
from posthouse.watch.prometheus import Figures

orders = Service("orders")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@orders.on(OrderPlaced)
async def book(event: Event[OrderPlaced], tx: Tx) -> None:
    booked.set()


SIZES = {"acme": "large", "corner-shop": "small"}


def size(tenant: str) -> str:
    return SIZES.get(tenant, "small")


app = App(orders, store="sqlite://", broker="memory://", tenant_class=size)

booked = asyncio.Event()
registry = CollectorRegistry()
registry.register(Figures(lambda: samples([app])))
reader = InMemoryMetricReader()
set_meter_provider(MeterProvider([reader]))
exported = export(app)


async def main() -> None:
    async with app.running():
        for tenant in ("acme", "somebody"):
            async with orders.transaction(tenant=tenant) as tx:
                tx.publish(OrderPlaced(order_id="o1"))
            await booked.wait()
            booked.clear()
        text = generate_latest(registry).decode()
        print("\n".join(line for line in text.splitlines() if line.startswith("posthouse_events_published_total")))
        collected = reader.get_metrics_data()
    assert collected is not None
    names = [metric.name for metric in collected.resource_metrics[0].scope_metrics[0].metrics]
    print("posthouse.events_published" in names)
    exported.close()


asyncio.run(main())
