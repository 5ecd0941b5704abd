"""Opening: services whose stores may be read, for commands that look or mend but do not run anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from posthouse.app import apps_of
from posthouse.service import Service


@asynccontextmanager
async def opened(services: Sequence[Service]) -> AsyncIterator[None]:
    """Stores that are there, with their tables: none is made by looking. The services' own set-up functions are not run. Closed
    at the end."""
    apps = apps_of(services)
    try:
        for app in apps:
            await app.opened.look()
        yield
    finally:
        for app in apps:
            await app.aclose()
