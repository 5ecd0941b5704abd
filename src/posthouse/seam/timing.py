"""Timing: how long each crossing of the seam took and how it ended, counted in memory. Telemetry only reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import frexp
from types import TracebackType
from typing import Literal

import msgspec

from posthouse.clock import SystemClock
from posthouse.errors import RuleBroken
from posthouse.store import Worker, WorkerTable

Crossing = Literal["outward", "inward", "handler", "publish", "receive", "transaction"]
"""outward: a fact on its way out, named by its subject. inward: a frame on its way in, by its consumer. handler: a call of one,
by its name. publish and receive: of the broker, by the service that publishes and the consumer that receives. transaction: of the
store, by who began it."""

OK = "ok"
"""The outcome of a crossing that nothing went wrong at; any other is a short word or the name of an error's class."""

MOST = 1_000
"""So many different (crossing, name, outcome) are told apart; whatever comes later is counted under `OTHERS`."""
OTHERS = "(others)"

SHORTEST = -20
"""The first bucket holds what took less than 2**-20 seconds, about a microsecond; each next one is twice as wide."""
BUCKETS = 28
"""The last one holds all that took 64 seconds and more."""

KEEP = 3600.0
"""Seconds for which the figures of a worker are shown that has given no sign of life since."""

NOTHING = b"[]"
"""The figures of a worker that has not written any yet."""

Place = tuple[Crossing, str, str]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """How often something crossed with one outcome, and how long it took. Durations are seconds."""

    crossing: Crossing
    name: str
    outcome: str
    count: int
    total: float
    longest: float
    buckets: Sequence[int]
    """How many took less than 2**-20, 2**-19, … seconds and not less than the one before."""

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def within(self, share: float) -> float:
        """Seconds within which this share of them crossed, at most a factor of two too many."""
        wanted, found = share * self.count, 0
        for place, count in enumerate(self.buckets[:-1]):
            found += count
            if found and found >= wanted:
                return min(2.0 ** (SHORTEST + place), self.longest)
        return self.longest


class Timing:
    """Figures of one process. A note costs well under a microsecond, and nothing is ever forgotten or written by it."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.now = now or SystemClock().monotonic
        """Seconds since some moment: what `note` compares with."""
        self.heard: Callable[[Place, float], None] | None = None
        """Told of each crossing as it is noted, and how many seconds it took."""
        self._cells: dict[Place, _Cell] = {}

    def note(self, crossing: Crossing, name: str, began: float, outcome: str = OK) -> None:
        """Something that began at `began`, by `now`, has crossed."""
        seconds = self.now() - began
        cell = self._cells.get((crossing, name, outcome))
        if cell is None:
            cell = self._new(crossing, name, outcome)
        cell.count += 1
        cell.total += seconds
        if seconds > cell.longest:
            cell.longest = seconds
        place = frexp(seconds)[1] - SHORTEST if seconds > 0 else 0
        cell.buckets[0 if place < 0 else place if place < BUCKETS else BUCKETS - 1] += 1
        if self.heard is not None:
            self.heard(cell.place, seconds)

    def measure(self, crossing: Crossing, name: str) -> Measured:
        """A block that is one crossing: `ok`, or the name of the error with which it was left, or what the block sets."""
        return Measured(self, crossing, name)

    def figures(self) -> list[Figure]:
        """Everything so far, sorted; from any thread."""
        return [
            Figure(
                crossing=crossing,
                name=name,
                outcome=outcome,
                count=cell.count,
                total=cell.total,
                longest=cell.longest,
                buckets=tuple(cell.buckets),
            )
            for (crossing, name, outcome), cell in sorted(self._cells.copy().items(), key=lambda item: item[0])
        ]

    def encoded(self) -> bytes:
        """The figures as others read them from the store: `posthouse status --verbose` is one."""
        return msgspec.json.encode(self.figures())

    def _new(self, crossing: Crossing, name: str, outcome: str) -> _Cell:
        place = (crossing, name, outcome) if len(self._cells) < MOST else (crossing, OTHERS, OTHERS)
        return self._cells.setdefault(place, _Cell(place))


class Measured:
    """One crossing of a block. `outcome` is noted at its end; an error that leaves the block is noted by its name."""

    __slots__ = ("_began", "_crossing", "_name", "_timing", "outcome")

    def __init__(self, timing: Timing, crossing: Crossing, name: str) -> None:
        self._timing = timing
        self._crossing = crossing
        self._name = name
        self.outcome = OK

    def __enter__(self) -> Measured:
        self._began = self._timing.now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outcome = self.outcome if error is None else outcome_of(error)
        self._timing.note(self._crossing, self._name, self._began, outcome)


def outcome_of(error: BaseException) -> str:
    """The name of an error, with the rule that was broken."""
    return f"{type(error).__name__} ({error.rule})" if isinstance(error, RuleBroken) else type(error).__name__


class _Cell:
    __slots__ = ("buckets", "count", "longest", "place", "total")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.count = 0
        self.total = 0.0
        self.longest = 0.0
        self.buckets = [0] * BUCKETS


class ServiceTiming(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of one service have timed, together. `age`: the youngest was written so many seconds ago."""

    service: str
    processes: int
    age: float
    figures: Sequence[Figure]


async def read_timing(table: WorkerTable) -> list[ServiceTiming]:
    """What workers have written lately, by their services."""
    services: dict[str, list[Worker]] = {}
    for row in await table.read():
        if abs(row.age) <= KEEP and row.figures != NOTHING:
            services.setdefault(", ".join(row.services), []).append(row)
    return [
        ServiceTiming(
            service=service,
            processes=len(rows),
            age=min(row.age for row in rows),
            figures=merged([one for row in rows for one in _decode(row.figures)]),
        )
        for service, rows in services.items()
    ]


def merged(figures: Sequence[Figure]) -> list[Figure]:
    """Figures of several processes as those of one, sorted."""
    found: dict[Place, Figure] = {}
    for one in figures:
        place = (one.crossing, one.name, one.outcome)
        known = found.get(place)
        found[place] = one if known is None else _sum(known, one)
    return [found[place] for place in sorted(found)]


_decode = msgspec.json.Decoder(list[Figure]).decode


def _sum(one: Figure, other: Figure) -> Figure:
    return msgspec.structs.replace(
        one,
        count=one.count + other.count,
        total=one.total + other.total,
        longest=max(one.longest, other.longest),
        buckets=[a + b for a, b in zip(one.buckets, other.buckets, strict=True)],
    )
