"""The way in for people who have a transaction of their own."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import msgspec
import pytest

from posthouse import App, Payload, Service
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError, EventTooLarge, RuleBroken


class OrderPlaced(Payload):
    order_id: str


def test_what_nobody_could_await_is_refused_at_the_call(tmp_path: Path) -> None:
    """Else the row beside it would commit, and the fact be lost with a warning."""
    shop = Service("shop")
    App(shop, store=f"sqlite:///{tmp_path}/shop.db", broker="memory://")
    placed = shop.event("order.placed.v1", key="order_id")(OrderPlaced)(order_id="o1")
    with pytest.raises(ConfigurationError, match="no event loop runs here: call `add_now`"):
        shop.outbox.add(sqlite3.connect(":memory:"), placed)  # type: ignore[unused-coroutine]

    async def on_a_loop() -> None:
        with pytest.raises(ConfigurationError, match="cannot join"):
            await shop.outbox.add(None, placed)

    asyncio.run(on_a_loop())


def test_who_joins_may_not_add_what_the_broker_would_refuse(tmp_path: Path) -> None:
    """A process that only adds opens nothing: the broker has the last word there as well."""
    broker = MemoryBroker(clock=SystemClock())
    shop, local = Service("shop"), Service("local", residency="eu-central-1")
    app = App(shop, local, store=f"sqlite:///{tmp_path}/shop.db", broker=broker)
    placed = shop.event("order.placed.v1", key="order_id")(OrderPlaced)

    @local.event("order.placed.v1", key="order_id")
    class Local(Payload):
        order_id: str

    asyncio.run(app.store.upgrade())
    broker.sheet = msgspec.structs.replace(broker.sheet, max_bytes=1000, region="us-east-1")
    with sqlite3.connect(f"{tmp_path}/shop.db") as connection:
        connection.execute("BEGIN")
        assert shop.outbox.add_now(connection, placed("o1"))
        with pytest.raises(EventTooLarge, match="limit is 1,000"):
            shop.outbox.add_now(connection, placed("o" * 860))
        with pytest.raises(EventTooLarge, match="limit is 1,000"), shop.outbox.joined(connection) as tx:
            tx.publish(placed("o" * 860))
        with pytest.raises(RuleBroken, match="residency"):
            local.outbox.add_now(connection, Local("o1"))
