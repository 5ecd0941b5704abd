"""Secrets, rights and grants in a real browser: what is hidden until somebody says why, who may what, and two people for one grant."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.console.inn import NAME
from tests.integration.console.test_looking import RULES, WAYS
from tests.kit.interface import packages
from tests.kit.servers.ports import free_port

WHY = "ticket 4711"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Where its console is, and its folder."""
    folder, port = tmp_path_factory.mktemp("inn"), free_port()
    environment = {**os.environ, "INN": str(folder), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "tests.integration.console.inn"]
    subprocess.run([*command, "fill"], env=environment, check=True, capture_output=True, timeout=120)
    with (folder / "console.log").open("w") as log:
        serving = subprocess.Popen([*command, str(port)], env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}/"
        _answers(address, serving)
        yield address, folder
    finally:
        serving.terminate()
        serving.wait(timeout=15)


def _answers(address: str, serving: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and serving.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail("the console does not answer")


@contextmanager
def seen_by(chrome: Browser, address: str, who: str, *, dark: bool = False, width: int = 1440) -> Iterator[Page]:
    context = chrome.new_context(
        extra_http_headers={"x-who": who},
        color_scheme="dark" if dark else "light",
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
        bypass_csp=True,
    )
    complaints: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        page.goto(address)
        page.get_by_role("main").get_by_role("heading", level=1).wait_for()
        yield page
    finally:
        context.close()
    assert complaints == []


def go(page: Page, address: str, path: str) -> None:
    page.goto(f"{address.rstrip('/')}{path}")
    page.get_by_role("main").get_by_role("heading", level=1).wait_for()


def held_number(folder: Path, key: str) -> int:
    return int(str(rows(folder, "SELECT id FROM posthouse_held WHERE key = ?", key)[0][0]))


def rows(folder: Path, statement: str, *given: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "inn.db")) as database:
        return database.execute(statement, given).fetchall()


def unmask(page: Page) -> None:
    page.get_by_role("button", name="Unmask").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why").fill(WHY)
    dialog.get_by_role("button", name="Show it").click()
    expect(dialog).to_have_count(0)


def test_a_secret_is_seen_once_somebody_said_why_and_an_edit_never_shows_it(
    chrome: Browser, house: tuple[str, Path]
) -> None:
    address, folder = house
    asked: list[str] = []
    with seen_by(chrome, address, "ada") as page:
        page.on("response", lambda answer: asked.append(answer.text()) if "/api/held" in answer.url else None)
        go(page, address, f"/held/ledger/{held_number(folder, 'g1')}")
        expect(page.get_by_text("Personal fields are hidden.")).to_be_visible()
        assert NAME not in "".join([page.content(), *asked])
        unmask(page)
        expect(page.get_by_text("2 fields decrypted for you")).to_be_visible()
        expect(page.get_by_role("main").get_by_text(NAME).first).to_be_visible()
        (look,) = rows(
            folder, "SELECT by, why, changed FROM posthouse_action WHERE verb = 'console unmask' AND key = 'g1'"
        )
        assert look[:2] == ("ada (console)", WHY)
        assert "shown of g1" in str(look[2])
        assert NAME not in str(look)
        page.get_by_role("button", name=re.compile("^Edit")).click()
        text = page.get_by_role("textbox", name="payload").input_value()
        assert "⟨withheld 1⟩" in text
        assert NAME not in text
        go(page, address, "/log")
        assert NAME not in page.content()
        page.go_back()
        expect(page.get_by_text("Personal fields are hidden.")).to_be_visible()


def test_of_somebody_erased_it_says_so(chrome: Browser, house: tuple[str, Path]) -> None:
    address, folder = house
    with seen_by(chrome, address, "ada") as page:
        go(page, address, f"/held/ledger/{held_number(folder, 'g2')}")
        unmask(page)
        expect(page.get_by_text("Nothing here can be decrypted.")).to_be_visible()
        expect(page.get_by_text("name, born")).to_be_visible()
        expect(page.get_by_role("main").get_by_text("⟨erased⟩").first).to_be_visible()


def test_the_catalogue_says_of_each_topic_who_may(chrome: Browser, house: tuple[str, Path]) -> None:
    address, _ = house
    with seen_by(chrome, address, "eve") as page:
        go(page, address, "/catalogue?view=rights")
        table = page.get_by_role("table", name="Rights")
        arrived = table.get_by_role("row").filter(has_text="town.inn.guest")
        expect(arrived.first).to_contain_text("ledger")
        expect(arrived.first).to_contain_text("nobody")
        expect(table.get_by_role("row").filter(has_text="town.ledger.bill")).to_contain_text("old-till")
        go(page, address, "/catalogue/town.inn.guest.arrived.v1")
        expect(page.get_by_role("heading", name="Who may")).to_be_visible()


def test_a_grant_is_asked_for_by_one_and_approved_by_another(chrome: Browser, house: tuple[str, Path]) -> None:
    address, folder = house
    with seen_by(chrome, address, "ada") as page:
        go(page, address, "/grants")
        running = page.get_by_role("row").filter(has_text="ticket 8")
        expect(running).to_contain_text("3 of 120")
        expect(running).to_contain_text("approved by cat")
        page.get_by_role("button", name="Ask for a grant…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("In", exact=True).select_option("ledger")
        dialog.get_by_label("Minutes").fill("20")
        dialog.get_by_label("Only tenant").fill("t1")
        expect(dialog.get_by_text("tenant t1 of ledger: 100 events in 20 minutes")).to_be_visible()
        dialog.get_by_label("Why").fill(WHY)
        dialog.locator("button[type=submit]").click()
        mine = page.get_by_role("row").filter(has_text=WHY)
        expect(mine).to_contain_text("asked")
        mine.get_by_role("button", name="Approve…").click(force=True)
        expect(page.get_by_text("You asked for it: somebody else approves it.").first).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
    with seen_by(chrome, address, "eve") as page:
        go(page, address, "/grants")
        page.get_by_role("row").filter(has_text=WHY).get_by_role("button", name="Approve…").click(force=True)
        expect(page.get_by_text("it needs the role admin").first).to_be_visible()
    assert rows(folder, "SELECT count(*) FROM posthouse_action WHERE verb = 'grant approve'") == [(1,)]
    with seen_by(chrome, address, "ben") as page:
        go(page, address, "/grants")
        row = page.get_by_role("row").filter(has_text=WHY)
        for button, state in (("Approve…", "running"), ("Revoke…", None)):
            row.get_by_role("button", name=button).click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Why").fill("seen it")
            dialog.locator("button[type=submit]").click()
            expect(dialog).to_have_count(0)
            expect(row).to_contain_text(state) if state else expect(row).to_have_count(0)
        page.get_by_role("tab", name="Ended").click()
        expect(page.get_by_role("row").filter(has_text=WHY)).to_contain_text("revoked by ben")
    said = rows(folder, "SELECT verb, by FROM posthouse_action WHERE verb LIKE 'grant %' AND by LIKE '%(console)'")
    assert {
        ("grant request", "ada (console)"),
        ("grant approve", "ben (console)"),
        ("grant revoke", "ben (console)"),
    } <= set(said)


@pytest.mark.parametrize(("dark", "width"), WAYS)
def test_these_pages_can_be_used_by_everybody(chrome: Browser, house: tuple[str, Path], dark: bool, width: int) -> None:
    address, folder = house
    axe = (packages() / "axe-core" / "axe.min.js").read_text()
    found: dict[str, object] = {}
    with seen_by(chrome, address, "ada", dark=dark, width=width) as page:
        for path in (
            "/grants",
            "/grants?view=ended",
            "/catalogue?view=rights",
            f"/held/ledger/{held_number(folder, 'g1')}",
        ):
            go(page, address, path)
            expect(page.get_by_role("main")).not_to_contain_text("Loading")
            if path.startswith("/held"):
                unmask(page)
            page.evaluate(axe)
            told = page.evaluate(f"() => axe.run(document, {{runOnly: {RULES}}})")
            for one in told["violations"]:
                found[f"{path}: {one['id']}"] = [node["html"][:300] for node in one["nodes"][:3]]
            if page.evaluate("() => document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                found[f"{path}: wider than the window"] = width
            if shots := os.environ.get("SHOTS"):
                name = re.sub(r"\W+", "-", path).strip("-")
                page.screenshot(path=f"{shots}/{name}-{'dark' if dark else 'light'}-{width}.png", full_page=True)
    assert found == {}
