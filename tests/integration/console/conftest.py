"""A console over the town in a process of its own, and a browser that looks at it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from tests.kit.interface import STATIC
from tests.kit.servers.chromium import browser

TARGET = "tests.integration.console.town:app"
expect.set_options(timeout=30_000)  # a busy machine needs some of it
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\S*")


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """For one module at a time: while it drives a browser, no other event loop can run in this process."""
    assert (STATIC / "index.html").exists() or list(STATIC.glob("*.js")), "build it: cd console && npm run build"
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The town once, for tests to copy."""
    folder = tmp_path_factory.mktemp("town")
    command = [sys.executable, "-m", "tests.integration.console.town"]
    subprocess.run(command, env=environment(folder), check=True, capture_output=True, timeout=60)
    return folder


class Door(NamedTuple):
    """Where a console is, and what a browser keeps that was let in: a link is good for one of them."""

    address: str
    kept: StorageState


@pytest.fixture(scope="module")
def looked_at(chrome: Browser, filled: Path) -> Iterator[Door]:
    """A console over it, for tests that press nothing."""
    with console_at(filled) as link:
        yield let_in(chrome, link)


@pytest.fixture
def town(filled: Path, tmp_path: Path) -> Path:
    """A town of one's own, to change."""
    return Path(shutil.copytree(filled, tmp_path / "town"))


@contextmanager
def console_at(folder: Path, port: int = 0) -> Iterator[str]:
    """The address that it prints, with the token."""
    command = [sys.executable, "-m", "posthouse", "console", TARGET, "--http", f"127.0.0.1:{port}"]
    said = folder / "console.log"
    with said.open("w") as log:
        serving = subprocess.Popen(command, env=environment(folder), stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert serving.stdout is not None
        for line in serving.stdout:
            if found := ADDRESS.search(line):
                yield found[0]
                return
        pytest.fail(f"no address was printed: {said.read_text()}")
    finally:
        serving.terminate()
        serving.communicate(timeout=15)


def let_in(chrome: Browser, link: str) -> Door:
    """By the link that the console printed."""
    context = chrome.new_context()
    try:
        page = context.new_page()
        page.goto(link)
        page.get_by_role("heading", name="Home").wait_for()
        return Door(link.partition("#")[0], context.storage_state())
    finally:
        context.close()


@contextmanager
def signed_in(chrome: Browser, door: Door, *, dark: bool = False, width: int = 1440) -> Iterator[Page]:
    """A page of a new browser's, at the console's home. Whatever a page complains about fails the test."""
    context = chrome.new_context(
        storage_state=door.kept,
        color_scheme="dark" if dark else "light",
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
        bypass_csp=True,  # axe needs it; what the page may do is tried elsewhere
    )
    complaints: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    page.on("console", lambda said: complaints.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    try:
        page.goto(door.address)
        page.get_by_role("main").get_by_role("heading", level=1).wait_for()
        yield page
    finally:
        context.close()
    assert complaints == []


def environment(folder: Path) -> dict[str, str]:
    """Of a process that is in the town."""
    return {**os.environ, "TOWN": str(folder), "PYTHONUNBUFFERED": "1"}
