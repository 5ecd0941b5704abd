"""Keeper: in every running process, feeds the generations that are read, notices a swap, and clears away what is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from posthouse.errors import BrokerError, StoreError
from posthouse.processes.projection.clearing import clear_lost
from posthouse.processes.projection.declared import Projection
from posthouse.processes.projection.judging import judge
from posthouse.processes.projection.wiring import Keep, Member, Wiring
from posthouse.pulse import Pulse, alive
from posthouse.receiving import Consumer
from posthouse.store.projections import Generation

log = logging.getLogger("posthouse.projection")

LOOK = 1.0
"""Seconds between two looks at which generations are read."""

PATIENCE = 15.0
"""Seconds between two tries to clear a generation away: somebody may still be at work in its group."""


class Keeper:
    """The projections of one service in one process. Any number of processes may run one: they share the group of the
    generation that is live, and none of them feeds one that other code has built."""

    def __init__(
        self,
        wiring: Wiring,
        learned: Callable[[Sequence[Generation]], None],
        clear: Callable[[Generation], Awaitable[None]],
    ) -> None:
        self._wiring = wiring
        self._learned = learned
        self._clear = clear
        self._members: dict[tuple[str, int], Member] = {}
        self._takers: dict[tuple[str, int], Member] = {}
        """Those that are brought events without being run here."""
        self._passed_over: set[tuple[str, int]] = set()
        self._noted: dict[tuple[str, int], float] = {}
        self._tried: dict[tuple[str, int], float] = {}
        self._nudged = asyncio.Event()
        self.pulse = Pulse()
        self._clearing: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Nothing is in hand."""
        return all(member.idle for member in self._members.values())

    @property
    def consumers(self) -> list[Consumer]:
        """Those of the generations that are fed here."""
        return [member.consumer for member in self._members.copy().values()]

    def nudge(self) -> None:
        """Look now: something has changed in this process."""
        self._nudged.set()

    async def taker(self, projection: Projection, row: Generation) -> Consumer:
        """The consumer of a generation, also where this process does not run it."""
        place = (row.projection, row.number)
        if place in self._members:
            return self._members[place].consumer
        if place not in self._takers:
            self._takers[place] = await self._wiring.member(projection, row)
        return self._takers[place].consumer

    async def run(self, stop: asyncio.Event, keep: Keep) -> None:
        """Until `stop`; `keep` runs a loop."""
        waking = asyncio.ensure_future(_set_after(stop, self._nudged))
        try:
            while not stop.is_set():
                self._nudged.clear()
                try:
                    await self.look(keep)
                    self._wiring.outages.answered("projections")
                except (StoreError, BrokerError) as error:
                    self._wiring.outages.failed("projections", error)
                if not stop.is_set():
                    await self._wiring.clock.wait(self._nudged, LOOK)
        finally:
            waking.cancel()
            self._wiring.outages.left("projections")
            if self._clearing is not None:
                self._clearing.cancel()
                await asyncio.wait([self._clearing])
            members, self._members = self._members, {}
            await asyncio.gather(*(member.end() for member in members.values()))
            await self._note(members)

    async def look(self, keep: Keep) -> None:
        """One look: feed what is live, and let go of what is not any more."""
        with self.pulse.doing("looking at the generations"):
            found = await self._wiring.store.projections.generations()
        generations = [row for row in found if self._is_ours(row)]
        self._learned(generations)
        there = {(row.projection, row.number) for row in generations}
        wanted = {(row.projection, row.number): row for row in generations if row.state == "live"}
        for place in [place for place in self._members if place not in wanted]:
            await self._members.pop(place).end()
            if place not in there:
                await self._clear_lost(*place)
        for place, row in wanted.items():
            if place not in self._members and self._fits(row):
                with self.pulse.doing("joining the group of a generation"):
                    if row.history == "unknown":
                        await judge(self._wiring, self._wiring.projections[row.projection], row)
                        alive()
                    member = self._members[place] = await self._wiring.member(
                        self._wiring.projections[row.projection], row
                    )
                member.begin(keep)
        await self._note(self._members)
        if self._clearing is None or self._clearing.done():
            self._clearing = asyncio.ensure_future(self._clear_away(generations))

    def _is_ours(self, row: Generation) -> bool:
        return row.projection in self._wiring.projections

    def _fits(self, row: Generation) -> bool:
        """Whether this process may feed it; if not, that is said once."""
        declared = self._wiring.projections[row.projection].terms.version
        place = (row.projection, row.number)
        if row.version != declared and place not in self._passed_over:
            self._passed_over.add(place)
            log.warning(
                "%s: generation %d was built by version %d, this process has version %d and leaves it to others: %s",
                row.projection, row.number, row.version, declared,
                "run `posthouse projection rebuild`" if row.version < declared else "start processes of that version",
            )  # fmt: skip
        return row.version == declared

    async def _note(self, members: Mapping[tuple[str, int], Member]) -> None:
        """How fresh the generations are; seldom, and never in the transaction of an event."""
        for place, member in members.items():
            face = member.face
            if face.applied_at > self._noted.get(place, 0.0):
                self._noted[place] = face.applied_at
                try:
                    with self.pulse.doing("noting how fresh a generation is"):
                        await self._wiring.store.projections.note(*place, face.event_at, face.applied_at)
                except StoreError as error:
                    log.info("%s: how fresh it is could not be noted: %s", place[0], error)

    async def _clear_lost(self, projection: str, number: int) -> None:
        log.warning("%s: generation %d was lost with its server, or cleared away by others", projection, number)
        try:
            with self.pulse.doing("clearing a generation that was lost"):
                await clear_lost(self._wiring, self._wiring.projections[projection], number)
        except (StoreError, BrokerError) as error:
            log.warning("%s: what generation %d held stays: %s", projection, number, error)

    async def _clear_away(self, generations: Sequence[Generation]) -> None:
        if not any(row.state == "retired" and row.drop_at is not None for row in generations):
            return
        try:
            expired = await self._wiring.store.projections.expired()
        except StoreError as error:
            log.warning("old generations stay for now: %s", error)
            return
        now = self._wiring.clock.monotonic()
        for row in generations:
            place = (row.projection, row.number)
            if place in expired and self._tried.get(place, float("-inf")) + PATIENCE <= now:
                self._tried[place] = now
                try:
                    await self._clear(row)
                except (StoreError, BrokerError) as error:
                    log.warning("%s: generation %d stays for now: %s", row.projection, row.number, error)
                except Exception:
                    log.exception("%s: generation %d stays for now", row.projection, row.number)


async def _set_after(first: asyncio.Event, then: asyncio.Event) -> None:
    await first.wait()
    then.set()
