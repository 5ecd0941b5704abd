"""Asking: what is read on one event loop, for whoever asks on another. Asking often costs no more than asking once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

T = TypeVar("T")

FRESH = 1.0
"""Seconds for which a reading is good."""
WITHIN = 8.0
"""Seconds that one may take, and that one who asks waits for it: Prometheus gives a scrape ten, unless told otherwise."""

LAST_WORDS = 1.0
"""Seconds for one that is given up to end."""


class Unanswered(Exception):
    """Nothing was read in time."""


class Asked(Generic[T]):
    """A reading on the loop `there`: at most one at a time, and one a second. Its errors are kept as long as its results."""

    def __init__(
        self,
        read: Callable[[], Coroutine[object, object, T]],
        there: asyncio.AbstractEventLoop,
        *,
        within: float = WITHIN,
    ) -> None:
        self._read = read
        self._there = there
        self._within = within
        self._reading: asyncio.Future[T] | None = None
        self._task: asyncio.Task[object] | None = None
        self.at = 0.0
        """When the last reading ended, by the clock that never goes back."""

    async def latest(self) -> T:
        """What was read last, or is read now. Raises what the reading raised, and Unanswered after a while: then the loop hangs,
        or whoever is asked does."""
        reading = self._reading
        if reading is None or (reading.done() and time.monotonic() - self.at > FRESH):
            reading = self._begin()
        await asyncio.wait([reading], timeout=self._within)
        if not reading.done():
            raise Unanswered(f"nothing was read within {self._within:g} s")
        if reading.cancelled():
            raise Unanswered("nothing is read any more: this process ends")
        return reading.result()

    async def aclose(self) -> None:
        """Give up what is being read. Call it on the loop where that is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=LAST_WORDS)

    def _begin(self) -> asyncio.Future[T]:
        reading = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._bounded(), self._there))
        reading.add_done_callback(self._over)
        self._reading = reading
        return reading

    def _over(self, reading: asyncio.Future[T]) -> None:
        self.at = time.monotonic()
        if not reading.cancelled():
            reading.exception()  # it is told to whoever asked, if anybody still waits

    async def _bounded(self) -> T:
        self._task = asyncio.current_task()
        try:
            async with asyncio.timeout(self._within):
                return await self._read()
        except TimeoutError as error:
            raise Unanswered(f"nothing was read within {self._within:g} s") from error
        finally:
            self._task = None
