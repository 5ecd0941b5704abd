"""Pressing what the console offers, in a real browser, each to its effect in the store and its line in the operators' log."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.integration.console.conftest import console_at, environment, let_in, signed_in
from tests.integration.console.town import HOSTILE
from tests.kit.servers.ports import free_port
from tests.kit.waiting import until

WHY = "ticket 4711"


@pytest.fixture
def console(chrome: Browser, town: Path) -> Iterator[Page]:
    with console_at(town) as link, signed_in(chrome, let_in(chrome, link)) as page:
        yield page


def test_what_waits_for_a_person_is_mended_from_home_on(console: Page, town: Path) -> None:
    """A new operator's way: home says what is stuck, its button leads there, the act says what will happen."""
    console.get_by_role("link", name="Held events").first.click()
    console.get_by_role("tab", name="Events").click()
    console.get_by_role("main").get_by_role("link", name="order.placed").last.click()
    _press(console, "Retry…", "Retry")
    assert _count(town, "SELECT count(*) FROM posthouse_held WHERE state = 'retrying'") == 1
    assert _logged(town) == {("held retry", WHY)}


def test_a_held_event_is_given_up_and_its_key_goes_on(console: Page, town: Path) -> None:
    _open(console, town, "nobody-0")
    _press(console, "Skip…", "Skip")
    assert _count(town, "SELECT count(*) FROM posthouse_held WHERE state = 'skipped'") == 1
    assert _logged(town) == {("held skip", WHY)}


def test_what_was_done_is_said_on_its_page_and_goes_when_that_is_left(console: Page, town: Path) -> None:
    _open(console, town, "nobody-0")
    _press(console, "Skip…", "Skip")
    done = console.get_by_role("status", name="What was done").get_by_role("link")
    expect(done).to_be_visible()
    console.get_by_role("navigation").get_by_role("link", name="Home").click()
    expect(done).to_have_count(0, timeout=15_000)


def test_a_payload_is_edited_and_the_event_runs_again(console: Page, town: Path) -> None:
    _open(console, town, "bad-1")
    console.get_by_role("button", name="Unmask").click()
    dialog = console.get_by_role("dialog")
    dialog.get_by_label("Why").fill("  ")
    dialog.get_by_role("button", name="Show it").click()
    expect(dialog.get_by_text("Say why")).to_be_visible()
    assert "console unmask" not in {verb for verb, _ in _lines(town)}
    dialog.get_by_label("Why").fill(WHY)
    dialog.get_by_role("button", name="Show it").click()
    expect(dialog).to_have_count(0)
    expect(console.get_by_text("Personal fields are hidden.")).to_have_count(0)
    assert ("console unmask", WHY) in _lines(town)
    console.get_by_role("button", name=re.compile("^Edit")).click()
    text = console.get_by_role("textbox", name="payload")
    text.fill(re.sub(r'(total_cents"\s*:\s*)-1', r"\g<1>4200", text.input_value()))
    console.get_by_role("button", name="Edit and retry…").last.click()
    _confirm(console, None)
    (body,) = _rows(town, "SELECT CAST(body AS TEXT) FROM posthouse_held WHERE key = 'bad-1' AND sequence = 1")[0]
    assert "4200" in str(body)
    assert HOSTILE[:20] in str(body).replace("\\\\", "\\")
    assert ("held edit", WHY) in _logged(town)


def test_all_of_a_failure_run_again_as_a_job(console: Page, town: Path) -> None:
    console.get_by_role("navigation").get_by_role("link", name="Held").click()
    row = console.get_by_role("row").filter(has_text="LookupError")
    row.get_by_role("button", name="Retry all…").click()
    dialog = console.get_by_role("dialog")
    dialog.get_by_label("First, and wait for them").fill("0")
    _confirm(console, re.compile("Retry"))
    until(
        lambda: _count(town, "SELECT count(*) FROM posthouse_held WHERE state = 'retrying'") == 3, "all three run again"
    )
    with _worker(town):
        until(
            lambda: _count(town, "SELECT count(*) FROM posthouse_held WHERE state = 'retrying'") == 0,
            "they had their run",
        )
    assert len([verb for verb, why in _lines(town) if verb == "held retry" and WHY in why]) == 3, _lines(town)


def test_a_saga_that_cannot_be_undone_is_completed_by_hand(console: Page, town: Path) -> None:
    console.get_by_role("navigation").get_by_role("link", name="Sagas").click()
    console.get_by_role("link", name=re.compile("broken")).first.click()
    console.get_by_role("main").get_by_role("button", name="Complete").first.click()
    expect(console.get_by_role("dialog").locator("button[type=submit]")).to_have_text("Complete")
    _confirm(console, None)
    assert ("saga resume", WHY) in _logged(town)
    assert _count(town, "SELECT count(*) FROM posthouse_saga WHERE status = 'compensation_failed'") == 0


def test_all_sagas_that_cannot_be_undone_are_completed_as_a_job(console: Page, town: Path) -> None:
    path = "/sagas?service=orders&status=compensation_failed"
    console.evaluate(
        "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path
    )
    console.get_by_role("button", name="Complete all…").click()
    _confirm(console, None)
    until(
        lambda: _count(town, "SELECT count(*) FROM posthouse_saga WHERE status = 'compensation_failed'") == 0,
        "it goes on",
    )


def test_a_timer_is_cancelled(console: Page, town: Path) -> None:
    console.get_by_role("navigation").get_by_role("link", name="Timers").click()
    row = console.get_by_role("row").filter(has_text="recall:later")
    row.get_by_role("button", name="Cancel").click()
    _confirm(console, None)
    assert ("timers cancel", WHY) in _logged(town)
    assert _count(town, "SELECT count(*) FROM posthouse_timer WHERE name LIKE '%recall:later%'") == 0


def test_a_schedule_is_paused(console: Page, town: Path) -> None:
    with _worker(town):  # it declares itself when it runs
        until(lambda: _count(town, "SELECT count(*) FROM posthouse_schedule") == 1, "the schedule is known")
    console.get_by_role("navigation").get_by_role("link", name="Schedules").click()
    console.get_by_role("button", name="Pause").first.click()
    _confirm(console, None)
    assert ("schedule pause", WHY) in _logged(town)


def test_a_consumer_reads_again_and_applies_nothing_twice(console: Page, town: Path) -> None:
    console.get_by_role("navigation").get_by_role("link", name="Consumers").click()
    row = console.get_by_role("row").filter(has_text="billing").first
    row.get_by_role("button", name="Read again").click()
    _confirm(console, None)
    assert ("seek", WHY) in _logged(town)


def test_the_page_of_an_event_says_that_it_was_applied_and_by_whom(console: Page, town: Path) -> None:
    _open(console, town, "nobody-0")
    (number,) = _rows(town, "SELECT id FROM posthouse_held WHERE key = 'nobody-0'")[0]
    with sqlite3.connect(town / "town.db") as store:  # what was wrong is mended
        store.execute(
            "UPDATE posthouse_held SET body = CAST(replace(CAST(body AS TEXT), '\"total_cents\":0', '\"total_cents\":7') AS BLOB) WHERE id = ?",
            (number,),
        )
    _press(console, "Retry…", "Retry")
    with _worker(town):
        expect(console.get_by_text("It was applied.")).to_be_visible()
    expect(console.get_by_role("main").get_by_text(WHY).first).to_be_visible()
    expect(console.get_by_role("main").get_by_text("pressed held retry")).to_be_visible()
    expect(console.get_by_text("Not here")).to_have_count(0)


def test_what_was_done_is_said_with_a_link_when_its_row_has_gone(console: Page, town: Path) -> None:
    console.get_by_role("navigation").get_by_role("link", name="Timers").click()
    row = console.get_by_role("row").filter(has_text="recall:later")
    row.get_by_role("button", name="Cancel").click()
    _confirm(console, None)
    expect(row).to_have_count(0)
    done = console.get_by_role("status", name="What was done")
    done.get_by_role("link", name="See the operators' log").click()
    expect(console.get_by_role("main").get_by_text("timers cancel")).to_be_visible()
    expect(done.get_by_role("link")).to_have_count(0)


def test_all_of_a_failure_are_given_up_as_a_job_that_is_one_line_of_the_log(console: Page, town: Path) -> None:
    console.get_by_role("navigation").get_by_role("link", name="Held").click()
    row = console.get_by_role("row").filter(has_text="LookupError")
    row.get_by_role("button", name="Skip all…").click()
    _confirm(console, None)
    until(lambda: _count(town, "SELECT count(*) FROM posthouse_held WHERE state = 'skipped'") == 3, "all three")
    console.get_by_role("link", name="See how far it is").click()
    expect(console.get_by_role("main").get_by_text("done", exact=True).first).to_be_visible()
    console.get_by_role("navigation").get_by_role("link", name="Operators' log").click()
    lines = console.get_by_role("main").get_by_role("row").filter(has_text=WHY)
    expect(lines).to_have_count(1)
    console.get_by_role("link", name=re.compile("Its 3 lines")).click()
    expect(lines).to_have_count(3)


def test_events_are_sent_again(console: Page, town: Path) -> None:
    console.get_by_role("navigation").get_by_role("link", name="Outbox").click()
    console.get_by_role("button", name="Send again…").click()
    _confirm(console, None)
    until(lambda: ("job start", WHY) in _logged(town), "it is a job")


def test_another_schema_says_what_it_would_break(console: Page) -> None:
    console.get_by_role("navigation").get_by_role("link", name="Catalogue").click()
    console.get_by_role("main").get_by_role("link", name=re.compile("order.placed")).first.click()
    console.get_by_role("button", name="Try another schema…").click()
    text = console.get_by_label("New schema")
    text.fill(text.input_value().replace("total_cents", "total"))
    console.get_by_role("button", name="What would it break?").click()
    expect(console.get_by_text(re.compile("stand against it"))).to_be_visible()
    expect(console.get_by_role("table", name="What the other schema would break")).to_contain_text("billing")


def test_a_reader_is_told_why_a_button_does_nothing(chrome: Browser, town: Path) -> None:
    with _served("tests.integration.console.reading:app", town) as address:
        context = chrome.new_context()
        page = context.new_page()
        try:
            page.goto(address)
            page.get_by_role("navigation").get_by_role("link", name="Timers").click()
            button = page.get_by_role("button", name=re.compile("^Cancel")).first
            expect(button).to_have_attribute("aria-disabled", "true")
            expect(button).to_have_attribute("title", re.compile("needs the role operator, and yours is reader"))
            button.click(force=True)  # it is not "enabled": a person presses it even so
            expect(page.get_by_role("status", name="What was done")).to_contain_text("needs the role operator")
            expect(page.get_by_role("dialog")).to_have_count(0)
        finally:
            context.close()


def test_a_reason_is_asked_for(console: Page, town: Path) -> None:
    _open(console, town, "nobody-1")
    console.get_by_role("button", name="Retry…", exact=True).click()
    console.get_by_role("dialog").locator("button[type=submit]:enabled").click()
    expect(console.get_by_role("dialog").locator("textarea:invalid")).to_be_visible()
    assert _logged(town) == set()


def test_the_page_goes_on_when_the_console_comes_back(chrome: Browser, town: Path) -> None:
    with console_at(town) as link:
        door = let_in(chrome, link)
        port = int(door.address.rstrip("/").rpartition(":")[2])
        context = chrome.new_context(storage_state=door.kept)
        page = context.new_page()
        page.goto(door.address)
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
    try:
        expect(page.get_by_text("Reconnecting")).to_be_visible(timeout=20_000)
        with console_at(town, port) as link:
            page.goto(link)
            expect(page.get_by_role("heading", name="Home")).to_be_visible(timeout=20_000)
            expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=30_000)
    finally:
        context.close()


def _open(page: Page, town: Path, key: str) -> None:
    (number,) = _rows(town, "SELECT id FROM posthouse_held WHERE key = ? ORDER BY id LIMIT 1", key)[0]
    path = f"/held/billing/{number}"
    page.evaluate("path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path)
    expect(page.get_by_role("main").get_by_text(key).first).to_be_visible()


def _press(page: Page, button: str | re.Pattern[str], confirm: str | None) -> None:
    page.get_by_role("main").get_by_role("button", name=button).first.click()
    _confirm(page, confirm)


def _confirm(page: Page, name: str | re.Pattern[str] | None) -> None:
    """Say why, press, and see that it was done."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Why").fill(WHY)
    dialog.locator("button[type=submit]").click()
    expect(dialog.locator("button[type=submit]")).to_have_count(0)
    expect(dialog.locator(".notice-bad")).to_have_count(0)
    page.keyboard.press("Escape")


def _logged(town: Path) -> set[tuple[str, str]]:
    """Verbs and reasons, of what changed something."""
    return {line for line in _lines(town) if not line[0].startswith("console ")}


def _lines(town: Path) -> list[tuple[str, str]]:
    return [(str(verb), str(why)) for verb, why in _rows(town, "SELECT verb, why FROM posthouse_action")]


def _count(town: Path, question: str) -> int:
    return int(str(_rows(town, question)[0][0]))


def _rows(town: Path, question: str, *values: object) -> list[tuple[object, ...]]:
    with sqlite3.connect(f"file:{town}/town.db?mode=ro", uri=True) as store:
        return store.execute(question, values).fetchall()


@contextmanager
def _served(target: str, town: Path) -> Iterator[str]:
    """An application that has the console in it."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--port", str(port), "--log-level", "warning", target]
    with (town / "uvicorn.log").open("w") as log:
        running = subprocess.Popen(command, env=environment(town), stdout=log, stderr=log)
    try:
        until(lambda: _listens(port), "it answers")
        yield f"http://127.0.0.1:{port}/"
    finally:
        running.terminate()
        running.wait(20)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


@contextmanager
def _worker(town: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "posthouse", "run", "tests.integration.console.town:app"]
    with (town / "worker.log").open("w") as log:
        running = subprocess.Popen(command, env=environment(town), stdout=log, stderr=log)
    try:
        yield
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(20)
