"""How long the crossings of the seam took, for `posthouse status --verbose`."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.cli.output import print_table, say
from posthouse.seam.timing import ServiceTiming

COLUMNS = ("CROSSING", "NAME", "OUTCOME", "COUNT", "MEAN", "HALF WITHIN", "99 % WITHIN", "LONGEST")


def show_timing(timed: Sequence[ServiceTiming]) -> None:
    """The figures for people, service by service."""
    if not timed:
        say("\nno process has written what it timed yet: each does so every ten seconds while it runs, and at its end")
    for one in timed:
        who = "one process since its start" if one.processes == 1 else f"{one.processes:,} processes since their starts"
        say(f"\n{one.service}: timed by {who}, as of {one.age:.0f} s ago")
        print_table(COLUMNS, rows_of(one))


def rows_of(timed: ServiceTiming) -> list[tuple[str | int, ...]]:
    """A row for each crossing, name and outcome."""
    return [
        (
            figure.crossing,
            figure.name,
            figure.outcome,
            figure.count,
            duration(figure.mean),
            duration(figure.within(0.5)),
            duration(figure.within(0.99)),
            duration(figure.longest),
        )
        for figure in timed.figures
    ]


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
