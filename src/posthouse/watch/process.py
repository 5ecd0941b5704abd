"""Process: what this process has counted and timed, as samples. It asks nobody, and may be read from any thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate

from posthouse.app import App
from posthouse.receiving.outcomes import AGES, YOUNG
from posthouse.seam import Seam
from posthouse.seam.counting import MANY, SOON, Histogram
from posthouse.seam.timing import BUCKETS, SHORTEST, Figure, merged
from posthouse.watch.samples import Distribution, Sample
from posthouse.watch.table import TABLE

FIRST_SHOWN = -10
"""Crossings are told apart from 2**-10 seconds on, about a millisecond, up to 64 seconds."""

BOUNDS: Mapping[str, Sequence[float]] = {
    "crossing_seconds": [2.0**power for power in range(FIRST_SHOWN, SHORTEST + BUCKETS - 1)],
    "event_processing_seconds": [2.0**power for power in range(SOON, SOON + MANY)],
    "event_age_seconds": [2.0**power for power in range(YOUNG, YOUNG + AGES)],
}
"""The bounds of each histogram, in seconds."""


def samples(apps: Iterable[App]) -> list[Sample]:
    """The figures of the Apps of this process, as they are now."""
    apps = list({id(app): app for app in apps}.values())
    seams = list({id(app.opened.seam): app.opened.seam for app in apps}.values())
    return [
        Sample("build_info", {"version": _version()}, 1),
        *(sample for seam in seams for sample in _counted(seam)),
        *_timed(seams),
        *(sample for app in apps for sample in _standing(app)),
    ]


def _counted(seam: Seam) -> list[Sample]:
    counts = [Sample(name, _labels(name, words), value) for name, words, value in seam.counting.counts()]
    spread = [Sample(one.name, _labels(one.name, one.labels), _spread(one)) for one in seam.counting.histograms()]
    return counts + spread


def _timed(seams: Sequence[Seam]) -> list[Sample]:
    figures = merged([figure for seam in seams for figure in seam.timing.figures()])
    return [
        Sample(
            "crossing_seconds",
            {"crossing": one.crossing, "name": one.name, "outcome": one.outcome},
            _crossed(one),
        )
        for one in figures
    ]


def _standing(app: App) -> list[Sample]:
    """What is in hand, and how often servers came back."""
    opened, found = app.opened, list[Sample]()
    for consumer in opened.consumers:
        place = {"service": consumer.service, "consumer": consumer.name}
        found.append(Sample("in_hand", place, consumer.in_hand))
        found.append(Sample("in_hand_limit", place, consumer.in_flight))
    if (written := opened.archived_events) is not None:
        found.append(Sample("archive_events_total", {"service": opened.name}, written))
    for step, seconds in opened.audit_overdue.items():
        found.append(Sample("audit_overdue_seconds", {"service": opened.name, "step": step}, seconds))
    for server, number in opened.outages.reconnects.items():
        found.append(Sample("reconnects_total", {"service": opened.name, "server": server}, number))
    return found


def _labels(name: str, words: Sequence[str]) -> dict[str, str]:
    return dict(zip(TABLE[name].labels, words, strict=True))


def _spread(of: Histogram) -> Distribution:
    buckets = of.buckets.copy()
    return Distribution(list(zip(BOUNDS[of.name], accumulate(buckets[:-1]), strict=True)), of.total, sum(buckets))


def _crossed(figure: Figure) -> Distribution:
    cumulative = list(accumulate(figure.buckets[:-1]))[FIRST_SHOWN - SHORTEST :]
    return Distribution(
        list(zip(BOUNDS["crossing_seconds"], cumulative, strict=True)), figure.total, sum(figure.buckets)
    )


def _version() -> str:
    try:
        return version("posthouse")
    except PackageNotFoundError:  # frozen into an executable without it
        return "unknown"
