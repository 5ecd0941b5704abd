"""Beat: the sign that an event loop turns, and what it said of the health of its Apps then. It may be read in any thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from posthouse.health import Health

log = logging.getLogger("posthouse.watch")

EVERY = 0.5
"""Seconds between two beats."""


class Seen(NamedTuple):
    """`silent`: for so many seconds the loop has not turned. `health`: what the Apps said when it did last, by name."""

    silent: float
    health: Mapping[str, Health]


class Beat:
    """Of the loop that `beating` is called on."""

    def __init__(self, health: Callable[[], Mapping[str, Health]]) -> None:
        self._health = health
        self._last: tuple[float, Mapping[str, Health]] = (time.monotonic(), {})

    def seen(self) -> Seen:
        """As it is now. A beat that is due is not silence."""
        at, health = self._last
        return Seen(max(0.0, time.monotonic() - at - EVERY), health)

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Beat while the block lasts."""
        beating = asyncio.create_task(self._beat(), name="posthouse beat")
        try:
            yield
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            health = self._last[1]
            try:
                health = self._health()
            except Exception:  # the loop turns all the same
                log.exception("nobody knows how it is")
            self._last = (time.monotonic(), health)
            await asyncio.sleep(EVERY)
