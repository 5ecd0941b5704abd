"""Catalogue: what the services of an estate declare, read once for as long as they are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from posthouse.console.estate import Estate
from posthouse.governance.document import Document
from posthouse.governance.listing import catalogue_of
from posthouse.service import Service


class Catalogue:
    """A part of an estate. Schemas and the sources of sagas are read for it, which takes a moment for many services."""

    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        self._read: tuple[Sequence[Service], Document] | None = None
        self._lock = asyncio.Lock()

    async def document(self) -> Document:
        """Everything that they declare."""
        async with self._lock:
            services = list(self._estate.services.values())
            if self._read is None or self._read[0] != services:
                self._read = services, await asyncio.to_thread(catalogue_of, services)
            return self._read[1]

    async def aclose(self) -> None:
        self._read = None
