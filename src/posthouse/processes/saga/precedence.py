"""Precedence: of several releases that run at the same time, the one that appeared last runs a saga; the others stand aside.

A release that does not know an event, a deadline, a step or a join of another one would pass it over, or could not go on. So each
worker says in its row which release of each saga it has, and whether it stands aside. Whoever wants to run a saga first says so, and
then looks whether somebody else does: of two that do so at the same moment, at least one sees the other. A later release waits until
every earlier one has finished what it had in flight; an earlier one takes over again when no later one is left. Whoever finds that it could
not go on with what is stored gives up its claim, and says so: it keeps nobody from running the saga, and asks again after a while. What
comes meanwhile waits in the broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence

from posthouse.clock import Clock, backoff
from posthouse.errors import StoreError
from posthouse.pulse import Pulse
from posthouse.redaction import words_of
from posthouse.store import CoreStore, VersionUse, Worker
from posthouse.store.workers import Aside

log = logging.getLogger("posthouse.sagas")

LOOK = 1.0
"""Seconds between two looks at who else runs."""

PATIENCE = 30.0
"""Seconds that comparing what is stored may take: nobody runs the saga meanwhile."""
FIRST_REST, LAST_REST = 5.0, 300.0
"""Seconds until whoever has given up its claim asks again, at first and in the end."""

Run = Callable[[asyncio.Event], Coroutine[object, object, None]]
Beat = Callable[[Mapping[str, Aside]], Awaitable[None]]
"""Gives a sign of life that names the consumers that stand aside, and why."""
Compare = Callable[[str], Awaitable[Sequence[str]]]
"""Why the stored sagas of a consumer could not go on with the classes that are here."""

Order = Mapping[tuple[str, str], float]
"""By consumer and release: when it appeared first."""


class Precedence:
    """Of one process: which of its sagas it runs, by the names of their consumers."""

    def __init__(
        self, store: CoreStore, clock: Clock, releases: Mapping[str, str], compare: Compare, silent: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._releases = releases
        self._compare = compare
        self._silent = silent
        self._order: Order = {}
        self._leading = {consumer: asyncio.Event() for consumer in releases}
        self._aside = {consumer: asyncio.Event() for consumer in releases}
        self._at_work = dict.fromkeys(releases, 0)
        self._left: set[str] = set()
        """Those that a later release runs, or will."""
        self._unfit: dict[str, float] = {}
        """Those that could not go on here, each until when it is left so, by the monotonic clock."""
        self._given_up = dict.fromkeys(releases, 0)
        """How often in a row."""
        self._said: dict[str, str] = {}
        self.settled = asyncio.Event()
        """It has looked once, and whoever it has to wait for stands aside."""
        self.pulse = Pulse()
        for event in self._aside.values():
            event.set()

    async def run(self, me: str, beat: Beat, stop: asyncio.Event) -> None:
        """Look until `stop`. `me` is the id of this worker."""
        try:
            while not stop.is_set():
                try:
                    with self.pulse.doing("looking who else runs sagas", longer=PATIENCE * (1 + len(self._releases))):
                        await self.look(me, beat)
                except StoreError as error:
                    log.debug("who else runs is not known: %s", error)
                await self._clock.wait(stop, LOOK)
        finally:
            for consumer in self._releases:
                self._leading[consumer].clear()
                self._aside[consumer].set()

    async def look(self, me: str, beat: Beat) -> None:
        """Take over what is ours to run, and stand aside where a later release runs."""
        resting = {consumer for consumer in self._releases if not self._leading[consumer].is_set()}
        for consumer in [one for one, until in self._unfit.items() if until <= self._clock.monotonic()]:
            await self._fits(consumer)
        await beat(self._words(resting))
        others = await self._others(me)
        self._left = {consumer for consumer in self._releases if self._later(consumer, others)}
        for consumer in self._left:
            self._stand_aside(consumer)
        free = [one for one in sorted(resting) if one not in self._unfit and self._is_free(one, others)]
        ready = {consumer for consumer in free if await self._fits(consumer)}
        if free:
            await beat(self._words(resting - ready))
            others = await self._others(me)
        for consumer in ready:
            if self._is_free(consumer, others):
                self._lead(consumer)
        if all(self._leading[one].is_set() or one in self._unfit or self._later(one, others) for one in self._releases):
            self.settled.set()

    def _words(self, resting: Collection[str]) -> dict[str, Aside]:
        """What stands aside here, and why; not what still has something in flight."""
        return {consumer: self._why(consumer) for consumer in sorted(resting) if not self._at_work[consumer]}

    def _why(self, consumer: str) -> Aside:
        if consumer in self._unfit:
            return "unfit"
        return "later" if consumer in self._left else "waits"

    def _is_free(self, consumer: str, others: Sequence[Worker]) -> bool:
        return not self._later(consumer, others) and not self._still_runs(consumer, others)

    def while_leading(self, consumer: str, run: Run) -> Run:
        """The same loop, which runs only while this process runs the saga."""
        leading, aside = self._leading[consumer], self._aside[consumer]

        async def runs(stop: asyncio.Event) -> None:
            while not stop.is_set():
                await _first(leading, stop)
                if stop.is_set():
                    return
                ending = asyncio.Event()
                self._at_work[consumer] += 1
                task = asyncio.ensure_future(run(ending))
                try:
                    await _first(aside, stop, task)
                    ending.set()
                    await task
                finally:
                    task.cancel()
                    self._at_work[consumer] -= 1

        return runs

    async def _others(self, me: str) -> list[Worker]:
        """Who else runs consumers."""
        found = [one for one in await self._store.workers.read() if one.id != me and alive(one, self._silent)]
        known = {(consumer, release) for one in found for consumer, release in one.releases.items()}
        if not {*known, *self._releases.items()} <= self._order.keys():
            self._order = await order_of(self._store)
        return found

    def _later(self, consumer: str, others: Sequence[Worker]) -> bool:
        return later(consumer, self._releases[consumer], others, self._order)

    def _still_runs(self, consumer: str, others: Sequence[Worker]) -> bool:
        mine = self._releases[consumer]
        return any(one.releases.get(consumer, mine) != mine and consumer not in one.aside for one in others)

    async def _fits(self, consumer: str) -> bool:
        """Whether what is stored can go on here; a start has asked already, but others may have run it since. If not, the claim
        to run it is given up for a while."""
        try:
            async with asyncio.timeout(PATIENCE):
                reasons = await self._compare(consumer)
        except Exception as error:
            reasons = [f"what is stored could not be compared ({type(error).__name__}: {words_of(error)})"]
        if not reasons:
            self._unfit.pop(consumer, None)
            return True
        self._given_up[consumer] += 1
        rest = backoff(self._given_up[consumer], FIRST_REST, LAST_REST)
        self._unfit[consumer] = self._clock.monotonic() + rest
        self._say(consumer, f"is left alone until a release runs that can go on: {'; '.join(reasons)}", logging.ERROR)
        return False

    def _lead(self, consumer: str) -> None:
        self._aside[consumer].clear()
        self._leading[consumer].set()
        self._given_up[consumer] = 0
        self._say(consumer, "is run by this release", logging.INFO)

    def _stand_aside(self, consumer: str) -> None:
        self._leading[consumer].clear()
        self._aside[consumer].set()
        if consumer not in self._unfit:
            self._say(consumer, "is left to a later release, which runs beside this one", logging.WARNING)

    def _say(self, consumer: str, words: str, level: int) -> None:
        if self._said.get(consumer) != words:
            self._said[consumer] = words
            log.log(level, "%s %s", consumer, words)


def alive(worker: Worker, silent: float) -> bool:
    """Whether it runs consumers, and was heard of in the last so many seconds."""
    return not worker.stopped and worker.age <= silent and "consumers" in worker.parts


def later(consumer: str, release: str, others: Sequence[Worker], order: Order) -> bool:
    """Whether one of the others, which can go on with what is stored, has a release that appeared after this one."""
    mine = (order.get((consumer, release), 0.0), release)
    fit = [one for one in others if one.aside.get(consumer) != "unfit"]
    theirs = [one.releases[consumer] for one in fit if consumer in one.releases]
    return any((order.get((consumer, other), 0.0), other) > mine for other in theirs)


async def order_of(store: CoreStore) -> Order:
    """When each release of each saga appeared first."""
    seen = await store.version_usage.seen()
    return {(use.party, use.subject): use.first_at for use in seen if use.role == "release"}


async def appear(store: CoreStore, releases: Mapping[str, str], now: float) -> None:
    """From now on these releases are known."""
    uses = [VersionUse("release", consumer, release, now, now) for consumer, release in releases.items()]
    await store.version_usage.note(uses, now)


async def _first(*these: asyncio.Event | asyncio.Future[None]) -> None:
    """Wait for the first of them."""
    waits = [one if isinstance(one, asyncio.Future) else asyncio.ensure_future(one.wait()) for one in these]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one, wait in zip(these, waits, strict=True):
            if one is not wait:
                wait.cancel()
