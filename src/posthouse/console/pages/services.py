"""Services: which ones this console looks at."""

from __future__ import annotations

from posthouse.console.asking import Ask


async def services(ask: Ask) -> object:
    """Their names and owners."""
    return {"items": [{"name": one.name, "owner": one.owner or ""} for one in ask.estate.services.values()]}


PAGES = {"/services": services}
