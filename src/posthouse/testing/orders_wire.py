"""The wire of a play of orders: facts that a saga takes stand at a gate, and arrive one at a time when the play says so."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from posthouse.app import apps_of
from posthouse.broker import ACCEPTED, Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import Clock
from posthouse.events import Event, decode_any
from posthouse.runtime import Runtime
from posthouse.service import Service
from posthouse.testing.harness import HELD_UP, Harness, Unsettled
from posthouse.watch.status import Status

NOTHING_MOVES = Status(lines=(), unsent={}, stuck={}, timers={}, notes=())
LOOK = 0.0005
"""Real seconds between two looks at what moves."""
PATIENCE = 60.0
"""Real seconds that a hundred runs may take for one move, on a machine that has other things to do."""


class Sent(msgspec.Struct, frozen=True):
    """A fact on the wire."""

    frame: Frame
    event: Event[bytes]

    @property
    def name(self) -> str:
        """The subject without its namespace and service, as a person calls it."""
        return ".".join(self.event.type.split(".")[-3:-1])


Line = tuple[str, str]
"""A topic and a key: what is sent in one line arrives in that order."""


class GatedBroker(MemoryBroker):
    """Of tenants that play, facts of the `gated` types wait at the gate, and what follows in their line behind them."""

    def __init__(
        self, clock: Clock, gated: Collection[str], opened: Callable[[Event[bytes]], Awaitable[Event[bytes]]]
    ) -> None:
        super().__init__(clock=clock)
        self._opened = opened
        self.playing: set[str] = set()
        self.said: dict[str, list[Sent]] = {}
        """What anybody said, by tenant, and was not looked at yet."""
        self._gated = gated
        self._lines: dict[str, dict[Line, list[Sent]]] = {}

    async def publish(self, frames: Sequence[Frame]) -> Sequence[Verdict]:
        verdicts = []
        for frame in frames:
            sent = Sent(frame, await self._opened(decode_any(frame.headers, frame.body)))
            verdicts.append(ACCEPTED if self._stopped(sent) else (await super().publish([frame]))[0])
        return verdicts

    def waiting(self, tenant: str) -> list[Sent]:
        """What may arrive next: the first of every line."""
        lines = self._lines.get(tenant, {})
        return [lines[line][0] for line in sorted(lines) if lines[line]]

    async def let_through(self, sent: Sent, *, again: bool = False) -> None:
        """The first of a line arrives; `again`: a second copy of it is under way, and arrives at any time."""
        tenant, line = sent.event.tenant, _line(sent)
        lines = self._lines[tenant]
        queue = next(queue for queue in lines.values() if queue and queue[0] is sent)
        queue.pop(0)
        if again:
            lines[f"{line[0]} again", sent.event.id] = [sent]
        passing = [sent]
        while queue and queue[0].event.type not in self._gated:
            passing.append(queue.pop(0))
        for one in passing:
            await super().publish([one.frame])

    def _stopped(self, sent: Sent) -> bool:
        tenant = sent.event.tenant
        if tenant not in self.playing:
            return False
        self.said.setdefault(tenant, []).append(sent)
        queue = self._lines.setdefault(tenant, {}).setdefault(_line(sent), [])
        if not queue and sent.event.type not in self._gated:
            return False
        queue.append(sent)
        return True


def _line(sent: Sent) -> Line:
    return sent.frame.topic, sent.frame.key or sent.event.id


class GatedHarness(Harness):
    """A harness whose broker has a gate. What waits there does not move."""

    def __init__(self, *services: Service, gated: Collection[str]) -> None:
        super().__init__(*services, schedules=False)  # they are no answer of the world, and go on for ever
        self.broker: GatedBroker = GatedBroker(self.clock, gated, self.opened)

    def runs_as(self, runtime: Runtime) -> Runtime:
        """No saga is forgotten: one that has ended is looked at when those beside it have, whenever that is."""
        return dataclasses.replace(super().runs_as(runtime), saga_retention=None)

    async def settled(self, timeout: float = PATIENCE) -> Status:
        """Wait until two looks in a row see nothing that moves."""
        try:
            async with asyncio.timeout(timeout):
                await self._still()
        except TimeoutError:
            raise Unsettled(f"runs of a play still move after {timeout:g} s") from None
        return NOTHING_MOVES

    async def _still(self) -> None:
        self._nudge()
        looks, loop = 0, asyncio.get_running_loop()
        since = loop.time()
        while looks < 2:
            looks = 0 if self._busy() or await self._unsent() or await self._due() else looks + 1
            if loop.time() - since > HELD_UP:  # as the harness does: whoever was held up looks again
                since = loop.time()
                self._nudge()
                self.clock.wake()
            await asyncio.sleep(LOOK)

    async def wait_for_what_is_due(self) -> float:
        """Let time pass until the next timer or second try; how many seconds, or 0 when nothing is due ever again."""
        due = [moment for moment in await self._moments() if moment > self.clock.now()]
        seconds = min(due) - self.clock.now() if due else 0.0
        if due:
            await self.advance(seconds)
        return seconds

    async def _stood(self, patience: float, timeout: float = PATIENCE) -> tuple[Status | None, bool]:
        return await self.settled(timeout), True

    async def _unsent(self) -> bool:
        counts = [await app.store.counts() for app in apps_of(self.services)]
        return any(any(count.unsent.values()) for count in counts)
