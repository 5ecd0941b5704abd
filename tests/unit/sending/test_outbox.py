"""The way in for people who have a transaction of their own."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from posthouse import App, Payload, Service
from posthouse.errors import ConfigurationError


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
