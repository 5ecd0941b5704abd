"""Samples, as tests ask for them."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.watch.samples import Sample


class Found:
    """Samples by name and labels."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.all = samples

    def of(self, metric: str, **labels: str) -> list[float]:
        return [
            float(one.value)  # type: ignore[arg-type]  # no histograms here
            for one in self.all
            if one.metric == metric and labels.items() <= one.labels.items()
        ]

    def one(self, metric: str, **labels: str) -> float:
        (value,) = self.of(metric, **labels)
        return value
