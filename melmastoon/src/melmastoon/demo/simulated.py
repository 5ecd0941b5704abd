"""A world of processes on files, whose time stands still while anything is in flight."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from melmastoon.demo.clock import SharedClock
from melmastoon.demo.ground import Ground
from melmastoon.demo.heirs import free, hidden_for
from melmastoon.demo.processes import Fleet
from melmastoon.demo.stillness import LogReading, Watcher
from posthouse import PosthouseError, Service

LOOK = 0.004
"""Real seconds between two looks at the files."""
PATIENCE = 180.0
"""Real seconds for things to settle before something must be wrong."""
STUCK = 2.0
"""Real seconds after which whoever waits on the clock for a second try, because a file was busy, is given a moment of it."""
MOMENT = 0.5
"""That moment, in seconds of the clock: too short for any deadline."""


class Simulated:
    """Processes are killed at moments that a seed decides, while there is work in flight, and started again at once."""

    def __init__(
        self,
        ground: Ground,
        clock: SharedClock,
        services: Sequence[Service],
        groups: Mapping[str, Sequence[Service]],
        *,
        seed: int,
        killing: float,
    ) -> None:
        self._ground = ground
        self._clock = clock
        self._services = {service.name: service for service in services}
        self._fleet = Fleet(ground, {name: [s.name for s in group] for name, group in groups.items()})
        self._dice = random.Random(f"kills {seed}")
        self._killing = killing
        """The chance of a kill each time that things settle."""
        self._away: frozenset[str] = frozenset()
        self.moments = 0
        """How often time was moved a little because somebody waited for it."""
        self._watcher: Watcher | None = None
        self._reading: LogReading | None = None

    exact = True

    @property
    def kills(self) -> int:
        return self._fleet.kills

    def now(self) -> float:
        return self._clock.now()

    async def start(self) -> None:
        """The files are there already; begin to work on them."""
        hidden = {name: s for service in self._services.values() for name, s in hidden_for(service).items()}
        stores = {name: self._ground.store_file(name) for name in self._services}
        self._reading = LogReading(self._ground.log_file)
        self._watcher = Watcher(stores, hidden, self._reading)
        self._fleet.start()
        await self.settle()

    async def stop(self) -> None:
        self._fleet.stop()
        if self._watcher is not None and self._reading is not None:
            self._watcher.close()
            self._reading.close()

    async def settle(self) -> None:
        await self._settled()

    async def live_up_to(self, moment: float) -> None:
        while (due := await self._settled()) is not None and due < moment:
            self._clock.move(due)

    async def until(self, moment: float) -> None:
        await self.live_up_to(moment)
        self._clock.move(moment)
        await self._settled()

    async def let_pass(self, seconds: float) -> None:
        await self.until(self.now() + seconds)

    @asynccontextmanager
    async def away(self, service: str) -> AsyncIterator[None]:
        group = next(name for name in self._fleet.names if service in self._fleet.services_of(name))
        self._fleet.kill(group)
        self._away = frozenset(self._fleet.services_of(group))
        try:
            yield
        finally:
            self._away = frozenset()
            self._restart(group)
            await self._settled()

    async def _settled(self) -> float | None:
        """When something will be due next."""
        assert self._watcher is not None
        began = moved = time.monotonic()
        kill_at = began + self._dice.uniform(0.0, 0.15) if self._dice.random() < self._killing else None
        victim = self._dice.choice(self._fleet.names)
        while True:
            look = self._watcher.look(self._clock.now(), self._away)
            now = time.monotonic()
            if not look.moving:
                return look.next
            if kill_at is not None and now >= kill_at:
                kill_at = None
                self._kill(victim)
            elif now - moved > STUCK:
                moved = now
                self.moments += 1
                self._clock.move(self._clock.now() + MOMENT)
            if now - began > PATIENCE:
                raise PosthouseError(f"the platform does not settle: {look.moving}\n{self._fleet.last_words()}")
            self._fleet.check()
            await asyncio.sleep(LOOK)

    def _kill(self, group: str) -> None:
        if not self._away:
            self._fleet.kill(group)
            self._restart(group)

    def _restart(self, group: str) -> None:
        for name in self._fleet.services_of(group):
            free(self._ground.store_file(name), self._ground.log_file, self._services[name])
        self._fleet.start_one(group)
