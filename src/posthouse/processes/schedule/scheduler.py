"""Scheduler: begins the runs of schedules when their moments have come. Any number of processes may have one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from posthouse.clock import Clock
from posthouse.errors import CommitUnknown, StoreError, StoreFull, StoreUnavailable
from posthouse.outage import Outages
from posthouse.processes.schedule.cron import AT_ONCE, Cron, due
from posthouse.processes.schedule.schedule import PLATFORM, Schedule
from posthouse.pulse import Pulse
from posthouse.seam import EnvelopeBuilder, EventContext
from posthouse.sending import Tx
from posthouse.store import Store
from posthouse.store.schedules import ScheduleRow

log = logging.getLogger("posthouse.schedules")

LOOK = 1.0
"""Seconds between two looks at schedules that operators and other processes change."""
HELD_UP = 0.05
"""Seconds before the next try to begin what is due while somebody else has it in hand."""
AGAIN = 10.0
"""Seconds until a schedule is tried again whose moment could not be dealt with."""
SEEN = 45.0
"""Seconds after which nobody has an expression any more that nobody said to have."""

Key = tuple[str, str]


class Scheduler:
    """A moment is dealt with in one transaction: the row is locked, its runs are said, and it moves to the next moment. Whoever
    finds it locked leaves it to the other; a crash leaves it as it was.

    Rows are run as they are: by the expression that was adopted last. A process that has another one adopts it when it
    starts, and later only when no other process has had the row's for a while; so two releases beside each other agree, and
    the one that stays wins. A moment that has come is dealt with before."""

    def __init__(
        self,
        schedules: Sequence[Schedule],
        store: Store,
        builders: Mapping[str, EnvelopeBuilder],
        clock: Clock,
        outages: Outages | None = None,
    ) -> None:
        self._schedules = {(schedule.service, schedule.name): schedule for schedule in schedules}
        self._store = store
        self._builders = builders
        self._clock = clock
        self._outages = outages or Outages(clock)
        self._adopted: set[Key] = set()
        self._resting: dict[Key, float] = {}
        """Those that failed, until when they rest by the monotonic clock."""
        self.looked = False
        """Whether it has looked at all of them since it began."""
        self.pulse = Pulse()

    async def run(self, stop: asyncio.Event) -> None:
        """Begin runs until `stop`."""
        while not stop.is_set():
            try:
                wait = await self.look()
                self._outages.answered("schedules")
            except StoreError as error:
                self._outages.failed("schedules", error)
                wait = LOOK
            await self._clock.wait(stop, wait)
        self._outages.left("schedules")

    async def look(self) -> float:
        """Deal with all that is due; in how many seconds to look again."""
        with self.pulse.doing("looking at schedules"):
            rows = {(row.service, row.name): row for row in await self._store.schedules.find()}
        waits, away = [LOOK], None
        for key, schedule in self._schedules.items():
            if self._resting.get(key, 0.0) > self._clock.monotonic():
                continue
            try:
                waits.append(await self._deal(key, schedule, rows.get(key)))
                self._resting.pop(key, None)
            except (
                StoreUnavailable,
                StoreFull,
                CommitUnknown,
            ) as error:  # perhaps for this one alone: the others have their turn
                away = error
            except Exception:
                log.exception("%s: the schedule %s could not begin a run, and tries again", *key)
                self._resting[key] = self._clock.monotonic() + AGAIN
        if away is not None:
            raise away
        self.looked = True
        return max(min(waits), 0.0)

    async def moments(self) -> list[float]:
        """When runs have to begin next; of one that failed, when it is tried again."""
        later = self._clock.now() - self._clock.monotonic()
        rows = await self._store.schedules.find()
        running = {(row.service, row.name): row.next_at for row in rows if row.paused_at is None}
        resting = {key: until + later for key, until in self._resting.items()}
        return [at for key, at in (running | resting).items() if key in self._schedules]

    async def _deal(self, key: Key, schedule: Schedule, row: ScheduleRow | None) -> float:
        """Begin what is due of one schedule, or adopt it; in how many seconds it has to be looked at again."""
        if row is not None and row.paused_at is None and row.due_in <= 0:
            with self.pulse.doing(f"beginning {schedule.name}"):
                return 0.0 if await self._fire(schedule) else HELD_UP
        if row is None or key not in self._adopted or row.now - row.seen_at > SEEN / 3:
            with self.pulse.doing(f"adopting {schedule.name}"):
                return 0.0 if await self._adopt(key, schedule) else LOOK
        return row.due_in if row.paused_at is None else LOOK

    async def _fire(self, schedule: Schedule) -> bool:
        """Begin what is due; False when somebody else has it in hand."""
        table = self._store.schedules
        builder = self._builders[schedule.service]
        async with builder.seam.transaction(schedule.service, self._store.begin()) as transaction:
            row = await table.lock(transaction, schedule.service, schedule.name, due=True)
            if row is None:
                return False
            tx = Tx(transaction, self._store, builder, EventContext(tenant=PLATFORM), self._clock)
            try:
                tenants = await schedule.whom(tx)
                most = max(1, AT_ONCE // max(1, len(tenants)))
                found = due(Cron(row.expression, row.tz), row.next_at, row.now, schedule.missed, most)
                schedule.begin(tx, found.moments, tenants, missed=found.missed)
                last_at = found.moments[-1] if found.moments else row.last_at
                await table.save(transaction, replace(row, next_at=found.next_at, last_at=last_at))
                await tx.finish()
            finally:
                tx.close()
        if found.missed:
            done = "one run stands for them" if found.moments else "they are skipped"
            log.warning("%s: the schedule %s missed %d: %s", schedule.service, schedule.name, found.missed, done)
        return True

    async def _adopt(self, key: Key, schedule: Schedule) -> bool:
        """Say that this process has the schedule; where the row has another expression, perhaps with ours: those who had the other are
        gone, and what has come since then is ours. False while they may be there."""
        table, cron = self._store.schedules, schedule.cron
        async with self._store.begin() as tx:
            row = await table.lock(tx, *key)
            if row is None:
                now = await self._store.timers.now(tx)
                fresh = ScheduleRow(
                    service=schedule.service,
                    name=schedule.name,
                    expression=cron.expression,
                    tz=cron.tz,
                    next_at=cron.after(now),
                    seen_at=now,
                )
                await table.add(tx, fresh)
            elif (row.expression, row.tz) == (cron.expression, cron.tz):
                await table.save(tx, replace(row, seen_at=row.now))
            elif row.paused_at is None and row.due_in <= 0:
                return True
            elif key not in self._adopted or row.now - row.seen_at > SEEN:
                since = row.seen_at if key in self._adopted else max(row.now, row.last_at or 0.0)
                await table.save(
                    tx,
                    replace(row, expression=cron.expression, tz=cron.tz, next_at=cron.after(since), seen_at=row.now),
                )
                log.info("%s: the schedule %s is %r (%s) now", *key, cron.expression, cron.tz)
            else:
                return False
            self._adopted.add(key)
            return True
