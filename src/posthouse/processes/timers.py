"""Timers: facts that are said later. A due row moves into the outbox, exactly once."""

from __future__ import annotations

import asyncio

from posthouse.clock import Clock
from posthouse.errors import StoreError
from posthouse.outage import Outages
from posthouse.pulse import Pulse
from posthouse.store import Store
from posthouse.store.timers import Append

BATCH = 200
LOOK = 1.0
"""Seconds between two looks for timers that other processes set."""
HELD_UP = 0.05
"""Seconds before the next try to fire timers that are due while somebody is changing them, or holds their keys."""


class Timers:
    """One scheduler. Any number of processes may run one: the store lets each timer fire once."""

    def __init__(
        self, store: Store, clock: Clock, outages: Outages | None = None, append: Append | None = None
    ) -> None:
        self._append = append
        self._outages = outages or Outages(clock)
        self._store = store
        self._clock = clock
        self.pulse = Pulse()

    async def run(self, stop: asyncio.Event) -> None:
        """Fire until `stop`."""
        while not stop.is_set():
            asked = self._clock.monotonic()
            try:
                with self.pulse.doing("firing timers"):
                    wait = 0.0 if await self._fire() else await self._until_next()
                self._outages.answered("timers")
            except StoreError as error:
                self._outages.failed("timers", error)
                wait = LOOK
            wait -= self._clock.monotonic() - asked  # time went on while it answered
            if wait > 0:
                await self._clock.wait(stop, wait)
        self._outages.left("timers")

    async def _fire(self) -> int:
        timers = self._store.timers
        return await (timers.fire(BATCH) if self._append is None else timers.fire(BATCH, self._append))

    async def _until_next(self) -> float:
        seconds = await self._store.timers.next_due()
        if seconds is None:
            return LOOK
        return min(seconds, LOOK) if seconds > 0 else HELD_UP
