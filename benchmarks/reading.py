"""Reading: one line of the table. Ours beside the limit, measured in turns so that the machine's moods hit both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one measure found. `ratio` is our share of the limit's speed: 1 means as fast as the hand-written loop.
    `goal` is the figure that is wanted (`wanted` puts it into words) and `met` whether it was reached; None where nothing
    is promised."""

    measure: str
    ours: float
    limit: float | None
    ratio: float | None
    goal: float | None
    met: bool | None
    unit: str

    @property
    def wanted(self) -> str:
        """The goal in words: rates are judged by their ratio, counts must be reached, anything else is a bound."""
        if self.goal is None:
            return ""
        if self.unit == "events/s":
            return f"ratio ≥ {self.goal:g}"
        return f"{'≥' if self.unit == 'events' else '≤'} {self.goal:,g} {self.unit}"


class Scale(msgspec.Struct, frozen=True):
    """How much to measure: `share` of the usual counts, and `rounds` in place of each measure's own number."""

    share: float = 1.0
    rounds: int | None = None

    def count(self, usual: int) -> int:
        """So many events, at least one group of 100."""
        return max(100, int(usual * self.share))

    def turns(self, usual: int) -> int:
        """So many rounds."""
        return self.rounds or usual

    def seconds(self, usual: float) -> float:
        """So long."""
        return max(0.5, usual * self.share)


Round = Callable[[int], Awaitable[float]]
"""Given the number of the round: does the work and returns the seconds that it took."""


async def compare(
    measure: str, ours: Round, limit: Round, *, rounds: int, count: int, goal: float | None = None
) -> Reading:
    """Ours, limit, ours, limit …: medians in events per second, and the median of the rounds' ratios. A first round of
    both warms up and does not count."""
    await ours(0)
    await limit(0)
    pairs = [(await ours(number), await limit(number)) for number in range(1, rounds + 1)]
    ratio = statistics.median(theirs / mine for mine, theirs in pairs)
    return Reading(
        measure=measure,
        ours=count / statistics.median(mine for mine, _ in pairs),
        limit=count / statistics.median(theirs for _, theirs in pairs),
        ratio=ratio,
        goal=goal,
        met=None if goal is None else ratio >= goal,
        unit="events/s",
    )


def delays(measure: str, ours: Sequence[float], limit: Sequence[float], goals: dict[str, float]) -> list[Reading]:
    """Percentiles of two series of seconds, in milliseconds; `goals` are the most milliseconds for some of them."""
    found = []
    for name, rank in (("p50", 50), ("p95", 95), ("p99", 99)):
        mine, theirs = percentile(ours, rank) * 1000, percentile(limit, rank) * 1000
        most = goals.get(name)
        found.append(
            Reading(
                measure=f"{measure} {name}",
                ours=mine,
                limit=theirs,
                ratio=theirs / mine,
                goal=most,
                met=None if most is None else mine <= most,
                unit="ms",
            )
        )
    return found


def at_most(measure: str, ours: float, most: float, unit: str) -> Reading:
    """A figure that should stay below a bound; there is no loop to compare it with."""
    return Reading(measure=measure, ours=ours, limit=None, ratio=None, goal=most, met=ours <= most, unit=unit)


def figure(measure: str, ours: float, unit: str) -> Reading:
    """A figure for which nothing is promised."""
    return Reading(measure=measure, ours=ours, limit=None, ratio=None, goal=None, met=None, unit=unit)


def percentile(values: Sequence[float], rank: int) -> float:
    """The value below which `rank` percent lie."""
    return sorted(values)[min(len(values) - 1, len(values) * rank // 100)]


def timed(work: Callable[[], None]) -> float:
    """The seconds that it took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
