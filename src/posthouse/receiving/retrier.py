"""Retrier: runs held events when their time has come, in the order of their keys."""

from __future__ import annotations

import asyncio
import logging

from posthouse.clock import Clock
from posthouse.errors import StoreError
from posthouse.receiving.applying import Applier

log = logging.getLogger("posthouse.held")

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
        stirred = self._applier.stirred
        waking = asyncio.create_task(_set_after(stop, stirred))
        try:
            while not stop.is_set():
                stirred.clear()
                try:
                    wait = 0.0 if await self.step() else await self._until_next()
                except StoreError as error:
                    log.warning("%s: held events wait for the store: %s", self._applier.consumer, error)
                    wait = LOOK
                if wait > 0 and not stop.is_set():
                    await self._clock.wait(stirred, wait)
        finally:
            waking.cancel()

    async def step(self) -> bool:
        """Run the event that is due first; False when none is. One at a time: a claim counts as a run, so nothing is
        claimed that might have to wait."""
        applier, now = self._applier, self._clock.now()
        self.idle = False
        try:
            due = await applier.store.held.claim_due(applier.consumer, now, 1, self._visibility)
            for event in due:
                await applier.retry(event)
        finally:
            self.idle = True
        return bool(due)

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
        """Seconds to wait. Nothing was due just now, so what lies in the past is a gap, and was alarmed."""
        await self._alarm()
        due = await self._applier.store.held.next_due(self._applier.consumer)
        left = LOOK if due is None else due - self._clock.now()
        return min(left, LOOK) if left > 0 else LOOK


async def _set_after(first: asyncio.Event, then: asyncio.Event) -> None:
    await first.wait()
    then.set()
