"""Sampling: how all services stand, read every few seconds and kept for some minutes, in bounded memory.

The figures are those of `watch.standing`: their cost does not grow with what is stored, and what is away is absent from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence

from posthouse.console.estate import Estate
from posthouse.watch.samples import Sample
from posthouse.watch.standing import Standing

log = logging.getLogger("posthouse.console")

EVERY = 3.0
"""Seconds from one look to the next."""
KEPT = 200
"""Looks that are remembered: ten minutes."""
IDLE = 600.0
"""Nobody has asked for so many seconds: nobody looks any more, until somebody asks."""
STEADY = 15.0
"""A rate is that of the last so many seconds."""

TOTALS = {"outbox_committed_total": "committed", "outbox_sent_total": "sent", "consumer_applied_total": "applied"}
"""Counts that only grow, of which there are rates."""
ANSWERS = ("store_up", "broker_up")
"""Whether who was asked has answered."""
LEVELS = {"consumer_in_flight": "in_flight", "outbox_unsent": "unsent", "held": "held"}
AGES = {"consumer_lag_seconds": "lag", "outbox_oldest_unsent_seconds": "oldest_unsent"}

Name = tuple[str, str]
"""What is measured, as `applied`, and of whom: `service:NAME`, `consumer:NAME`, `topic:NAME`, or `all`."""


class Look:
    """One moment, in seconds since 1970, and every figure then. `silent`: since when a store or broker (`store_up` and its service)
    has not answered."""

    def __init__(self, at: float, samples: Sequence[Sample], silent: Mapping[tuple[str, str], float] = {}) -> None:
        self.at, self.samples, self.silent = at, samples, silent
        self._by: dict[tuple[str, str], list[Sample]] = {}
        for sample in samples:
            for word in {"", *sample.labels.values()}:
                self._by.setdefault((sample.metric, word), []).append(sample)

    def found(self, metric: str, **labels: str) -> list[Sample]:
        """The samples of one figure that have these labels."""
        few = min((self._by.get((metric, word), []) for word in labels.values()), key=len, default=None)
        return [
            one
            for one in (self._by.get((metric, ""), []) if few is None else few)
            if all(one.labels.get(label) == value for label, value in labels.items())
        ]

    def value(self, metric: str, **labels: str) -> float | None:
        """All of them together; None where there is none: nobody knows."""
        values = [one.value for one in self.found(metric, **labels) if isinstance(one.value, float)]
        return sum(values) if values else None

    def most(self, metric: str, **labels: str) -> float | None:
        """The greatest of them; None where there is none."""
        return max((one.value for one in self.found(metric, **labels) if isinstance(one.value, float)), default=None)


class Sampler:
    """A part of an estate: looks every few seconds while somebody asks now and then."""

    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        self._standing: tuple[Sequence[object], Standing] | None = None
        self._asked = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._last: Look | None = None
        self._silent: dict[tuple[str, str], float] = {}
        self.times: deque[float] = deque(maxlen=KEPT)
        self._series: dict[Name, deque[float | None]] = {}

    async def look(self) -> Look:
        """The last look, at most a few seconds old; the first is waited for."""
        self._asked = time.monotonic()
        if self._task is None or self._task.done():
            self._looked.clear()
            self._task = asyncio.create_task(self._run())
        await self._looked.wait()
        assert self._last is not None
        return self._last

    def series(self, what: str, of: str) -> list[float | None]:
        """One figure at all of `times`; None where it was not known. Of totals it is the rate since the look before."""
        points = self._padded((what, of))
        return _rates(list(self.times), points) if what in TOTALS.values() else points

    def rate(self, what: str, of: str) -> float | None:
        """Per second, lately; None where nobody can tell."""
        points = [
            (at, value)
            for at, value in zip(self.times, self._padded((what, of)), strict=True)
            if value is not None and at >= self.times[-1] - STEADY
        ]
        if len(points) < 2 or points[-1][1] < points[0][1]:
            return None
        return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])

    def _padded(self, name: Name) -> list[float | None]:
        points: list[float | None] = list(self._series.get(name, ()))
        return [*([None] * (len(self.times) - len(points))), *points]

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while time.monotonic() - self._asked < IDLE:
            began = time.monotonic()
            try:
                await self._one()
            except Exception:  # a figure that nobody foresaw must not end all of them
                log.exception("the console could not look")
                self._last = self._last or Look(time.time(), ())
            self._looked.set()
            await asyncio.sleep(max(EVERY, 4 * (time.monotonic() - began)))

    async def _one(self) -> None:
        await self._estate.load()
        apps = self._estate.apps
        if self._standing is None or self._standing[0] != apps:
            self._standing = apps, Standing(apps)
        samples = await self._standing[1].samples()
        at = time.time()
        away = {(one.metric, one.labels["service"]) for one in samples if one.metric in ANSWERS and one.value == 0}
        self._silent = {part: self._silent.get(part, at) for part in away}
        self._last = Look(at, samples, self._silent)
        self._keep(self._last)

    def _keep(self, look: Look) -> None:
        found: dict[Name, float] = {}
        for sample in look.samples:
            if not isinstance(sample.value, float):
                continue
            whose = ["all", *(f"{label}:{sample.labels[label]}" for label in _WHOSE if label in sample.labels)]
            for of in whose:
                if word := TOTALS.get(sample.metric) or LEVELS.get(sample.metric):
                    found[word, of] = found.get((word, of), 0.0) + sample.value
                elif word := AGES.get(sample.metric):
                    found[word, of] = max(found.get((word, of), 0.0), sample.value)
        self.times.append(look.at)
        for name in {*self._series, *found}:
            points = self._series.setdefault(name, deque(maxlen=KEPT))
            points.append(found.get(name))
        for name in [name for name, points in self._series.items() if all(point is None for point in points)]:
            del self._series[name]


_WHOSE = ("service", "consumer", "topic")


def _rates(times: Sequence[float], points: Sequence[float | None]) -> list[float | None]:
    found: list[float | None] = [None] if points else []
    for n in range(1, len(points)):
        before, now = points[n - 1], points[n]
        known = before is not None and now is not None and now >= before and times[n] > times[n - 1]
        found.append(
            (now - before) / (times[n] - times[n - 1]) if known and now is not None and before is not None else None
        )
    return found


def thinned(values: Sequence[float | None], most: int = 40) -> Sequence[float | None]:
    """The last of them, for a small chart: so many at most."""
    return [None if one is None else round(one, 3) for one in values[-most:]]
