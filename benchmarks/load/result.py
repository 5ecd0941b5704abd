"""Result: what came of a load. Pure: from when each event was due, committed and applied."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.load.plan import Name, Schedule
from benchmarks.reading import Reading, at_most, figure

GOAL = 2.0
"""The p99 of the peak may be so many times that of the base."""
MEMORY = 64.0
"""MiB by which a process may grow while consumers cannot keep up."""

Times = Mapping[int, float]
"""When something happened to each event, by its number, in seconds since 1970."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """From the moment at which each event of a phase was due to its being applied, in milliseconds."""

    phase: Name
    rate: float
    events: int
    p50: float
    p99: float
    p999: float
    worst: float


class Second(msgspec.Struct, frozen=True, kw_only=True):
    """One second of the run. `backlog`: committed and not applied at its end. Milliseconds are of the events that were due in it,
    None where none was."""

    at: int
    phase: Name | None
    committed: int
    applied: int
    backlog: int
    p50: float | None
    p99: float | None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen while it ran: where events lay, how many the consumers had in hand, and MiB of memory by process."""

    at: float
    unsent: int
    at_broker: int
    in_hand: int
    memory: Mapping[str, float]


class Saturation(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which consumers do less than is offered, and producers go on as if nothing was. `backlog` is the most that was seen in
    the outbox and at the broker, `growth` the most that a process grew, in MiB."""

    offered: float
    done: float
    seconds: float
    events: int
    backlog: int
    in_hand: int
    in_hand_limit: int
    growth: float
    drained: float
    """Seconds until all was applied, once the consumers may be as fast as they can."""
    samples: Sequence[Sample]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    broker: str
    began: float
    """When the first phase began, in seconds since 1970."""
    cores: int
    load_before: float
    """How many processes wanted a core in the minute before, by the kernel's count: above 0.5 the machine was not ours alone."""
    capacity: float
    base: float
    factor: float
    latencies: Sequence[Latency]
    seconds: Sequence[Second]
    saturation: Saturation
    committed: int
    applied: int
    verdict: str

    def of(self, phase: Name) -> Latency:
        return next(one for one in self.latencies if one.phase == phase)

    @property
    def ratio(self) -> float:
        """p99 of the peak ÷ p99 of the base."""
        return self.of("peak").p99 / self.of("base").p99


def latencies(schedule: Schedule, applied: Times) -> list[Latency]:
    """By phase. Every event counts, also one that was committed late because those before it were slow."""
    found: dict[Name, list[float]] = {phase.name: [] for phase in schedule.phases}
    for number in range(schedule.first, schedule.first + schedule.events):
        found[schedule.phase_of(number).name].append((applied[number] - schedule.due(number)) * 1000)
    return [
        Latency(
            phase=phase.name,
            rate=phase.rate,
            events=phase.events,
            p50=quantile(found[phase.name], 0.5),
            p99=quantile(found[phase.name], 0.99),
            p999=quantile(found[phase.name], 0.999),
            worst=max(found[phase.name]),
        )
        for phase in schedule.phases
    ]


def timeline(schedules: Sequence[Schedule], committed: Times, applied: Times) -> list[Second]:
    """Second by second, from the first schedule's beginning until the last event was applied."""
    began = schedules[0].began
    end = math.ceil(max(applied.values()) - began)
    commits, applies = (_by_second(times, began) for times in (committed, applied))
    waits: dict[int, list[float]] = {}
    phases: dict[int, Name] = {}
    for schedule in schedules:
        for number in range(schedule.first, schedule.first + schedule.events):
            due = schedule.due(number)
            second = int(due - began)
            phases.setdefault(second, schedule.phase_of(number).name)
            waits.setdefault(second, []).append((applied[number] - due) * 1000)
    found, backlog = [], 0
    for second in range(end):
        backlog += commits[second] - applies[second]
        mine = waits.get(second)
        found.append(
            Second(
                at=second,
                phase=phases.get(second),
                committed=commits[second],
                applied=applies[second],
                backlog=backlog,
                p50=quantile(mine, 0.5) if mine else None,
                p99=quantile(mine, 0.99) if mine else None,
            )
        )
    return found


def _by_second(times: Times, began: float) -> Counter[int]:
    return Counter(int(at - began) for at in times.values())


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of them does not pass."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def readings(result: Result) -> list[Reading]:
    """The lines of the table."""
    found = [figure("capacity, all at once", result.capacity, "events per second")]
    for one in result.latencies:
        if one.phase != "warm-up":
            name = f"{one.phase}, {one.rate:,.0f}/s, {one.events:,} events"
            found += [
                figure(f"{name}: p50", one.p50, "ms"),
                figure(f"{name}: p99", one.p99, "ms"),
                figure(f"{name}: p99.9", one.p999, "ms"),
            ]
    again = result.of("base again").p99 / result.of("base").p99
    full = result.saturation
    return [
        *found,
        at_most(f"p99 at {result.factor:g}× the rate ÷ base", result.ratio, GOAL, "times"),
        figure("p99 at the base again ÷ base", again, "times"),
        figure("saturation: most that waited at outbox and broker", full.backlog, "events waiting"),
        at_most("saturation: most in hand", full.in_hand, full.in_hand_limit, "deliveries"),
        at_most("saturation: memory that a process grew", full.growth, MEMORY, "MiB"),
        figure("saturation: drained after", full.drained, "s"),
        Reading(
            measure="applied of what was committed",
            ours=result.applied,
            limit=None,
            ratio=None,
            goal=result.committed,
            met=result.applied == result.committed,
            unit="events",
        ),
    ]
