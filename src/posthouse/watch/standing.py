"""Standing: how stores and brokers stand, as samples of the table. True while every worker is dead: ages grow all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from posthouse.app import App
from posthouse.broker import Progress
from posthouse.clock import jitter
from posthouse.store import Gauges
from posthouse.watch import figures as of
from posthouse.watch.equation import Known, Place
from posthouse.watch.figures import Figures, Line, Way
from posthouse.watch.looking import Equation, Looking
from posthouse.watch.owners import Owners
from posthouse.watch.samples import Sample

PATIENCE = 2.0
"""Seconds that a store or a broker has for one answer; after that it is away."""
READINGS, PAUSE, WITHIN = 6, 0.03, 0.7
"""While events move, the equation is read so often at one look, up to so many seconds apart, and no more after so many in all."""
REMEMBERED = 1000
"""So many moments are kept of what waits for a consumer in a topic; of more, every second one."""


class Standing:
    """The figures of the stores and brokers of some Apps: `await samples()`, on the loop of the Apps, one look at a time.

    Nothing is made or written by it, and it raises nothing: of a store that is away `store_up` is 0 and the rest absent, of a
    broker `broker_up`, and what depends on it is absent; other Apps answer all the same. A look takes at most a few times
    `patience` seconds, however long a server hangs. Name producers and consumers together, or nobody can tell what is missing.
    It remembers the looks before, for what they found missing and for how long events were on their way: keep one instance.
    """

    def __init__(self, apps: Sequence[App], *, patience: float = PATIENCE) -> None:
        self._lookings = [Looking(app, patience) for app in apps]
        self._stood: dict[tuple[Looking, Line], Place] = {}
        self._known: dict[tuple[Looking, Line], Known] = {}
        self._due: dict[tuple[Looking, tuple[str, str]], float] = {}
        self._memory = Memory()

    async def samples(self) -> Sequence[Sample]:
        """Every figure of the table whose source is `store`, as it is now."""
        begun = time.monotonic()
        owners = {looking: Owners(looking.app) for looking in self._lookings}
        producers = {topic: looking for looking, those in owners.items() for topic in those.topics}
        equation = await self._read(producers, begun)
        figures = Figures()
        for looking, those in owners.items():
            self._app(figures, looking, those, producers)
            figures.add("scrape_seconds", time.monotonic() - begun, those.app)
            for line in looking.lines:
                certain, unknown = self._judged(equation, (looking, line))
                if certain is not None:
                    figures.add("consumer_unaccounted", certain, those.line(*line))
                figures.most("consumer_unknown", unknown, those.line(*line))
        self._stood = equation.places
        return figures.samples()

    def _judged(self, equation: Equation, line: tuple[Looking, Line]) -> tuple[int | None, bool]:
        account, gauges = equation.accounts.get(line), line[0].gauges
        if account is None or gauges is None:
            return None, True
        known, lost = self._known.setdefault(line, Known()), gauges.counts.lost.get(line[1], 0)
        return account.judged(self._stood.get(line), known, lost=lost, at=time.monotonic())

    async def _read(self, producers: Mapping[str, Looking], begun: float) -> Equation:
        """Stores, brokers, stores, one right after the other; while that does not settle, again, at moments that have nothing to
        do with the rhythm in which consumers acknowledge. The whole of the figures is read once."""
        equation, all_of = Equation(self._lookings, producers), self._lookings
        await asyncio.gather(*(looking.begin() for looking in all_of))
        await asyncio.gather(*(looking.ask_broker() for looking in all_of))
        await asyncio.gather(*(looking.ask_whole() for looking in all_of))
        equation.read(first=True)
        for _ in range(READINGS - 1):
            if equation.settled or time.monotonic() - begun > WITHIN:
                break
            await asyncio.sleep(jitter(PAUSE, 0.9))
            await asyncio.gather(*(looking.ask_before() for looking in all_of))
            await asyncio.gather(*(looking.ask_broker() for looking in all_of))
            await asyncio.gather(*(looking.ask_after() for looking in all_of))
            equation.read(first=False)
        return equation

    def _app(self, figures: Figures, looking: Looking, owners: Owners, producers: Mapping[str, Looking]) -> None:
        app, gauges, workers = looking.app, looking.gauges, looking.workers
        figures.add("store_up", gauges is not None, owners.app)
        if gauges is None or workers is None:
            return
        figures.add("broker_up", looking.progress is not None, owners.app)
        ways = {
            (group, topic): self._way((group, topic), progress, producers.get(topic))
            for (group, topic), progress in (looking.progress or {}).items()
        }
        of.outbox_figures(figures, owners, gauges)
        of.consumer_figures(figures, owners, gauges, looking.lines)
        unadopted = self._unadopted(looking, owners, gauges.at)
        of.process_figures(figures, owners, gauges, unadopted)
        of.server_figures(figures, owners, gauges)
        of.way_figures(figures, owners, ways)
        if looking.archived is not None:
            of.archive_figures(figures, owners, looking.archived)
        of.worker_figures(figures, app, owners, gauges, workers, ways, unadopted=bool(unadopted))
        for service in app.services:
            for projection in service.declared.projections.values():
                of.projection_figures(figures, service.name, projection, gauges, ways)

    def _unadopted(self, looking: Looking, owners: Owners, now: float) -> dict[tuple[str, str], float]:
        """Schedules that no process keeps, and how late each is: since its first moment after the first look that saw that."""
        late = {}
        for schedule, declared in owners.schedules.items():
            if schedule not in looking.adopted:
                due = self._due.setdefault((looking, schedule), declared.cron.after(now))
                late[schedule] = max(0.0, now - due)
        return late

    def _way(self, line: Line, progress: Progress, producer: Looking | None) -> Way:
        gauges, oldest = None if producer is None else producer.gauges, progress.oldest
        if gauges is not None and not progress.uncounted:
            oldest = max(oldest or 0.0, self._memory.oldest(line, progress, gauges))
        return Way(progress, gauges, line[1], oldest, away=producer is not None and gauges is None)


class Memory:
    """How many events of a topic had been written when. A broker tells since when it has an event, if it tells ages at all, and
    an event is as old on its way as it was in the outbox: what waits does not become young because it was sent.

    Where more had been written by some moment than are done now, one of those is not done: it has waited at least since then.
    """

    def __init__(self) -> None:
        self._written: dict[Line, dict[int, float]] = {}

    def oldest(self, line: Line, progress: Progress, producer: Gauges) -> float:
        """The age of the first that waits at the broker or unsent, by the clock of the producer's store; at least so many
        seconds."""
        topic, counts, written = line[1], producer.counts, self._written.setdefault(line, {})
        committed = counts.committed.get(topic, 0)
        sent = committed - counts.unsent.get(topic, 0) + counts.refused.get(topic, 0)
        if any(number > committed for number in written):  # another history: the store was restored, or made anew
            written.clear()
        if sent < committed:
            first = producer.at - producer.unsent_oldest.get(topic, 0.0)
            written[sent + 1] = min(first, written.get(sent + 1, first))
        if not counts.estimated:  # rather too high, and what is not there would never be done
            written.setdefault(committed, producer.at)
        for number in [number for number in written if number <= sent - progress.pending]:
            del written[number]
        if len(written) > REMEMBERED:
            for number in sorted(written)[1::2]:
                del written[number]
        return max(0.0, producer.at - min(written.values(), default=producer.at))
