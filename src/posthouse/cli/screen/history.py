"""History: what was seen in the last minute, and how fast it went. A rate comes from two looks; from one there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from posthouse.cli.outcome import outcome
from posthouse.processes import ProjectionStatus
from posthouse.seam.timing import ServiceTiming
from posthouse.store import Gauges
from posthouse.watch.liveness import Attendance
from posthouse.watch.status import Line, Status, Verdict

MINUTE = 60.0
"""Seconds that are remembered."""
STEADY = 3.0
"""A rate is that of the last so many seconds, or of the time between two looks where they are further apart."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found. `began` and `ended` are of a clock that never goes back, `at` is the time of day, in seconds since 1970."""

    began: float
    ended: float
    at: float
    figures: Status
    attended: Sequence[Attendance] = ()
    wake: Mapping[str, str] = {}
    projections: Sequence[ProjectionStatus] = ()
    timing: Sequence[ServiceTiming] = ()
    gauges: Mapping[str, Gauges] = {}
    """By service."""
    unaccounted: Mapping[tuple[str, str], int] = {}
    """What is missing for certain though events move, per (consumer, topic), where somebody looked closer."""


class Point(NamedTuple):
    """How much there was at a moment. `apart`: nobody could look between the point before and this one."""

    at: float
    total: int
    apart: bool


class Series:
    """A count that only grows, over the last minute."""

    def __init__(self) -> None:
        self.points: deque[Point] = deque()

    def add(self, at: float, total: int, *, apart: bool = False) -> None:
        """One more look. A count that went back is another one than it was, as after a backup was brought back."""
        if self.points and (total < self.points[-1].total or at <= self.points[-1].at):
            self.points.clear()
        self.points.append(Point(at, total, apart))
        while len(self.points) > 2 and self.points[1].at < at - MINUTE:
            self.points.popleft()

    @property
    def rate(self) -> float | None:
        """Per second, lately; None where nobody can tell."""
        if len(self.points) < 2 or self.points[-1].apart:
            return None
        last = first = self.points[-1]
        for point in reversed(self.points):
            first = point
            if point.apart or last.at - point.at >= STEADY:
                break
        return (last.total - first.total) / (last.at - first.at)

    def bars(self, count: int, now: float) -> list[float | None]:
        """The rates of the last minute in so many parts, the oldest first; None where nobody looked. The parts lie at fixed
        moments, so that a bar keeps its height while it wanders to the left."""
        width = MINUTE / count
        end = (now // width + 1) * width
        return [self._mean(end - (count - n) * width, end - (count - n - 1) * width) for n in range(count)]

    def _mean(self, begin: float, end: float) -> float | None:
        seconds = moved = 0.0
        for a, b in pairwise(self.points):
            shared = min(b.at, end) - max(a.at, begin)
            if shared > 0 and not b.apart:
                seconds += shared
                moved += (b.total - a.total) * shared / (b.at - a.at)
        return moved / seconds if seconds > 0 else None


class History:
    """The looks of the last minute. `missed` says why the last ones failed, empty when the last one did not, and `missed_at` since
    when."""

    def __init__(self) -> None:
        self.last: Look | None = None
        self.before: Look | None = None
        self.missed = ""
        self.missed_at = 0.0
        self.applied: dict[str, Series] = {}
        """By consumer."""
        self.committed: dict[str, Series] = {}
        """By service."""
        self.missing: dict[tuple[str, str], int] = {}
        """What is missing for certain (above 0) or too many (below), per (consumer, topic)."""

    def add(self, look: Look) -> None:
        """A look that found something. What was applied is read first, what was committed last."""
        applied: dict[str, int] = {}
        for line in look.figures.lines:
            applied[line.consumer] = applied.get(line.consumer, 0) + line.applied
        for series, found, at in (
            (self.applied, applied, look.began),
            (self.committed, look.figures.committed, look.ended),
        ):
            for name, total in found.items():
                series.setdefault(name, Series()).add(at, total, apart=bool(self.missed))
        self.before, self.last, self.missed = self.last, look, ""
        self._judge(look)

    def _judge(self, look: Look) -> None:
        """What is known to be missing stays so until its line adds up: a look that cannot tell takes nothing back."""
        settled = self.settled
        for line in look.figures.lines:
            place = line.consumer, line.topic
            if line.verdict == "adds up":
                self.missing.pop(place, None)
            elif line.verdict == "does not add up" and line in settled:
                self.missing[place] = line.difference
            elif number := look.unaccounted.get(place):
                self.missing[place] = number

    def miss(self, why: str, at: float) -> None:
        """A look that found nothing, and why."""
        if not self.missed:
            self.missed_at = at
        self.missed = why

    @property
    def settled(self) -> Sequence[Line]:
        """Lines of the last look that stand as they stood at the look before: their verdict counts. What is not found at one look
        may have been on its way from one place to another while they were read."""
        if self.last is None or self.before is None:
            return []
        return [line for line in self.last.figures.lines if line in self.before.figures.lines]

    def suspects(self, figures: Status) -> bool:
        """Whether something is not found for the second time in a row, while it moves: somebody should look closer."""
        before = {} if self.last is None else {(one.consumer, one.topic): one for one in self.last.figures.lines}
        return any(
            line.verdict == "does not add up" and earlier.verdict == "does not add up" and line != earlier
            for line in figures.lines
            if (earlier := before.get((line.consumer, line.topic))) is not None
        )

    @property
    def verdict(self) -> Verdict:
        """That of the last look; nobody can tell when it failed."""
        if self.last is None or self.missed:
            return "cannot tell"
        return "does not add up" if self.missing else outcome(self.last.figures, self.settled)
