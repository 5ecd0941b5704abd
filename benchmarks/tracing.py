"""What tracing costs: the same work with a provider that samples 1 %, and with none, in turns."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from benchmarks.reading import Reading, Scale, compare
from benchmarks.sending import REWIND
from benchmarks.shop import BUSINESS, TENANT, Done, billing_in, copied, discard, fill, orders_in, placed, relay
from posthouse import Service
from posthouse.app import app_of
from posthouse.watch.traces import spans_of

GOAL = 0.97
"""The share of the speed that is left."""
SAMPLED = 0.01

Work = Callable[[bool, int], Awaitable[float]]
"""With tracing or without, in that round: the seconds of processor time that it took. Who else is at work does not count."""


async def tracing(folder: Path, scale: Scale) -> list[Reading]:
    """Publish by one and by a hundred, in a request and without, relay, and consume. Beside each the same without a provider
    on both sides: what the machine does to a comparison."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(SAMPLED)), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))

    def traced(service: Service, on: bool) -> None:
        tracing = app_of(service).opened.seam.tracing
        tracing.find = None  # as where OpenTelemetry is not imported: nobody looks for a provider
        tracing.spans = spans_of(provider) if on else None

    request = partial(provider.get_tracer("web").start_as_current_span, "POST /orders")
    count = scale.count(1_000)
    orders = orders_in(folder)
    await app_of(orders).open()

    async def publish(
        at_once: int, request: Callable[[], AbstractContextManager[object]], on: bool, number: int
    ) -> float:
        """Each transaction in a request, which is traced in any case, or in none: then each fact begins a trace."""
        traced(orders, on)
        began = time.process_time()
        for first in range(number * count, (number + 1) * count, at_once):
            with request():
                await _ordered(orders, range(first, first + at_once))
        return time.process_time() - began

    source = folder / "source"
    source.mkdir()
    filled = orders_in(source)
    await app_of(filled).open()
    traced(filled, True)
    await fill(filled, count)
    await relay(filled)
    await filled.aclose()

    async def send(on: bool, number: int) -> float:
        place = Path(tempfile.mkdtemp(dir=folder))
        sender = orders_in(source, log=place / "log.db")
        async with sender.transaction(TENANT) as tx:
            for statement in REWIND:
                await tx.execute(statement)
        await app_of(sender).opened.prepare()
        traced(sender, on)
        began = time.process_time()
        await relay(sender)
        took = time.process_time() - began
        await sender.aclose()
        discard(place)
        return took

    async def consume(on: bool, number: int) -> float:
        place = Path(tempfile.mkdtemp(dir=folder)) / "copy"
        copy, done = copied(source / "log.db", place), Done(count)
        billing = billing_in(place, "single", done, log=copy)
        await app_of(billing).opened.prepare()
        traced(billing, on)
        began = time.process_time()
        await app_of(billing).run(stop=done.stop)
        took = time.process_time() - began
        await billing.aclose()
        discard(place)
        return took

    try:
        works: dict[str, Work] = {
            "publish": partial(publish, 1, request),
            "publish-100": partial(publish, 100, request),
            "publish, each fact begins a trace": partial(publish, 1, nullcontext),
            "publish-100, each fact begins a trace": partial(publish, 100, nullcontext),
            "relay": send,
            "consume": consume,
        }
        rounds, readings = scale.turns(25), []
        for name, work in works.items():
            on, off = partial(work, True), partial(work, False)
            readings += [
                await compare(f"tracing {name}", on, off, rounds=rounds, count=count, goal=GOAL),
                await compare(f"{name}, neither traced", off, off, rounds=rounds, count=count),
            ]
        return readings
    finally:
        await orders.aclose()
        await asyncio.to_thread(provider.shutdown)


async def _ordered(orders: Service, numbers: Iterable[int]) -> None:
    async with orders.transaction(TENANT) as tx:
        for order in map(placed, numbers):
            await tx.execute(BUSINESS, (order.order_id, order.total_cents))
            tx.publish(order)
