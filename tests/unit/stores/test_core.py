"""A store with the core alone: events go out and are applied; what needs more tables is refused by name."""

from __future__ import annotations

from typing import cast

import pytest

from posthouse import App, Event, Payload, Service, Tx
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.processes import Saga, Turn, starts
from posthouse.store import CoreStore, has_process_tables
from posthouse.stores.sqlite import SqliteStore
from tests.kit.waiting import eventually

shop = Service("shop")
handled: list[str] = []


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.on(OrderPlaced)
async def handle(event: Event[OrderPlaced], tx: Tx) -> None:
    handled.append(event.data.order_id)


def core_only() -> CoreStore:
    """What `CoreStore` names of a store, and nothing else of it."""
    whole = SqliteStore(":memory:", clock=SystemClock())
    named = {name for port in CoreStore.__mro__ for name in (*vars(port), *vars(port).get("__annotations__", ()))}
    store = type("CoreOnlyStore", (), {})()
    for name in named:
        if not name.startswith("_"):
            setattr(store, name, getattr(whole, name))
    return cast("CoreStore", store)


async def test_events_are_published_and_applied_on_the_core_alone() -> None:
    store = core_only()
    assert not has_process_tables(store)
    app = App(shop, store=store, broker=MemoryBroker(clock=SystemClock()))
    async with app.running():
        async with shop.transaction("t1") as tx:
            tx.publish(OrderPlaced(order_id="o1"))
        await eventually(lambda: handled == ["o1"])
    await app.aclose()


async def test_a_saga_declared_on_the_core_alone_is_refused_by_name() -> None:
    service = Service("warehouse")

    @service.saga("fulfilment", correlate="order_id")
    class Fulfilment(Saga):
        order_id: str

        @starts
        def begin(self, turn: Turn) -> None: ...

    app = App(service, store=core_only(), broker=MemoryBroker(clock=SystemClock()))
    with pytest.raises(
        ConfigurationError, match="the saga 'fulfilment', and CoreOnlyStore has the core of a store alone"
    ):
        await app.open()
    await app.aclose()
