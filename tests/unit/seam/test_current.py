"""Current: what is published goes on with the request or the event in hand, and with nobody else's."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from posthouse import Actor, App, Event, Payload, Saga, Service, Turn, Tx, starts
from posthouse.broker import Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import EventError
from posthouse.seam import NOTHING, Current, EventContext, context_here, current, during
from posthouse.testing import Harness, capture_outbox
from tests.kit.waiting import eventually

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-af7651916cd43dd8448eb211c80319c0-00f067aa0ba902b7-01"
REQUEST = Current(correlation="r1", traceparent=PARENT, tracestate="vendor=1")


class Placed(Payload):
    order: str


class Packed(Payload):
    order: str


def shop_of(**options: object) -> Service:
    shop = Service("shop", **options)  # type: ignore[arg-type]
    shop.event("order.placed.v1", key="order")(Placed)
    shop.event("order.packed.v1", key="order")(Packed)
    return shop


def story(event: Event[object]) -> tuple[str | None, str | None, str | None]:
    return event.correlation, event.traceparent, event.tracestate


async def test_every_way_to_publish_goes_on_with_the_request(tmp_path: Path) -> None:
    shop = shop_of()
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    async with App(shop, store=url, broker="memory://").running(), capture_outbox(shop) as said:
        with during(REQUEST):
            async with shop.transaction() as tx:
                tx.publish(Placed(order="transaction"))
                await tx.execute("CREATE TABLE mine (x text)")
            await shop.record("INSERT INTO mine VALUES (:x)", {"x": "1"}, Placed(order="record"))
            theirs = sqlite3.connect(tmp_path / "shop.db")
            theirs.execute("INSERT INTO mine VALUES ('2')")
            shop.outbox.add_now(theirs, Placed(order="add_now"))
            with shop.outbox.joined(theirs) as sync:
                sync.publish(Placed(order="outbox.joined"))
            await shop.outbox.add(theirs, Placed(order="add"))
            async with shop.joined(theirs) as joined:
                joined.publish(Placed(order="joined"))
            theirs.commit()
            theirs.close()
    ways = ["transaction", "record", "add_now", "outbox.joined", "add", "joined"]
    assert [event.data.order for event in said.of(Placed)] == ways
    assert {story(event) for event in said.of(Placed)} == {("r1", PARENT, "vendor=1")}


async def test_what_the_caller_says_wins() -> None:
    shop = shop_of()
    async with App(shop, store="sqlite://", broker="memory://").running(), capture_outbox(shop) as said:
        with during(REQUEST):
            async with shop.transaction(correlation="mine", traceparent=OTHER) as tx:
                tx.publish(Placed(order="o1"))
    (event,) = said.of(Placed)
    assert story(event) == ("mine", OTHER, None)  # the state belongs to the other trace


def test_a_span_that_is_current_is_where_the_trace_goes_on_unless_another_was_named() -> None:
    tracer = TracerProvider().get_tracer("test")
    for around in (NOTHING, REQUEST):
        with during(around), tracer.start_as_current_span("x") as span:
            made = span.get_span_context()
            found, named = context_here("t1"), context_here("t1", traceparent=OTHER)
        assert found.traceparent == f"00-{made.trace_id:032x}-{made.span_id:016x}-{int(made.trace_flags):02x}"
        assert (found.correlation, found.tracestate, named.traceparent) == (around.correlation, None, OTHER)


async def test_a_tenant_and_an_actor_that_code_has_said_are_taken_where_none_is_named() -> None:
    shop, actor = shop_of(default_tenant=None), Actor(kind="user", id="u1")
    async with App(shop, store="sqlite://", broker="memory://").running(), capture_outbox(shop) as said:
        with during(Current(tenant="t7", actor=actor)):
            async with shop.transaction() as tx:
                tx.publish(Placed(order="o1"))
            async with shop.transaction("t8", actor=Actor(kind="user", id="u2")) as tx:
                tx.publish(Placed(order="o2"))
        with during(REQUEST), pytest.raises(EventError, match="say whose this is"):
            shop.transaction()
    first, second = said.of(Placed)
    assert (first.tenant, first.actor) == ("t7", actor)
    assert (second.tenant, second.actor) == ("t8", Actor(kind="user", id="u2"))


async def test_in_a_handler_everything_goes_on_with_its_event() -> None:
    shop, seen = shop_of(), list[Current]()

    @shop.on(Placed)
    async def pack(event: Event[Placed], tx: Tx) -> None:
        seen.append(current())
        tx.publish(Packed(order=event.data.order))

    @shop.on(Placed, consumer="plain")
    def pack_too(event: Event[Placed]) -> None:
        seen.append(current())

    async with Harness(shop) as harness:
        with during(Current(correlation="r1", tenant="t1", actor=Actor(kind="user", id="u1"), traceparent=PARENT)):
            async with shop.transaction() as tx:
                placed = tx.publish(Placed(order="o1"))
            await harness.settled()
            (packed,) = await harness.published(Packed)
    assert (packed.correlation, packed.causation, packed.traceparent, packed.tenant) == ("r1", placed, PARENT, "t1")
    assert {here.consumer for here in seen} == {"shop", "shop.plain"}
    for here in seen:
        assert here.event is not None
        assert (here.event.id, here.correlation, here.causation, here.attempt) == (placed, "r1", placed, 1)
        assert (here.tenant, here.actor) == (None, None)  # a tenant is named, or is that of the handler's own Tx


async def test_another_transaction_in_a_handler_continues_its_event() -> None:
    shop, contexts = shop_of(), list[EventContext]()

    @shop.on(Placed)
    async def pack(event: Event[Placed]) -> None:
        contexts.append(context_here("t1"))  # what `shop.transaction("t1")` takes

    async with Harness(shop) as harness:
        placed = await harness.publish(Placed(order="o1"), correlation="r1")
        await harness.settled()
    assert contexts == [EventContext(tenant="t1", correlation="r1", causation=placed)]


async def test_nothing_leaks_between_handlers_that_run_at_the_same_time_or_in_one_transaction() -> None:
    shop, wrong = shop_of(), list[tuple[object, object]]()

    @shop.on(Placed)
    async def pack(event: Event[Placed], tx: Tx) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
            if current().event is not event:
                wrong.append((current(), event))

    async with Harness(shop) as harness:
        for number in range(60):
            with during(Current(correlation=f"r{number}")):
                async with shop.transaction() as tx:
                    tx.publish(Placed(order=f"o{number}"))
        await harness.settled()
    assert not wrong
    assert current() is NOTHING


async def test_what_runs_in_the_background_belongs_to_no_request() -> None:
    shop, seen = shop_of(), list[Current]()

    class Broker(MemoryBroker):
        async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
            seen.append(current())
            return await super().publish(frames)

    with during(REQUEST):
        async with App(shop, store="sqlite://", broker=Broker(clock=SystemClock())).running():
            async with shop.transaction() as tx:
                tx.publish(Placed(order="o1"))
            await eventually(lambda: seen)
    assert set(map(id, seen)) == {id(NOTHING)}


async def test_a_task_that_a_request_starts_goes_on_with_it_and_sets_nothing_for_it() -> None:
    heard = list[Current]()

    async def later() -> None:
        heard.append(current())
        with during(Current(correlation="mine")):
            await asyncio.sleep(0)

    with during(REQUEST):
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
        assert current() is REQUEST
    await task
    assert heard == [REQUEST]


async def test_a_saga_speaks_in_its_own_correlation_also_about_its_turns() -> None:
    shop, seen = shop_of(), list[str | None]()

    @shop.saga("packing", correlate="order")
    class Packing(Saga):
        order: str

        @starts(Placed)
        async def begin(self, event: Event[Placed], turn: Turn) -> None:
            seen.append(current().correlation)

    async with Harness(shop) as harness:
        await harness.publish(Placed(order="o1"), correlation="r1")
        await harness.settled()
    assert seen == ["r1"]
