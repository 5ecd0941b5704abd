"""`posthouse status --watch` while broker and database go away and come back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from posthouse.cli.screen.terminal import LEAVE
from posthouse.stores.postgres import PostgresStore
from tests.kit.pty import Pty
from tests.kit.servers.proxy import Proxy

SHOP = """
import os

from posthouse import App, Event, Service

orders = Service("orders", namespace="shop")
app = App(orders, store=os.environ["SHOP_STORE"], broker=os.environ["SHOP_BROKER"])


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced:
    order_id: str


@orders.on(OrderPlaced)
async def pack(event: Event[OrderPlaced]) -> None: ...
"""
WATCH = ["-m", "posthouse", "status", "shop", "--watch", "--every", "0.1"]


async def until(terminal: Pty, *words: str) -> None:
    """The proxies are of this loop: wait beside it."""
    await asyncio.to_thread(
        terminal.until, lambda one: all(word in "\n".join(one.screen) for word in words), " and ".join(words)
    )


@pytest.mark.slow
async def test_what_goes_away_is_said_with_the_figures_of_before_and_it_goes_on_when_it_comes_back(
    postgres_url: str, tmp_path: Path
) -> None:
    store = PostgresStore(postgres_url)
    await store.upgrade()
    await store.aclose()
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    parts = urlsplit(postgres_url)
    async with Proxy("127.0.0.1", parts.port or 0) as database, Proxy("127.0.0.1", parts.port or 0) as broker:
        url = f"postgresql://{parts.username}@127.0.0.1:{{}}{parts.path}"
        env = {"SHOP_STORE": url.format(database.port), "SHOP_BROKER": f"{url.format(broker.port)}?schema=log"}
        await database.cut()
        with Pty(WATCH, 100, 30, folder=tmp_path, env=env) as terminal:
            await until(terminal, "Cannot tell: ", str(database.port))
            assert "APPLIED/S" not in "\n".join(terminal.screen), "nothing is known yet"
            await database.heal()
            await until(terminal, "It adds up", "APPLIED/S")
            await broker.cut()
            await until(terminal, "Cannot tell what is at the broker: ", "APPLIED/S")
            await broker.heal()
            await until(terminal, "It adds up")
            await database.cut()
            await until(terminal, "Cannot tell for ", "THESE FIGURES ARE ", "APPLIED/S")
            await database.heal()
            await until(terminal, "It adds up")
            assert "THESE FIGURES ARE" not in "\n".join(terminal.screen)
            await database.stall()
            terminal.press("\x03")
            assert await asyncio.to_thread(terminal.ended, 20.0) == 0, "a database that hangs keeps nobody"
            assert terminal.output.count(LEAVE) == 1
            assert "Traceback" not in terminal.output
