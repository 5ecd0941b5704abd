"""Heartbeat: a worker's sign of life in its store, every few seconds, with what it timed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from posthouse.clock import Clock
from posthouse.errors import StoreError
from posthouse.outage import Waiting
from posthouse.pulse import Pulse
from posthouse.seam import Timing
from posthouse.store import CoreStore, Worker
from posthouse.store.workers import Aside

log = logging.getLogger("posthouse.heartbeat")

BEAT = 5.0
"""Seconds between two signs of life; the figures go with every second one."""

SILENT = 4 * BEAT
"""Seconds without one after which a worker counts as gone."""

PATIENCE = 10.0
"""Seconds that the store has to take one; after that it is away for this process, though its connection may say nothing for long."""

KEEP = 86_400.0
"""Seconds for which those who are gone are remembered."""


class Heartbeat:
    """Of one run. Whoever cannot reach the store gives no sign: the loops beside it complain about that."""

    def __init__(self, store: CoreStore, clock: Clock, timing: Timing, worker: Worker) -> None:
        self._store = store
        self._clock = clock
        self._timing = timing
        self._worker = worker
        self.pulse = Pulse()
        self._asked: tuple[float, float] | None = None
        """When the first sign was to be taken that was not, by the clock and by the one that never goes back."""

    @property
    def silence(self) -> Waiting | None:
        """Since when the store has taken no sign of life, if that is longer than it may be."""
        if self._asked is None or self._clock.monotonic() - self._asked[1] <= PATIENCE:
            return None
        return Waiting(self._asked[0], f"it has taken no sign of life for more than {PATIENCE:g} s")

    async def beat(self, aside: Mapping[str, Aside]) -> None:
        """A sign of life at once, with those sagas that are not run here, and why. Raises StoreError."""
        self._worker = msgspec.structs.replace(self._worker, aside=aside)
        await self._store.workers.beat(self._worker, keep=KEEP)

    async def run(self, stop: asyncio.Event) -> None:
        """Beat until `stop`."""
        with_figures = False
        while True:
            try:
                if self._asked is None:
                    self._asked = self._clock.now(), self._clock.monotonic()
                with self.pulse.doing("giving a sign of life"):
                    figures = self._timing.encoded() if with_figures else None
                    await self._store.workers.beat(self._worker, keep=KEEP, figures=figures)
                self._asked = None
            except StoreError as error:
                log.debug("no sign of life: %s", error)
            with_figures = not with_figures
            if await self._clock.wait(stop, BEAT):
                return

    async def end(self) -> None:
        """Say that it stopped in good order, with the last figures. Raises StoreError."""
        await self._store.workers.beat(self._worker, keep=KEEP, figures=self._timing.encoded(), stopped=True)
