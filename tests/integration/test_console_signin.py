"""Signing in with a real browser: the link, a link that was used, and a provider on another site."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import BrowserContext, async_playwright, expect

from posthouse import Service
from posthouse.console.access import Access, Oidc, Who
from posthouse.console.application import guarded
from posthouse.console.estate import Estate
from tests.kit.asgi import served
from tests.kit.interface import STATIC
from tests.kit.servers.chromium import how
from tests.kit.servers.provider import CLIENT, providing

pytestmark = pytest.mark.skipif(not (STATIC / "index.html").exists(), reason="the interface is not built")


@contextlib.asynccontextmanager
async def browsing() -> AsyncIterator[BrowserContext]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**how())
        try:
            yield await browser.new_context()
        finally:
            await browser.close()


async def test_a_link_signs_in_leaves_no_token_behind_and_works_once() -> None:
    tokens: list[str] = []
    app = guarded(Estate(Service("orders")), Access(), tokens.append)
    async with served(app) as address, browsing() as context:
        page = await context.new_page()
        link = f"http://{address}/services#token={tokens[0]}"
        await page.goto(link)
        await expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        await expect(page).to_have_url(f"http://{address}/services")

        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await page.goto("about:blank")
        await page.goto(link)
        await expect(page.get_by_text("This token was used")).to_be_visible()

        await page.get_by_role("button", name="Print a new link").click()
        await expect(page.get_by_text("A new link is printed")).to_be_visible()
        await page.get_by_label("Link or token").fill(f"http://{address}/#token={tokens[-1]}")
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(page.get_by_role("button", name="Sign out")).to_be_visible()


async def test_a_provider_on_another_site_sends_people_back_to_the_page_that_they_wanted() -> None:
    """`localhost` and `127.0.0.1` are two sites: the cookie of the session is Strict, and the page is signed in all the same."""
    async with providing() as provider:
        provider.issuer = provider.issuer.replace("127.0.0.1", "localhost")
        oidc = Oidc(issuer=provider.issuer, client_id=CLIENT)
        access = Access(oidc=oidc, roles=lambda claims: Who(name=str(claims["email"]), roles=frozenset(("reader",))))
        async with served(guarded(Estate(Service("orders")), access)) as address, browsing() as context:
            page = await context.new_page()
            await page.goto(f"http://{address}/services?x=1")
            await page.get_by_role("button", name="Sign in there").click()

            await expect(page.get_by_text("ana@example.com")).to_be_visible()
            await expect(page).to_have_url(f"http://{address}/services?x=1")
            session = [one for one in await context.cookies() if "session" in one["name"]]
    assert [(one["httpOnly"], one["sameSite"]) for one in session] == [(True, "Strict")]
