"""Retrier: runs held events when their time has come, in the order of their keys."""

from __future__ import annotations

import asyncio
import logging

from posthouse.clock import Clock
from posthouse.errors import StoreError
from posthouse.receiving.applying import Applier

log = logging.getLogger("posthouse.held")

BATCH = 100
LOOK = 1.0
"""Seconds between two looks for what other processes and operators changed."""


class Retrier:
    """The second way into the handlers of one consumer. Any number of processes may run one."""

    def __init__(self, applier: Applier, clock: Clock) -> None:
        self._applier = applier
        self._clock = clock
        self._alarmed: set[int] = set()
        self.idle = True
        deadlines = [handler.policy.deadline for handler in applier.handlers.values()]
        self._visibility = max(deadlines, default=0.0) + 5.0

    async def run(self, stop: asyncio.Event) -> None:
        """Retry until `stop`."""
        waking = asyncio.create_task(self._wake_to(stop))
        try:
            while not stop.is_set():
                self._applier.stirred.clear()
                try:
                    moved = await self.step(stop)
                    wait = 0.0 if moved else await self._until_next()
                except StoreError as error:
                    log.warning("%s: held events wait for the store: %s", self._applier.consumer, error)
                    wait = LOOK
                if wait > 0 and not stop.is_set():
                    await self._clock.wait(self._applier.stirred, wait)
        finally:
            waking.cancel()

    async def _wake_to(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._applier.stirred.set()

    async def step(self, stop: asyncio.Event | None = None) -> int:
        """Run what is due now; returns how many events that were."""
        applier = self._applier
        self.idle = False
        try:
            for done in range(BATCH):
                if stop is not None and stop.is_set():
                    return done
                # One at a time: an attempt is counted when it is claimed, and only what runs may count.
                due = await applier.store.held.claim_due(applier.consumer, self._clock.now(), 1, self._visibility)
                if not due:
                    await self._alarm()
                    return done
                await applier.retry(due[0])
        finally:
            self.idle = True
        return BATCH

    async def _alarm(self) -> None:
        """Say once per process that a number is missing for too long."""
        now = self._clock.now()
        for gap in await self._applier.store.held.overdue_gaps(self._applier.consumer, now):
            if gap.id not in self._alarmed:
                self._alarmed.add(gap.id)
                log.error(
                    "%s: key %s of %s waits since %.0f s for a number before %s that never came: see `posthouse held show %d`",
                    gap.consumer, gap.arrival.key, gap.arrival.topic, now - gap.first_at, gap.arrival.sequence, gap.id,
                )  # fmt: skip

    async def _until_next(self) -> float:
        """Nothing was due just now, so what lies in the past is a gap that was alarmed already."""
        due = await self._applier.store.held.next_due(self._applier.consumer)
        left = LOOK if due is None else due - self._clock.now()
        return min(left, LOOK) if left > 0 else LOOK
