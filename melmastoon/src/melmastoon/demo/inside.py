"""A world in one process, for many runs: the same services, guests and faults, on a broker that has a bad day.

Stores are files; the broker is in memory, hands frames out twice and in any order, and loses answers. A kill cancels all tasks
of a service where they stand and drops its connections; what it had in hand comes again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from melmastoon.demo.clock import SharedClock
from melmastoon.demo.heirs import free_store, hidden_for
from melmastoon.demo.secrets import secrets_in
from melmastoon.demo.signatures import make_keys, signing_of
from melmastoon.demo.stillness import Watcher
from melmastoon.demo.witness import watch
from posthouse import App, Broker, PosthouseError, Service, app_of
from posthouse.brokers.memory import MemoryBroker, MemoryLog
from posthouse.clock import ManualClock
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing import rehost
from posthouse.testing.chaos import Chaos, ChaosBroker

BAD_DAY = Chaos(duplicate=0.1, shuffle=0.2, lose_answer=0.02, unreachable=0.02)
PATIENCE = 180.0
"""Real seconds for things to settle before something must be wrong."""
STUCK = 0.05
"""Real seconds without a change after which whoever waits on the clock, because the broker was away, is given a moment of it."""
MOMENT = 0.25
"""That moment, in seconds of the clock."""
RARELY = 7 * 86_400.0
"""Seconds between two rounds of housekeeping."""


class Inside:
    """`killing` is the chance of a kill each time that things settle. The calendar is kept in a file as well, for vendors."""

    exact = True

    def __init__(
        self, folder: Path, services: Sequence[Service], calendar: SharedClock, *, seed: int, killing: float
    ) -> None:
        self._folder = folder
        self._services = {service.name: service for service in services}
        self._clock = ManualClock(calendar.now())
        self._calendar = calendar
        self._log = MemoryLog()
        self._dice = random.Random(f"inside {seed}")
        self._killing = killing
        self._away: frozenset[str] = frozenset()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._watcher: Watcher | None = None
        self._before: list[tuple[Service, App]] = []
        self.kills = 0

    def now(self) -> float:
        return self._clock.now()

    async def start(self) -> None:
        make_keys(self._folder, self._services.values())
        for service in self._services.values():
            watch(service)
            self._before.append((service, self._rehost(service)))
            await app_of(service).opened.prepare()
        hidden = {name: s for service in self._services.values() for name, s in hidden_for(service).items()}
        self._watcher = Watcher({name: self._store(name) for name in self._services}, hidden, self._reading)
        for name in self._services:
            await self._run(name)
        await self.settle()

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for service, before in self._before:
            await service.aclose()
            service.hosted_by(before)
        if self._watcher is not None:
            self._watcher.close()

    async def settle(self) -> None:
        await self._settled()

    async def live_up_to(self, moment: float) -> None:
        while (due := await self._settled()) is not None and due < moment:
            self._move(due)

    async def until(self, moment: float) -> None:
        await self.live_up_to(moment)
        self._move(moment)
        await self._settled()

    async def let_pass(self, seconds: float) -> None:
        await self.until(self.now() + seconds)

    @asynccontextmanager
    async def away(self, service: str) -> AsyncIterator[None]:
        await self._kill(service)
        self._away = frozenset((service,))
        try:
            yield
        finally:
            self._away = frozenset()
            await self._run(service)
            await self._settled()

    def _move(self, moment: float) -> None:
        self._clock.advance(max(0.0, moment - self._clock.now()))
        self._calendar.move(self._clock.now())

    async def _settled(self) -> float | None:
        """When something will be due next."""
        assert self._watcher is not None
        began = changed = time.monotonic()
        kill_after = self._dice.randrange(1, 30) if self._dice.random() < self._killing else 0
        victim = self._dice.choice(list(self._services))
        seen, looks = "", 0
        while True:
            look = self._watcher.look(self._clock.now(), self._away)
            now, looks = time.monotonic(), looks + 1
            if not look.moving:
                return look.next
            if looks == kill_after and not self._away:
                await self._kill(victim)
                await self._run(victim)
            if look.moving != seen:
                seen, changed = look.moving, now
            elif now - changed > STUCK:
                changed = now
                self._move(self._clock.now() + MOMENT)
            if now - began > PATIENCE:
                raise PosthouseError(f"the platform does not settle: {look.moving}")
            await asyncio.sleep(0.001)

    async def _kill(self, name: str) -> None:
        self.kills += 1
        task = self._tasks.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        service = self._services[name]
        await service.aclose()
        free_store(self._store(name), service)
        self._rehost(service)

    async def _run(self, name: str) -> None:
        runtime = replace(await app_of(self._services[name]).opened.prepare(), housekeeping_every=RARELY)
        self._tasks[name] = asyncio.create_task(runtime.run(self._stop), name=f"inside {name}")

    def _rehost(self, service: Service) -> App:
        chaos = ChaosBroker(MemoryBroker(clock=self._clock, log=self._log), BAD_DAY, self._dice.randrange(1_000_000))
        store = SqliteStore(self._store(service.name), clock=self._clock, synchronous="NORMAL")
        broker = cast("Broker", chaos)  # its sheet is read only, as everybody reads it
        return rehost(
            service,
            store=store,
            broker=broker,
            clock=self._clock,
            signing=signing_of(self._folder, service),
            secrets=secrets_in(self._folder, service),
        )

    def _store(self, name: str) -> Path:
        return self._folder / f"{name}.db"

    def _reading(self) -> Iterable[str]:
        """Groups that have not acknowledged everything."""
        return {
            group
            for (group, topic), reader in self._log.readers.items()
            if reader.cursor < len(self._log.topics[topic])
        }
