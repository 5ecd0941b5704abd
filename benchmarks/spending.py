"""Spending: what a piece of work costs with something and without it, in turns, beside what that something costs alone.

Each is read twice, by the clock and by the processor time of this process, in all its threads: a commit that waits for a disk or a server
hides nothing of that. The limit is the work without it, with the bare operation for each event, which is what nobody can leave out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple

from benchmarks.reading import Reading


class Spent(NamedTuple):
    """Seconds that a piece of work took: of the processor, in all threads, and by the clock."""

    cpu: float
    clock: float


Kind = Literal["ours", "without", "limit"]
KINDS: Sequence[Kind] = ("ours", "without", "limit")
Work = Callable[[Kind], Awaitable[Spent]]


async def spent(work: Awaitable[object]) -> Spent:
    """What it took."""
    cpu, clock = time.process_time(), time.perf_counter()
    await work
    return Spent(time.process_time() - cpu, time.perf_counter() - clock)


async def compared(title: str, work: Work, rounds: int, count: int, goal: float) -> list[Reading]:
    """Medians of the ratios of the rounds. A first round of each warms up and does not count."""
    turns = [[await work(kind) for kind in KINDS] for _ in range(rounds + 1)][1:]

    def reading(name: str, place: int, kind: int, goal: float | None = None) -> Reading:
        pairs = [(turn[kind][place], turn[1][place]) for turn in turns]
        ratio = statistics.median(without / ours for ours, without in pairs)
        ours, without = (count / statistics.median(column) for column in zip(*pairs, strict=True))
        met = None if goal is None else ratio >= goal
        return Reading(
            measure=f"{title}, {name}", ours=ours, limit=without, ratio=ratio, goal=goal, met=met, unit="events/s"
        )

    return [
        reading("rate", 1, 0, goal),
        reading("limit of the rate", 1, 2),
        reading("CPU", 0, 0, goal),
        reading("limit of the CPU", 0, 2),
    ]


def nothing() -> None:
    """What an event costs besides, where it costs nothing."""
