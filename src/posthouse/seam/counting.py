"""Counting: what a process has done, as numbers in memory. Telemetry only reads it.

Whoever counts asks once for the series of his labels and adds to it from then on; a series is there, as 0, from then on too. The names
are those of `watch/table.py`, and the words of the labels those that the code declares."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import frexp

from posthouse.events import PLATFORM
from posthouse.seam.timing import OTHERS

log = logging.getLogger("posthouse.counting")

MOST = 1_000
"""So many series of one name are told apart; whatever comes later is counted under `OTHERS`."""

CLASSES = 16
"""So many different words of a tenant class are told apart."""
LONGEST_CLASS = 64
"""Characters of such a word."""

SOON, MANY = -10, 17
"""Durations are told apart from 2**-10 seconds on, about a millisecond, by so many bounds, up to 64 seconds."""

Labels = tuple[str, ...]

TenantClass = Callable[[str], str]
"""Tells of which class a tenant is, in one of a few words such as `small` and `large`: called by the relay for the tenants of each
batch, so a lookup and nothing that waits."""

Heard = Callable[[str, Labels, float], None]
"""Told of each duration as it is noted: the name of the figure, its labels, seconds."""


class Count:
    """One series. Add to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """One series of durations. Bounds are powers of two seconds, from `first` on."""

    __slots__ = ("_counting", "buckets", "first", "labels", "name", "total")

    def __init__(self, counting: Counting, name: str, labels: Labels, first: int, bounds: int) -> None:
        self._counting = counting
        self.name = name
        self.labels = labels
        self.first = first
        self.total = 0.0
        self.buckets = [0] * (bounds + 1)
        """How many took less than 2**first, 2**(first + 1), … seconds and not less than the one before; the last: all that took longer."""

    def note(self, seconds: float, times: int = 1) -> None:
        """So many took so long, each; clocks that do not agree make none shorter than nothing."""
        seconds = max(0.0, seconds)
        place = frexp(seconds)[1] - self.first if seconds > 0 else 0
        buckets = self.buckets
        buckets[0 if place < 0 else place if place < len(buckets) else -1] += times
        self.total += seconds * times
        if (heard := self._counting.heard) is not None:
            for _ in range(times):
                heard(self.name, self.labels, seconds)

    def note_all(self, durations: Sequence[float]) -> None:
        """Each took so long. They are noted where many come at once, and every call would cost."""
        durations = [max(0.0, seconds) for seconds in durations]
        buckets, first, last = self.buckets, self.first, len(self.buckets) - 1
        for seconds in durations:
            place = frexp(seconds)[1] - first if seconds > 0 else 0
            buckets[0 if place < 0 else place if place < last else last] += 1
        self.total += sum(durations)
        if (heard := self._counting.heard) is not None:
            for seconds in durations:
                heard(self.name, self.labels, seconds)


class Counting:
    """The numbers of one process. What they are made of cannot grow without end, whatever words it is given."""

    def __init__(self, tenant_class: TenantClass | None = None) -> None:
        self.heard: Heard | None = None
        self._counts: dict[str, dict[Labels, Count]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        self._tenant_class = tenant_class
        self._classes: set[str] = set()
        self._complained = False

    def counter(self, name: str, *labels: str) -> Count:
        """The series of these labels, in the order of the table."""
        series = self._counts.get(name)
        if series is None:
            series = self._counts.setdefault(name, {})
        found = series.get(labels)
        if found is None:
            found = series.setdefault(_within(series, labels), Count())
        return found

    def histogram(self, name: str, *labels: str, first: int = SOON, bounds: int = MANY) -> Histogram:
        """The series of these labels; so many bounds, the first of them 2**first seconds."""
        series = self._histograms.setdefault(name, {})
        found = series.get(labels)
        if found is None:
            place = _within(series, labels)
            found = series.setdefault(place, Histogram(self, name, place, first, bounds))
        return found

    def counts(self) -> list[tuple[str, Labels, int]]:
        """Every counter as it stands; from any thread."""
        return [
            (name, labels, count.value)
            for name, series in self._counts.copy().items()
            for labels, count in series.copy().items()
        ]

    def histograms(self) -> list[Histogram]:
        """Every histogram; from any thread."""
        return [found for series in self._histograms.copy().values() for found in series.copy().values()]

    # Tenants.

    @property
    def classifies(self) -> bool:
        """Whether somebody tells the class of a tenant."""
        return self._tenant_class is not None

    def class_of(self, tenant: str) -> str:
        """The class of a tenant; empty where nobody tells it. Whatever the function does, a word comes of it: what it raises, what
        is no word, the tenant itself, and a word too many are counted under `OTHERS`, and the first of them is logged."""
        if self._tenant_class is None:
            return ""
        try:
            given: object = self._tenant_class(tenant)
        except Exception as error:
            return self._complain(f"it raised {type(error).__name__}")
        word = str.__str__(given) if isinstance(given, str) else ""  # also that of an Enum
        if not 0 < len(word) <= LONGEST_CLASS or not word.isprintable():
            kind = type(given).__name__
            return self._complain(f"it gave {kind}, and no text of 1 to {LONGEST_CLASS} characters that can be printed")
        if word in self._classes:
            return word
        if word == tenant and tenant != PLATFORM:
            return self._complain("it gave the tenant itself: give one of a few words")
        if len(self._classes) >= CLASSES:
            return self._complain(f"it has given {CLASSES} different words, and gives another")
        self._classes.add(word)
        return word

    def _complain(self, why: str) -> str:
        if not self._complained:
            self._complained = True
            log.error("tenant_class does not work, and such tenants are counted under %s: %s", OTHERS, why)
        return OTHERS


def _within(series: dict[Labels, Count] | dict[Labels, Histogram], labels: Sequence[str]) -> Labels:
    """These labels, or those of the rest when there are too many."""
    return tuple(labels) if len(series) < MOST else (OTHERS,) * len(labels)
