"""A world on servers, in real time: the same services and guests, at a pace, with processes killed every few seconds.

The calendar of the house is turned by hand, scene by scene; seconds are real, divided by the pace. What does not settle in time
is left behind, as in life: a guest who waits too long is a compensation, never a broken sum."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from melmastoon.demo.clock import SharedClock
from melmastoon.demo.ground import Ground
from melmastoon.demo.killer import Killer
from melmastoon.demo.processes import Fleet
from melmastoon.facts.reservation import reservation
from melmastoon.pace import seconds
from posthouse import PosthouseError, Service, app_of
from posthouse.errors import BrokerError, StoreError
from posthouse.store import HeldEvent, HeldFilter

log = logging.getLogger("melmastoon.demo")

LOOK = 0.1
"""Real seconds between two looks."""
IN_TIME = 45.0
"""Seconds of the house after which a scene is left behind: every saga but one ends or rests before."""
AT_THE_END = 240.0
"""Real seconds for everything to come to rest when the play is over and nothing is killed any more."""
A_WHILE = 30.0
"""Real seconds for what runs again later to have its run, once it is due."""
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
        self._killer = Killer(self._fleet, seed=seed, every=every)
        self._groups_of = {service.name: app_of(service).opened.topology().groups for service in services}
        self.left_behind = 0

    exact = False

    @property
    def kills(self) -> int:
        return self._fleet.kills

    def now(self) -> float:
        return self._calendar.now()

    async def start(self) -> None:
        self._fleet.start()
        self._killer.start()

    async def rest(self) -> None:
        """The play is over: nobody is killed any more, and everything that is on its way arrives. What runs again later is waited
        for: that is no standstill."""
        await self._killer.stop()
        deadline = time.monotonic() + AT_THE_END
        while not await self._at_rest(strictly=True):
            self._fleet.check()
            if time.monotonic() > deadline:
                later = max((event.next_at for event in await self._retrying()), default=0.0) - time.time()
                if later <= 0:
                    raise PosthouseError(
                        f"the platform does not come to rest: {await self._restless()}\n{self._fleet.last_words()}"
                    )
                deadline = time.monotonic() + later + A_WHILE
            await asyncio.sleep(LOOK)

    async def stop(self) -> None:
        await self._killer.stop()
        await asyncio.to_thread(self._fleet.stop)

    async def settle(self) -> None:
        deadline = time.monotonic() + seconds(IN_TIME) + 1.0
        while not await self._at_rest(strictly=False):
            self._fleet.check()
            if time.monotonic() > deadline:
                self.left_behind += 1
                return
            await asyncio.sleep(LOOK)

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
        async with self._killer.away(group):
            yield
        await self.settle()

    async def _at_rest(self, *, strictly: bool) -> bool:
        """Whether nothing is on its way and every saga ended or rests; strictly: and no event waits for another run."""
        try:
            counts = await app_of(reservation).store.sagas.counts()
            if any(count for (_, state), count in counts.items() if state in BUSY):
                return False
            if strictly and await self._retrying():
                return False
            return not await self._on_its_way()
        except (StoreError, BrokerError) as error:
            log.warning("whether everything is at rest cannot be told: %s", error)
            return False

    async def _retrying(self) -> list[HeldEvent]:
        """Events that wait for another run, or have it now."""
        wanted = HeldFilter(state="retrying")
        return [event for service in self._services for event in await app_of(service).store.held.find(wanted)]

    async def _restless(self) -> str:
        """What keeps everything from being at rest, in words."""
        sagas = [
            f"{count} {saga} {state}"
            for (saga, state), count in (await app_of(reservation).store.sagas.counts()).items()
            if state in BUSY
        ]
        waiting = [
            f"{event.consumer} retries {event.type} in {event.next_at - time.time():.0f} s: {event.reason}"
            for event in await self._retrying()
        ]
        missing = [
            f"{count} of {topic} for {consumer}" for (consumer, topic), count in (await self._on_its_way()).items()
        ]
        return "; ".join([*sagas, *waiting, *missing]) or "it just did"

    async def _on_its_way(self) -> Mapping[tuple[str, str], int]:
        """Deliveries that are still to come, by consumer and topic, from the stores alone: what was committed, less what each consumer has
        applied or holds. Asking the broker as well would take longer than a scene."""
        counts = dict(
            zip(self._groups_of, await asyncio.gather(*(app_of(s).store.counts() for s in self._services)), strict=True)
        )
        missing = {}
        for name, groups in self._groups_of.items():
            own = counts[name]
            for consumer, topics in groups.items():
                for topic in topics:
                    committed = counts[topic.split(".")[1]].committed.get(topic, 0)
                    known = own.applied.get((consumer, topic), 0) + own.skipped.get((consumer, topic), 0)
                    held = sum(
                        n
                        for (group, place, state), n in own.held.items()
                        if (group, place) == (consumer, topic) and state != "quarantined"  # which was never committed
                    )
                    if committed != known + held:
                        missing[consumer, topic] = committed - known - held
        return missing
