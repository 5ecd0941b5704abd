"""Samples: figures at one moment. What the table does not have cannot be said."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from posthouse.errors import ConfigurationError
from posthouse.seam.timing import OTHERS
from posthouse.watch.table import Also, Metric, metric


@dataclasses.dataclass(frozen=True, slots=True)
class Distribution:
    """The value of a histogram. `buckets`: how many were at most so large, cumulative, by their bounds; what lies beyond the last
    is in `count` alone."""

    buckets: Sequence[tuple[float, int]]
    sum: float
    count: int

    def __add__(self, other: Distribution) -> Distribution:
        """Both together; of the same bounds."""
        pairs = zip(self.buckets, other.buckets, strict=True)
        return Distribution(
            [(bound, one + more) for (bound, one), (_, more) in pairs], self.sum + other.sum, self.count + other.count
        )


Value = float | Distribution


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One figure of the table, its labels, and its value now. ConfigurationError for a metric, a label or a word that the table
    does not have, and for a value that is none."""

    metric: str
    labels: Mapping[str, str]
    value: Value

    def __post_init__(self) -> None:
        of = metric(self.metric)
        if set(self.labels) != set(of.labels):
            raise ConfigurationError(
                f"{of.name} has the labels {', '.join(of.labels) or '(none)'}, not {', '.join(self.labels) or '(none)'}"
            )
        for label, words in of.words.items():
            if (word := self.labels[label]) not in words and word != OTHERS:
                raise ConfigurationError(f"{label} of {of.name} is one of {', '.join(words)}, not {word!r}")
        if isinstance(self.value, Distribution) != (of.kind == "histogram"):
            raise ConfigurationError(
                f"{of.name} is a {of.kind}: its value is {'a Distribution' if of.kind == 'histogram' else 'a number'}"
            )
        if not isinstance(self.value, Distribution) and not math.isfinite(self.value):
            raise ConfigurationError(f"{of.name} cannot be {self.value}: leave out what nobody knows")

    @property
    def of(self) -> Metric:
        return metric(self.metric)


def summed(of: Also, samples: Iterable[Sample]) -> dict[tuple[str, ...], Value]:
    """The same under the platform's labels; what differs in other labels of ours is added up."""
    found: dict[tuple[str, ...], Value] = {}
    for sample in samples:
        if (place := of.place(sample.labels)) is not None:
            found[place] = _sum(found[place], sample.value) if place in found else sample.value
    return found


def _sum(one: Value, other: Value) -> Value:
    if isinstance(one, Distribution):
        assert isinstance(other, Distribution)
        return one + other
    assert not isinstance(other, Distribution)
    return one + other
