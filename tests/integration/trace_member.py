"""One part of a shop that traces, in a process of its own: `python -m tests.integration.trace_member <store> <broker> <part> <spans>`.
Its spans are JSON, one to a line."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import cast

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from posthouse import App, Event, Payload, Service, Tx
from posthouse.runtime import Part

orders, billing = Service("orders", namespace="traced"), Service("billing", namespace="traced")


@orders.event("order.placed.v1", key="order_id")
class Placed(Payload):
    order_id: str


@billing.event("invoice.issued.v1", key="order_id")
class Issued(Payload):
    order_id: str


@billing.on(Placed)
async def issue(event: Event[Placed], tx: Tx) -> Issued:
    with trace.get_tracer("tests").start_as_current_span("SELECT"):
        await tx.execute("SELECT 1")
    return Issued(order_id=event.data.order_id)


def tracing(spans: Path) -> TracerProvider:
    provider = TracerProvider()
    lines = ConsoleSpanExporter(out=spans.open("a"), formatter=lambda span: f"{span.to_json(indent=None)}\n")
    provider.add_span_processor(SimpleSpanProcessor(lines))
    return provider


def shop(store: str, broker: str) -> App:
    return App(orders, billing, store=store, broker=broker)


async def run(store: str, broker: str, part: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await shop(store, broker).run(only=[cast("Part", part)], stop=stop)


if __name__ == "__main__":
    trace.set_tracer_provider(tracing(Path(sys.argv[4])))
    asyncio.run(run(*sys.argv[1:4]))
