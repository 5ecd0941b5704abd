"""Retrier: runs held events when their time has come, in the order of their keys."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from posthouse.clock import Clock
from posthouse.errors import StoreError
from posthouse.outage import Outages
from posthouse.pulse import Pulse
from posthouse.receiving.executor import Executor
from posthouse.seam import Failure, during
from posthouse.seam.masking import words_here
from posthouse.store import HeldEvent

log = logging.getLogger("posthouse.held")

LOOK = 1.0
"""Seconds between two looks for what other processes and operators changed."""
LEASE = 15.0
"""For at most so many seconds is an event hidden that somebody runs, unless they say that they still do: what a dead process had
in hand comes again then, however long its handler might have taken."""


class Run(NamedTuple):
    """An event in hand, and when its run must be over, by the monotonic clock."""

    event: HeldEvent
    until: float


class Retrier:
    """The second way into the handlers of one consumer. Any number of processes may run one.

    Events of different keys run side by side, on up to half of the store's transactions: after a crash all that was in
    flight comes this way. A claim counts as a run, so nothing is claimed that would have to wait for its turn. Claims are
    renewed while their runs take no longer than they may: whoever hangs does not hide an event for ever.
    """

    def __init__(self, executor: Executor, clock: Clock, outages: Outages | None = None) -> None:
        self.name = f"{executor.consumer}, held"
        self._outages = outages or Outages(clock)
        self._executor = executor
        self._clock = clock
        self._alarmed: set[int] = set()
        self._most = max(1, executor.workers // 2)
        self._running: dict[asyncio.Task[None], Run] = {}
        self._claiming = False
        self.pulse = Pulse()
        self._missed = False
        """Whether the last look found something due that could not be had."""
        deadlines = [
            handler.policy.deadline * (1 if handler.calling is None else 2) for handler in executor.handlers.values()
        ]
        self._longest = max(deadlines, default=0.0) + 5.0
        self._visibility = min(LEASE, self._longest)

    @property
    def idle(self) -> bool:
        """Nothing is being run or about to be."""
        return not self._running and not self._claiming

    async def run(self, stop: asyncio.Event) -> None:
        """Retry until `stop`; what runs then is finished."""
        due = self._executor.due
        waking = asyncio.create_task(_set_after(stop, due))
        keeping = asyncio.create_task(self._keep_claims())
        try:
            while not stop.is_set():
                due.clear()
                asked = self._clock.monotonic()
                wait = await self._look() - (self._clock.monotonic() - asked)  # time went on while it answered
                if wait > 0 and not stop.is_set():
                    await self._clock.wait(due, wait)
        except asyncio.CancelledError:
            for task in self._running:
                task.cancel()
            raise
        finally:
            self._outages.left(self.name)
            waking.cancel()
            try:
                if self._running:
                    await asyncio.wait(self._running)
            finally:
                keeping.cancel()

    async def step(self) -> bool:
        """Run the event that is due first, to its end; False when none is."""
        event = await self._begin()
        if event is not None:
            await asyncio.wait([event])
        return event is not None

    async def _look(self) -> float:
        """Begin the event that is due first; returns the seconds to wait after that, if nobody stirs before."""
        if len(self._running) >= self._most:
            return LOOK  # whoever is done stirs
        try:
            with self.pulse.doing("looking for held events"):
                wait = 0.0 if await self._begin() else await self._until_next()
            self._outages.answered(self.name)
            return wait
        except StoreError as error:
            self._outages.failed(self.name, error)
            return LOOK

    async def _begin(self) -> asyncio.Task[None] | None:
        executor = self._executor
        self._claiming = True
        try:
            due = await executor.store.held.claim_due(executor.consumer, 1, self._visibility)
            if not due:
                return None
            self._missed = False
            task = asyncio.create_task(self._retry(due[0]))
            self._running[task] = Run(due[0], self._clock.monotonic() + self._longest)
            task.add_done_callback(self._ended)
            return task
        finally:
            self._claiming = False

    async def _retry(self, event: HeldEvent) -> None:
        try:
            with self.pulse.doing("running a held event", longer=self._longest):
                await self._executor.retry(event)
        except StoreError as error:
            self._outages.failed(self.name, error)
        except Exception as error:
            with during(self._executor.concerning(event)):
                self._report(event, error)

    def _report(self, event: HeldEvent, error: Exception) -> None:
        """Nobody foresaw this one: the event is there again when its claim is over."""
        entry = event.entry
        self._executor.seam.failures.report(
            Failure(
                error=error,
                reason=words_here(error),
                outcome="retry",
                consumer=event.consumer,
                event_type=event.type,
                event_id=entry.event_id,
                topic=entry.topic,
                tenant=entry.tenant,
                key=entry.key,
                attempt=event.attempts,
                next_at=self._clock.now() + self._visibility,
            )
        )

    async def _keep_claims(self) -> None:
        while True:
            await self._clock.wait(asyncio.Event(), self._visibility / 3)
            ended = self._clock.monotonic()
            kept = [run.event for run in self._running.values() if ended < run.until]
            try:
                if kept:
                    with self.pulse.doing("keeping held events from others"):
                        await self._executor.store.held.keep(kept, self._visibility)
            except StoreError as error:
                self._outages.failed(self.name, error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The next one of its key may be due now."""
        self._running.pop(task, None)
        self._executor.due.set()

    async def _alarm(self) -> None:
        """Say once per process that a number is missing for too long; of very many, those first that have waited longest."""
        overdue = await self._executor.store.held.overdue_gaps(self._executor.consumer)
        told, self._alarmed = self._alarmed, {gap.id for gap in overdue}
        for gap in overdue:
            if gap.id not in told:
                with during(self._executor.concerning(gap)):
                    log.error(
                        "%s: key %s of %s has waited %.0f s for a number before %s that never came: see `posthouse held show TARGET %d`",
                        gap.consumer, gap.entry.key, gap.entry.topic, gap.next_at - gap.first_at, gap.entry.sequence, gap.id,
                    )  # fmt: skip

    async def _look_for_strays(self) -> None:
        """A hand that moves an event to a key or a number whose turn never comes is not to hide it."""
        executor = self._executor
        if executor.seam.seals is not None:
            for stray in await executor.store.held.strays(executor.consumer):
                await executor.refuse_stray(stray)

    async def _until_next(self) -> float:
        """Seconds to wait. Nothing was to be had when it was last looked: what became due since then is not to wait for the
        next look, and what somebody else holds is."""
        await self._alarm()
        await self._look_for_strays()
        seconds = await self._executor.store.held.next_due(self._executor.consumer)
        if seconds is None:
            return LOOK
        if seconds > 0:
            return min(seconds, LOOK)
        self._missed = not self._missed
        return 0.0 if self._missed else LOOK


async def _set_after(first: asyncio.Event, then: asyncio.Event) -> None:
    await first.wait()
    then.set()
