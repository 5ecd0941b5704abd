"""Plan: which rates, for how long, and when each event is due. Whoever sends and whoever measures know the same times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import msgspec

Name = Literal["warm-up", "base", "peak", "base again", "saturation"]


class Phase(msgspec.Struct, frozen=True):
    """So many events per second, evenly, for so many seconds."""

    name: Name
    rate: float
    seconds: float

    @property
    def events(self) -> int:
        return round(self.rate * self.seconds)


class Schedule(msgspec.Struct, frozen=True):
    """Phases one after the other. Events have numbers from `first` on; the first phase begins at `began`, in seconds since 1970."""

    phases: Sequence[Phase]
    first: int
    began: float

    @property
    def events(self) -> int:
        return sum(phase.events for phase in self.phases)

    @property
    def ended(self) -> float:
        return self.began + sum(phase.seconds for phase in self.phases)

    def due(self, number: int) -> float:
        """When an event is to be committed, in seconds since 1970."""
        phase, before, begins = self._place(number)
        return begins + (number - self.first - before) / phase.rate

    def phase_of(self, number: int) -> Phase:
        """The phase that an event belongs to."""
        return self._place(number)[0]

    def begins(self, phase: Phase) -> float:
        """When it begins, in seconds since 1970."""
        place = list(self.phases).index(phase)
        return self.began + sum(one.seconds for one in self.phases[:place])

    def _place(self, number: int) -> tuple[Phase, int, float]:
        firsts, begins = [0], [self.began]
        for phase in self.phases:
            firsts.append(firsts[-1] + phase.events)
            begins.append(begins[-1] + phase.seconds)
        if not 0 <= number - self.first < firsts[-1]:
            raise ValueError(f"event {number} is in no phase")
        place = bisect_right(firsts, number - self.first) - 1
        return self.phases[place], firsts[place], begins[place]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a load is driven. `share`: the base rate is so much of the capacity that is measured first, unless `base` says it."""

    seconds: float = 120.0
    """Of the peak; each base phase takes half of it."""
    factor: float = 3.0
    """The peak, in base rates."""
    share: float = 0.1
    base: float | None = None
    """Events per second."""
    capacity_seconds: float = 10.0
    """For so long as much is committed as can be, to measure the capacity."""
    warm_up: float = 5.0
    saturated: float = 30.0
    """Seconds for which the consumers cannot keep up."""
    slowed: float = 0.5
    """What they do then, as a share of what is offered."""
    consumers: int = 2
    """Processes."""
    in_flight: int = 200
    """Of each."""

    def measured(self, base: float) -> list[Phase]:
        """The phases whose latencies are compared, and the warm-up before them."""
        return [
            Phase("warm-up", base, self.warm_up),
            Phase("base", base, self.seconds / 2),
            Phase("peak", base * self.factor, self.seconds),
            Phase("base again", base, self.seconds / 2),
        ]

    def saturation(self, base: float) -> list[Phase]:
        return [Phase("saturation", base * self.factor, self.saturated)]
