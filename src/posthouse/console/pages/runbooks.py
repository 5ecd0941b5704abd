"""Runbooks: the pages that alerts and troubles lead to, as they are in the wheel."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.console.asking import Ask, Page, Refusal
from posthouse.errors import did_you_mean
from posthouse.watch.alerts import runbooks

START = "README"
"""The page that is about all of them."""


def pages() -> Mapping[str, str]:
    """Their Markdown, by name without its ending."""
    return {name.removesuffix(".md"): text for name, text in runbooks().items()}


async def listed(ask: Ask) -> object:
    """All of them by title, and what is said before them."""
    found = pages()
    return {
        "text": found[START],
        "pages": [{"page": name, "title": _title(found[name])} for name in found if name != START],
    }


async def one(ask: Ask) -> object:
    """One of them."""
    found, name = pages(), ask.path["page"]
    if name not in found:
        raise Refusal(404, f"No runbook is called {name[:60]!r}.{did_you_mean(name, found)}")
    return {"page": name, "title": _title(found[name]), "text": found[name]}


def _title(text: str) -> str:
    return text.splitlines()[0].lstrip("# ")


PAGES: Mapping[str, Page] = {"/runbooks": listed, "/runbooks/{page}": one}
