"""The console's pages in a browser: one connection for five tabs, another tab takes over, a server that went away comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from posthouse import App, Payload, Service
from posthouse.console.access import Access
from posthouse.console.access.who import Who
from posthouse.console.application import console
from tests.kit.interface import STATIC
from tests.kit.servers.chromium import how
from tests.kit.servers.ports import free_port
from tests.kit.serving import serving
from tests.kit.waiting import eventually

pytestmark = pytest.mark.skipif(not (STATIC / "index.html").exists(), reason="the interface is not built")

ANA = Who(name="ana", roles=frozenset(("reader",)))
orders = Service("orders", namespace="shop")


@orders.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", {get: () => hidden, configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""


class Counting:
    """The console, and how many connections for live data are open."""

    def __init__(self, app: App) -> None:
        self._inner = console(app, access=Access(who=lambda _: ANA))
        self.live = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        listens = scope["type"] == "http" and scope["path"] == "/api/live"
        self.live += listens
        try:
            await self._inner(scope, receive, send)
        finally:
            self.live -= listens


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    app = App(orders, store=f"sqlite:///{tmp_path}/orders.db", broker=f"memory://{tmp_path.name}")
    await app.open()
    yield app
    await app.aclose()


@contextlib.asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**how())
        try:
            yield browser
        finally:
            await browser.close()


async def tabs(context: BrowserContext, url: str, count: int) -> list[Page]:
    pages = [await context.new_page() for _ in range(count)]
    await asyncio.gather(*(page.goto(f"{url}/outbox") for page in pages))
    return pages


async def says(page: Page, words: str) -> None:
    await expect(page.locator(".rail-live")).to_have_text(words, timeout=20_000)


async def test_five_tabs_hold_one_connection_and_another_takes_over(app: App) -> None:
    counting = Counting(app)
    async with serving(counting) as url, browsing() as browser:
        context = await browser.new_context()
        asked: list[tuple[Page, str]] = []
        context.on("request", lambda one: asked.append((one.frame.page, one.url)) if "/api/" in one.url else None)
        pages = await tabs(context, url, 5)
        for page in pages:
            await says(page, "Live")
        assert counting.live == 1
        (leader,) = [page for page, path in asked if "/api/live" in path]
        await leader.close()
        hidden, *others = [page for page in pages if page is not leader]
        await eventually(lambda: counting.live == 1, "another tab took over")
        for page in others:
            await says(page, "Live")
        assert counting.live == 1
        await hidden.evaluate(HIDE, True)
        asked.clear()
        async with orders.transaction("t1") as tx:
            tx.publish(OrderPlaced(order_id="o1"))
        await eventually(lambda: {page for page, path in asked} >= {*others}, "pages that are seen ask again")
        assert hidden not in {page for page, path in asked if "/api/outbox" in path}, "one that is not seen does not"
        await hidden.evaluate(HIDE, False)
        await eventually(lambda: hidden in {page for page, path in asked}, "but when it is")


async def test_a_server_that_went_away_is_said_so_and_comes_back(app: App) -> None:
    port = free_port()
    async with browsing() as browser:
        context = await browser.new_context()
        async with serving(Counting(app), port) as url:
            first, second = await tabs(context, url, 2)
            await says(first, "Live")
            await says(second, "Live")
        await says(first, "Reconnecting…")
        await says(second, "Reconnecting…")
        again = Counting(app)
        async with serving(again, port):
            await says(first, "Live")
            await says(second, "Live")
            assert again.live == 1


async def test_a_browser_without_locks_asks_by_itself(app: App) -> None:
    counting = Counting(app)
    async with serving(counting) as url, browsing() as browser:
        context = await browser.new_context()
        await context.add_init_script("Object.defineProperty(navigator, 'locks', {value: undefined})")
        (page,) = await tabs(context, url, 1)
        await says(page, "Asks every 5 s")
        assert counting.live == 0
