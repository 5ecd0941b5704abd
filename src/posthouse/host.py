"""Who runs a service: as much of the App as a service hands on to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from posthouse.health import Health
from posthouse.receiving import HeldEvents
from posthouse.runtime import PARTS, Part
from posthouse.seam import EnvelopeBuilder, EventContext
from posthouse.sending.transaction import Begun
from posthouse.store import Parameters, RelaySource, Store


class Transactions(Protocol):
    """Transactions for a service, by its name."""

    def begin(self, service: str, context: EventContext) -> Awaitable[Begun]: ...

    def join(self, service: str, theirs: object, context: EventContext) -> Awaitable[Begun]: ...

    async def record(
        self, service: str, context: EventContext, sql: str, parameters: Parameters, facts: Sequence[object]
    ) -> bool: ...

    def writes(self, service: str) -> tuple[Store, EnvelopeBuilder]: ...


class Host(Protocol):
    """The App."""

    @property
    def opened(self) -> Transactions: ...

    @property
    def store(self) -> Store: ...

    @property
    def held(self) -> HeldEvents: ...

    async def run(
        self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None, stop: asyncio.Event | None = None
    ) -> None: ...

    def running(
        self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None
    ) -> AbstractAsyncContextManager[None]: ...

    def health(self) -> Health: ...

    async def aclose(self) -> None: ...
