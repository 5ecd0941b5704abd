"""The page of docs/sse.md in a browser: it hears what others write, says "processing", and comes back after its server was killed."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
from playwright.async_api import async_playwright, expect

from tests.integration.test_sse import Member, member
from tests.kit.servers.chromium import how


async def test_the_page_shows_what_happens_and_comes_back_after_its_server_was_killed(tmp_path: Path) -> None:
    with member(ROOMS_STORE=f"sqlite:///{tmp_path}/rooms.db", ROOMS_BROKER=f"embedded:///{tmp_path}/log.db") as server:
        await server.start()
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(**how())
            context = await browser.new_context()
            await context.add_cookies([{"name": "session", "value": "s-ada", "url": server.url}])
            page = await context.new_page()
            await page.goto(server.url)
            await expect(page.locator("#connection")).to_have_text("live")
            await page.get_by_label("Room").fill("12")
            await page.get_by_role("button").click()
            await expect(page.locator("#write")).to_have_text("applied", timeout=20_000)
            await expect(page.locator("#board li")).to_have_text(["12: ready"])
            await put(server, "14", "dirty")
            await expect(page.locator("#board li")).to_have_text(["12: ready", "14: dirty"], timeout=20_000)
            server.end(signal.SIGKILL)
            await expect(page.locator("#connection")).to_have_text("reconnecting")
            await server.start()
            await put(server, "14", "clean")
            await expect(page.locator("#board li")).to_have_text(["12: ready", "14: clean"], timeout=40_000)
            await expect(page.locator("#connection")).to_have_text("live")
            await browser.close()


async def put(server: Member, room: str, state: str) -> None:
    async with httpx.AsyncClient(trust_env=False, cookies={"session": "s-ada"}) as client:
        (await client.put(f"{server.url}/rooms/{room}", params={"state": state})).raise_for_status()
