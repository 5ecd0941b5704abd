"""Looking at the console in a real browser: every page, in both themes, on a desk and on a phone; and nothing that somebody wrote
into an event ever runs."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.console.conftest import Door, signed_in
from tests.integration.console.town import BIG
from tests.kit.interface import packages

MOST = 80
"""Pages that the crawler goes to: more than there are kinds of."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
WAYS = [(False, 1440), (True, 1440), (False, 390), (True, 390)]


@pytest.fixture(scope="module")
def crawled(chrome: Browser, looked_at: Door) -> set[str]:
    """Where links lead to, from one to the next."""
    with signed_in(chrome, looked_at) as page:
        seen = _crawled(page)
        assert page.evaluate("() => window.hacked") is None
    return seen


def test_every_link_leads_to_a_page_that_says_what_it_is_and_no_script_of_an_event_runs(crawled: set[str]) -> None:
    kinds = {urlsplit(path).path.split("/")[1] for path in crawled}
    assert {"", "held", "sagas", "consumers", "outbox", "relays", "processes", "timers", "schedules"} <= kinds
    assert {"projections", "catalogue", "tenants", "log", "health", "map"} <= kinds
    assert len(crawled) > 40


@pytest.mark.parametrize(("dark", "width"), WAYS)
def test_every_page_can_be_used_by_everybody(
    chrome: Browser, looked_at: Door, crawled: set[str], dark: bool, width: int
) -> None:
    axe = (packages() / "axe-core" / "axe.min.js").read_text()
    found: dict[str, object] = {}
    with signed_in(chrome, looked_at, dark=dark, width=width) as page:
        for path in _one_of_each(crawled):
            _go(page, path)
            page.evaluate(axe)
            told = page.evaluate(f"() => axe.run(document, {{runOnly: {RULES}}})")
            for one in told["violations"]:
                found[f"{path}: {one['id']}"] = [node["html"][:300] for node in one["nodes"][:3]]
            wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if wide > 0:
                found[f"{path}: wider than the window"] = wide
    assert found == {}


def test_an_integer_that_a_browser_cannot_hold_is_shown_as_it_is(chrome: Browser, looked_at: Door) -> None:
    with signed_in(chrome, looked_at) as page:
        _go(page, "/held?key=big&by=event")
        page.get_by_role("tab", name="Events").click()
        page.get_by_role("main").locator("a[href^='/held/']").first.click()
        expect(page.get_by_text(f"-{BIG}").first).to_be_visible()


def test_health_says_first_what_is_to_be_mended_and_shows_the_rest_when_asked(chrome: Browser, looked_at: Door) -> None:
    with signed_in(chrome, looked_at) as page:
        _go(page, "/health")
        expect(page.get_by_role("table", name="What to mend")).to_be_visible()
        checks = page.get_by_role("table", name="Checks of the store of orders")
        expect(checks).to_have_count(0)
        page.get_by_role("main").locator("summary").filter(has_text="Store of orders").click()
        expect(checks).to_be_visible()


def test_the_map_counts_the_places_that_it_shows_in_need(chrome: Browser, looked_at: Door) -> None:
    with signed_in(chrome, looked_at) as page:
        for view in ("", "?view=all"):
            _go(page, f"/map{view}")
            expect(page.get_by_role("table")).to_be_visible()
            shown = page.get_by_role("table").get_by_text("needs a person", exact=True).count()
            assert shown > 0
            expect(page.locator(".says")).to_contain_text(f". {shown} place")


def test_on_a_desk_all_pages_are_in_sight_beside_the_page(chrome: Browser, looked_at: Door) -> None:
    with signed_in(chrome, looked_at, width=1440) as page:
        page.set_viewport_size({"width": 1440, "height": 900})
        assert (
            page.evaluate(
                "() => { const it = document.querySelector('.rail'); return it.scrollHeight - it.clientHeight; }"
            )
            <= 0
        )


def _crawled(page: Page) -> set[str]:
    waiting, seen = [_path(page)], set[str]()
    while waiting and len(seen) < MOST:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        _go(page, path)
        assert page.get_by_role("main").get_by_role("heading", level=1).inner_text().strip(), path
        assert page.get_by_text("There is no page").count() == 0, path
        for link in page.get_by_role("link").all():
            href = link.get_attribute("href") or ""
            target = urlsplit(href)
            assert not target.netloc or target.netloc == urlsplit(page.url).netloc or target.scheme == "https", href
            if not target.netloc and target.path.startswith("/"):
                waiting.append(href)
    return seen


def _one_of_each(crawled: set[str]) -> list[str]:
    """One page of each kind: lists, and one thing of each list."""
    kinds: dict[tuple[str, int], str] = {}
    for path in sorted(crawled):
        parts = urlsplit(path).path.split("/")
        kinds.setdefault((parts[1], len(parts)), path)
    return list(kinds.values())


def _go(page: Page, path: str) -> None:
    """As a link of the page would: nothing is loaded anew."""
    page.evaluate("path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path)
    page.get_by_role("main").get_by_role("heading", level=1).wait_for()
    expect(page.locator(".skeleton")).to_have_count(0)


def _path(page: Page) -> str:
    return urlsplit(page.url).path
