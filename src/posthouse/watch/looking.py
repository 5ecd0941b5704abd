"""Looking: what one App's store and broker say at one look, in bounded time; whatever is away is left out, and nothing is made."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from posthouse.app import App
from posthouse.broker import Progress
from posthouse.errors import PosthouseError
from posthouse.outage import span
from posthouse.redaction import words_of
from posthouse.store import Gauges, Sums, Worker
from posthouse.watch.equation import Known, Missing, Place, Repeats, excused, missing, repeats
from posthouse.watch.figures import Line

log = logging.getLogger("posthouse.watch")

T = TypeVar("T")


class Looking:
    """One App, looked at again and again. `gauges`, `workers` and `progress` are what was read at this look, once; None where it was
    not told in time. Of the equation there are several readings: `before`, `between` and `after` are the last of them."""

    def __init__(self, app: App, patience: float) -> None:
        self.app = app
        self._patience = patience
        self._present = False
        self._silent: set[str] = set()
        self.gauges: Gauges | None = None
        self.workers: Sequence[Worker] | None = None
        self.adopted: Collection[tuple[str, str]] = ()
        """The schedules that a process keeps, or kept, by service and name."""
        self.progress: Mapping[Line, Progress] | None = None
        self.archived: Mapping[str, Progress] | None = None
        """How far the archive is in each topic; None where there is none."""
        self.before: Sums | None = None
        self.between: Mapping[Line, Progress] | None = None
        self.after: Sums | None = None

    @property
    def lines(self) -> Sequence[Line]:
        """Who reads what, as far as it is known."""
        if self.gauges is None:
            return []
        return [(group, topic) for group, topics in self.app.opened.topology().groups.items() for topic in topics]

    async def begin(self) -> None:
        """A new look: what the one before found is forgotten, and the store is asked what it has sent and accounted for."""
        self.gauges = self.workers = self.progress = self.archived = None
        self.before = await self._told("store", self._begun)

    async def ask_broker(self) -> None:
        """How far each consumer is. A store that was not read does not know which groups there are."""
        self.between = None if self.before is None else await self._told("broker", self._progress)

    async def ask_whole(self) -> None:
        """How the store stands: the end of the first reading, and whatever else there is to know."""
        self.progress = self.between
        if self.before is not None:
            self.gauges = await self._told("store", partial(self.app.store.gauges, timeout=self._patience))
        self.after = None if self.gauges is None else self.gauges.counts.sums

    async def ask_before(self) -> None:
        """Another reading begins. Who was away stays it until the next look."""
        self.before = None if self.after is None else await self._told("store", self.app.store.sums)

    async def ask_after(self) -> None:
        """It ends."""
        self.after = None if self.before is None else await self._told("store", self.app.store.sums)

    async def _begun(self) -> Sums:
        if not self._present:
            await self.app.opened.look()
            self._present = True
        else:
            await self.app.projections.learn()  # another process may have swapped a generation in
        self.workers = await self.app.store.workers.read()
        if any(True for service in self.app.services for _ in service.declared.schedules):
            self.adopted = {(row.service, row.name) for row in await self.app.store.schedules.find()}
        return await self.app.store.sums()

    async def _progress(self) -> dict[Line, Progress]:
        topology = self.app.opened.topology()
        if not topology.groups:  # nobody reads here: any question shows that it answers
            await self.app.broker.progress(self.app.services[0].name, topology.topics[:1])
        found = await asyncio.gather(
            *(self.app.broker.progress(group, topics) for group, topics in topology.groups.items())
        )  # together: the time for all of them is that of the slowest
        for group, topics in (self.app.opened.building.archived or {}).items():
            self.archived = await self.app.broker.progress(group, topics)
        return {
            (group, topic): one
            for group, topics in zip(topology.groups, found, strict=True)
            for topic, one in topics.items()
        }

    async def _told(self, whom: str, asked: Callable[[], Awaitable[T]]) -> T | None:
        """The answer; None, and a line in the log when that is new, where there is none."""
        try:
            async with asyncio.timeout(self._patience):
                answer = await asked()
        except (PosthouseError, OSError, TimeoutError) as error:
            if whom not in self._silent:
                why = words_of(error) or f"no answer within {span(self._patience)}"
                log.warning("the figures of %s are without its %s: %s", self.app.opened.name, whom, why)
            self._silent.add(whom)
            return None
        self._silent.discard(whom)
        return answer


class Account:
    """The equation of one line at one look, narrowed by each reading of it."""

    def __init__(self) -> None:
        self.missing: Missing | None = None
        self.place: Place | None = None
        self.again: Repeats | None = None
        self.progress: Progress | None = None
        self.still = False
        """Nothing moved from the reading before to this one."""

    def read(self, before: Place, progress: Progress, after: Place, *, history: bool, waiting: int | None) -> None:
        found = missing(before, progress, after, history=history, waiting=waiting)
        self.missing = found if self.missing is None else self.missing.narrowed(found)
        if history:
            seen = repeats(before, progress, after, waiting)
            self.again = seen if self.again is None else self.again.narrowed(seen)
        self.still = (self.place, before) == (after, after) and self._counts(self.progress) == self._counts(progress)
        self.place, self.progress = after, progress

    @property
    def settled(self) -> bool:
        """Whether another reading would tell no more."""
        return self.missing is not None and (self.missing.exact or self.still)

    def judged(self, stood: Place | None, known: Known, *, lost: int, at: float) -> tuple[int, bool]:
        """What is certainly missing or too many, and whether nobody can tell. `stood`: how the line stood at the look before;
        `known`: what the looks before have found; `lost`: so many were accepted as lost; `at`: when this look ended."""
        if self.missing is None or self.progress is None or self.place is None:
            return 0, True
        certain, doubt = known.look(self.missing, lost=lost, again=self.again, at=at)
        if certain > 0 and excused(self.progress, self.place, certain):
            return 0, True
        if certain or self.missing.exact:
            return certain, certain == 0 and self.progress.dropped
        return 0, doubt > 0 or self.progress.dropped or (self.still and stood == self.place)

    @staticmethod
    def _counts(progress: Progress | None) -> tuple[int, int] | None:
        return None if progress is None else (progress.stored, progress.pending)


class Equation:
    """The accounts of all lines of some Apps. A topic whose producer was not looked at has none."""

    def __init__(self, lookings: Iterable[Looking], producers: Mapping[str, Looking]) -> None:
        self._lookings = list(lookings)
        self._producers = producers
        self.accounts: dict[tuple[Looking, Line], Account] = {}

    @property
    def settled(self) -> bool:
        return all(account.settled for account in self.accounts.values())

    @property
    def places(self) -> dict[tuple[Looking, Line], Place]:
        """How each line stood last."""
        return {line: account.place for line, account in self.accounts.items() if account.place is not None}

    def read(self, *, first: bool) -> None:
        """What was read last: the stores, the brokers, and the stores again; at the `first` time also what waits to be sent."""
        for looking in self._lookings:
            for line, progress in (looking.between or {}).items():
                producer = self._producers.get(line[1])
                if producer is None:
                    continue
                before, after = (
                    _place(looking.before, producer.before, line),
                    _place(looking.after, producer.after, line),
                )
                if before is not None and after is not None:
                    account = self.accounts.setdefault((looking, line), Account())
                    history = looking.app.broker.sheet.history
                    waiting = _waiting(producer.gauges, line[1]) if first else None
                    account.read(before, progress, after, history=history, waiting=waiting)


def _place(consumer: Sums | None, producer: Sums | None, line: Line) -> Place | None:
    if consumer is None or producer is None:
        return None
    return Place(
        sent=producer.sent.get(line[1], 0),
        accounted=consumer.accounted.get(line, 0),
        strange=consumer.strange.get(line, 0),
    )


def _waiting(producer: Gauges | None, topic: str) -> int | None:
    """How many may still be sent; None where that is an estimate, which may be too low for a topic."""
    if producer is None or producer.counts.estimated:
        return None
    return producer.counts.unsent.get(topic, 0) - producer.counts.refused.get(topic, 0)
