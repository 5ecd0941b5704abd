"""A world on servers, in real time: the same services and guests, at a pace, with processes killed every few seconds.

The calendar of the house is turned by hand, scene by scene; seconds are real, divided by the pace. What does not settle in time
is left behind, as in life: a guest who waits too long is a compensation, never a broken sum."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from melmastoon.demo.clock import SharedClock
from melmastoon.demo.ground import Ground
from melmastoon.demo.processes import Fleet
from melmastoon.facts.reservation import reservation
from melmastoon.pace import seconds
from posthouse import Service
from posthouse.errors import BrokerError, PosthouseError, StoreError
from posthouse.store import HeldFilter

LOOK = 0.1
"""Real seconds between two looks."""
IN_TIME = 45.0
"""Seconds of the house after which a scene is left behind: every saga but one ends or rests before."""
AT_THE_END = 240.0
"""Real seconds for everything to come to rest when the play is over and nothing is killed any more."""
BUSY = ("running", "compensating")


class RealTime:
    """One process per group of services; `every` is about how many real seconds pass between two kills, 0 for none."""

    def __init__(
        self,
        ground: Ground,
        calendar: SharedClock,
        services: Sequence[Service],
        groups: Mapping[str, Sequence[Service]],
        *,
        seed: int,
        every: float,
    ) -> None:
        self._calendar = calendar
        self._services = services
        self._fleet = Fleet(ground, {name: [s.name for s in group] for name, group in groups.items()})
        self._dice = random.Random(f"real {seed}")
        self._every = every
        self._groups_of = {service.name: service.topology().groups for service in services}
        self._away = asyncio.Lock()
        """Held while somebody is away: then nobody else is killed."""
        self._killer: asyncio.Task[None] | None = None
        self.left_behind = 0

    exact = False

    @property
    def kills(self) -> int:
        return self._fleet.kills

    def now(self) -> float:
        return self._calendar.now()

    async def start(self) -> None:
        self._fleet.start()
        if self._every:
            self._killer = asyncio.create_task(self._kill_now_and_then())

    async def rest(self) -> None:
        """The play is over: nobody is killed any more, and everything that is on its way arrives."""
        await self._stop_killing()
        deadline = time.monotonic() + AT_THE_END
        while not await self._at_rest(strictly=True):
            if time.monotonic() > deadline:
                raise PosthouseError(
                    f"the platform does not come to rest: {await self._restless()}\n{self._fleet.last_words()}"
                )
            await asyncio.sleep(LOOK)

    async def stop(self) -> None:
        await self._stop_killing()
        await asyncio.to_thread(self._fleet.stop)

    async def settle(self) -> None:
        deadline = time.monotonic() + seconds(IN_TIME) + 1.0
        while not await self._at_rest(strictly=False):
            if time.monotonic() > deadline:
                self.left_behind += 1
                return
            await asyncio.sleep(LOOK)
        self._fleet.check()

    async def live_up_to(self, moment: float) -> None:
        """Nothing is due by the calendar: seconds are real."""

    async def until(self, moment: float) -> None:
        self._calendar.move(moment)

    async def let_pass(self, house_seconds: float) -> None:
        self._calendar.move(self.now() + house_seconds)
        await asyncio.sleep(seconds(house_seconds))

    @asynccontextmanager
    async def away(self, service: str) -> AsyncIterator[None]:
        group = next(name for name in self._fleet.names if service in self._fleet.services_of(name))
        async with self._away:
            await asyncio.to_thread(self._fleet.kill, group)
            try:
                yield
            finally:
                await asyncio.to_thread(self._fleet.start_one, group)
        await self.settle()

    async def _kill_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._every * self._dice.uniform(0.5, 1.5))
            async with self._away:
                victim = self._dice.choice(self._fleet.names)
                await asyncio.to_thread(self._fleet.kill, victim)
                await asyncio.to_thread(self._fleet.start_one, victim)

    async def _stop_killing(self) -> None:
        if self._killer is not None:
            self._killer.cancel()
            with suppress(asyncio.CancelledError):
                await self._killer
            self._killer = None

    async def _at_rest(self, *, strictly: bool) -> bool:
        """Whether nothing is on its way and every saga ended or rests; strictly: and no event waits for another run."""
        try:
            counts = await reservation.store.sagas.counts()
            if any(count for (_, state), count in counts.items() if state in BUSY):
                return False
            if strictly and await self._retrying():
                return False
            return not await self._on_its_way()
        except (StoreError, BrokerError):
            return False

    async def _retrying(self) -> bool:
        for service in self._services:
            if await service.store.held.find(HeldFilter(state="retrying"), limit=1):
                return True
        return False

    async def _restless(self) -> str:
        """What keeps everything from being at rest, in words."""
        sagas = [
            f"{count} {saga} {state}"
            for (saga, state), count in (await reservation.store.sagas.counts()).items()
            if state in BUSY
        ]
        waiting = [
            f"{event.consumer} retries {event.type}: {event.reason}"
            for service in self._services
            for event in await service.store.held.find(HeldFilter(state="retrying"))
        ]
        missing = [
            f"{count} of {topic} for {consumer}" for (consumer, topic), count in (await self._on_its_way()).items()
        ]
        return "; ".join([*sagas, *waiting, *missing]) or "it just did"

    async def _on_its_way(self) -> Mapping[tuple[str, str], int]:
        """Deliveries that are still to come, by consumer and topic, from the stores alone: what was committed, less what each consumer has
        applied or holds. Asking the broker as well would take longer than a scene."""
        counts = dict(
            zip(self._groups_of, await asyncio.gather(*(s.store.counts() for s in self._services)), strict=True)
        )
        missing = {}
        for name, groups in self._groups_of.items():
            own = counts[name]
            for consumer, topics in groups.items():
                for topic in topics:
                    committed = counts[topic.split(".")[1]].committed.get(topic, 0)
                    known = own.applied.get((consumer, topic), 0) + own.skipped.get((consumer, topic), 0)
                    held = sum(n for (group, place, _), n in own.held.items() if (group, place) == (consumer, topic))
                    if committed != known + held:
                        missing[consumer, topic] = committed - known - held
        return missing
