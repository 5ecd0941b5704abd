"""A booking of Melmastoon whose card is declined, as one trace: the booking saga, its neighbours, and what is undone."""

import asyncio
from collections.abc import Sequence
from datetime import date

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from melmastoon.facts.house import Guest
from melmastoon.facts.property import RoomAdded
from melmastoon.facts.reservation import BookingHeld
from melmastoon.inventory import inventory
from melmastoon.payment import payment
from melmastoon.reservation import reservation
from melmastoon.reservation.commands import hold
from melmastoon.vendors.weather import Scripted
from melmastoon.vendors.world import World, pretending
from posthouse.testing import Harness

WANTED = BookingHeld(
    booking_id="b1",
    property_id="p1",
    room_type="double",
    check_in=date(2027, 3, 10),
    check_out=date(2027, 3, 13),
    guest=Guest(guest_id="g1", name="Amina", email="amina@example.org", phone="+93700000001", locale="ps"),
    rail="card",
    amount_cents=30_000,
    currency="USD",
    refundable_cents=30_000,
)
DECLINED = Scripted(declined=frozenset({"t1:int-b1-stay"}))


async def book() -> None:
    with pretending(World(weather=DECLINED)):
        async with Harness(reservation, inventory, payment) as harness:
            await harness.publish(RoomAdded(room_id="r1", property_id="p1", room_type="double", number="1"))
            with trace.get_tracer("booking page").start_as_current_span("POST /bookings"):
                async with reservation.transaction("t1") as tx:
                    await hold(tx, WANTED)
            await harness.settled()


def draw(spans: Sequence[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    below = [span for span in spans if (span.parent.span_id if span.parent else None) == parent]
    for span in sorted(below, key=label):
        print("  " * depth + label(span))
        draw(spans, span.context.span_id, depth + 1)


def label(span: ReadableSpan) -> str:
    about = span.attributes
    if span.name == "posthouse.process":
        handler = about["posthouse.handler"].split(".", 2)[2]
        return f"process  {about['posthouse.consumer']}: {handler}"
    if span.name == "posthouse.create":
        return f"create   {about['posthouse.type']}"
    return f"saga     {about['posthouse.saga']}" if span.name == "posthouse.saga" else span.name


spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)

asyncio.run(book())
request = next(span for span in spans.get_finished_spans() if span.name == "POST /bookings")
draw([span for span in spans.get_finished_spans() if span.context.trace_id == request.context.trace_id])
