"""Published: contracts that another release has published, fetched when an event names a schema that is not known here.

Only from the one place that was configured, one fetch at a time, at most one in ten seconds; what comes is known by its hash, and
by a signature where signatures are on. What is away is waited for: an event is held meanwhile, and no run of it is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from posthouse.clock import Clock
from posthouse.contracts.release import LATEST, Pointer, lock_of, pointer_in, unpacked
from posthouse.errors import AuditUnavailable, ConfigurationError, ContractsUnavailable
from posthouse.history.audit.place import open_place
from posthouse.redaction import redacted
from posthouse.seam.schema_guard import SchemaGuard, SchemaUnknown

log = logging.getLogger("posthouse.contracts")

PAUSE = 10.0
"""Seconds between two fetches, whatever asks for them."""
WITHIN = 15.0
"""Seconds for a whole fetch, however slowly it comes."""
PATIENCE = 120.0
"""Seconds for which an event waits for a schema that the place does not have, though it has others of its version."""
WEB = ("http", "https")

Prove = Callable[[Pointer], str]
"""Why a pointer is not to be believed; empty when it is."""


class Source(Protocol):
    """Where contracts are published. Blocking: called in a thread."""

    name: str

    def get(self, path: str) -> bytes | None:
        """A file; None where there is none. Raises AuditUnavailable."""
        ...


class Published:
    """What one process knows of one place."""

    def __init__(self, source: Source, clock: Clock, prove: Prove | None = None) -> None:
        self._source = source
        self._clock = clock
        self._prove = prove
        self._pointer: Pointer | None = None
        self._fetching = asyncio.Lock()
        self._asked_at: float | None = None
        self._failed = ""
        self.guards: list[SchemaGuard] = []
        """All who learn what comes."""
        self.fetched = 0
        """How often the place was asked."""

    async def learn(self, unknown: SchemaUnknown, waited: float) -> None:
        """Have whoever did not know a schema know it, or know that there is none: then it is asked no more for a while. Raises
        ContractsUnavailable while that cannot be told: the event waits. `waited`: for how many seconds it has already."""
        async with self._fetching:
            await self._fetch()
        if unknown.guard.knows(unknown.place, unknown.content_hash) is False and waited < PATIENCE:
            raise ContractsUnavailable(
                f"its schema {unknown.content_hash} is not among the contracts in {self._source.name} yet: it waits "
                f"{PATIENCE:.0f} s for them to be published"
            )
        unknown.guard.asked(unknown.place, unknown.content_hash)

    async def _fetch(self) -> None:
        now = self._clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < PAUSE:
            if self._failed:
                raise ContractsUnavailable(self._failed)
            return
        self._asked_at = now
        self.fetched += 1
        try:
            async with asyncio.timeout(WITHIN):
                await asyncio.to_thread(self._look)
            self._failed = ""
        except (AuditUnavailable, ConfigurationError, TimeoutError) as error:
            why = self._words(error) or f"no whole answer within {WITHIN:.0f} s"
            self._failed = f"the contracts in {self._source.name} cannot be had: {why}"
            log.warning("%s; next try in %.0f s", self._failed, PAUSE)
            raise ContractsUnavailable(self._failed) from error

    def _words(self, error: Exception) -> str:
        return redacted(str(error)).removeprefix(f"the audit log in {self._source.name}: ")

    def _look(self) -> None:
        found = self._source.get(LATEST)
        if found is None:
            raise ConfigurationError(f"there is no {LATEST}: `posthouse catalog bundle --to` publishes one")
        pointer, known = pointer_in(found), self._pointer
        if self._prove is not None and (why := self._prove(pointer)):
            raise ConfigurationError(f"{LATEST} is not believed: {why}")
        if known is not None and pointer.at < known.at:
            raise ConfigurationError(f"{LATEST} is older than what was seen there before: somebody put it back")
        if known is not None and pointer.bundle == known.bundle:
            return
        data = self._source.get(pointer.path)
        if data is None or len(data) != pointer.size:
            raise ConfigurationError(f"{pointer.path} is not there, or not whole")
        lock = lock_of(unpacked(data, pointer.bundle))
        for guard in self.guards:
            guard.learn(lock)
        self._pointer = pointer
        log.info("contracts %s fetched from %s: %d schemas", pointer.bundle[:19], self._source.name, len(lock.schemas))


def source_at(url: str) -> Source:
    """A folder, a bucket, or files of a web server. Raises ConfigurationError."""
    if urlsplit(url).scheme in WEB:
        from posthouse.local.web import Web  # what speaks HTTP, for whoever has a place there

        return Web(url)
    return open_place(url)
