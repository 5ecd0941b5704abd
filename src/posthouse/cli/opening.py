"""Opening: services whose stores may be read, for commands that look or mend but do not run anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from posthouse.app import app_of
from posthouse.errors import StoreOutdated
from posthouse.service import Service


@asynccontextmanager
async def opened(services: Sequence[Service]) -> AsyncIterator[None]:
    """Stores with their tables in place; the services' own set-up functions are not run. Closed at the end."""
    try:
        for service in services:
            await _bring_up(service)
        yield
    finally:
        for service in services:
            await service.aclose()


async def _bring_up(service: Service) -> None:
    pending = await app_of(service).store.pending_migrations()
    if pending and not app_of(service).store.embedded:
        raise StoreOutdated(f"the store of {service.name} lacks {', '.join(pending)}: run `posthouse db upgrade`")
    if pending:
        await app_of(service).store.upgrade()
    await app_of(service).projections.learn()
