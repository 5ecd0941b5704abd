"""Prometheus: samples as text that Prometheus and OpenMetrics scrape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from posthouse.errors import ConfigurationError
from posthouse.redaction import storable
from posthouse.watch.samples import Distribution, Sample, Value, summed
from posthouse.watch.table import PREFIX, TABLE, Metric

Series = Mapping[tuple[str, ...], Value]
"""Values by the words of their labels, in the order of the labels."""

_WORD = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


class Figures(Collector):
    """A collector over samples that are read anew for each scrape; register it where you have a registry of your own. With a
    `prefix` the names that a platform gave to these figures are exported as well, beginning with it."""

    def __init__(self, read: Callable[[], Iterable[Sample]], *, prefix: str = "") -> None:
        self._read = read
        self._prefix = checked_prefix(prefix)

    def describe(self) -> Iterable[Family]:
        """Nothing is read at the registration."""
        return ()

    def collect(self) -> Iterator[Family]:
        place = {name: at for at, name in enumerate(TABLE)}
        for name, samples in groupby(sorted(self._read(), key=lambda one: place[one.metric]), lambda one: one.metric):
            metric, found = TABLE[name], list(samples)
            yield _family(metric, metric.full, metric.labels, _own(metric, found))
            if self._prefix and (also := metric.also) is not None:
                labels = tuple(also.labels.values())
                yield _family(metric, f"{self._prefix}_{also.name}", labels, summed(also, found))


def render(samples: Iterable[Sample], *, accept: str = "", prefix: str = "") -> tuple[bytes, str]:
    """The text of one scrape and its content type; `accept` is the header of the request, which may ask for OpenMetrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures(lambda: samples, prefix=prefix))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def checked_prefix(prefix: str) -> str:
    """The prefix, without an underscore at its end. ConfigurationError for what no metric can begin with."""
    word = prefix.rstrip("_")
    if prefix and (not _WORD.fullmatch(word) or f"{word}_" == PREFIX):
        raise ConfigurationError(
            f"no metric can begin with the prefix {prefix!r}: a letter, then letters, digits and _, "
            f"and not {PREFIX.rstrip('_')}, which is there anyway"
        )
    return word


def _own(metric: Metric, samples: Iterable[Sample]) -> Series:
    return {tuple(sample.labels[label] for label in metric.labels): sample.value for sample in samples}


def _family(metric: Metric, name: str, labels: tuple[str, ...], series: Series) -> Family:
    series = {
        tuple(map(storable, place)): value for place, value in series.items()
    }  # one bad word would cost the whole scrape
    unit = "seconds" if metric.unit == "seconds" else ""  # the client would append any other to the name
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.meaning, labels=labels, unit=unit)
        for place, value in series.items():
            assert isinstance(value, Distribution)
            buckets = [(repr(bound), float(number)) for bound, number in value.buckets]
            histogram.add_metric(place, [*buckets, ("+Inf", float(value.count))], value.sum)
        return histogram
    family = (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(
        name, metric.meaning, labels=labels, unit=unit
    )
    for place, value in series.items():
        assert not isinstance(value, Distribution)
        family.add_metric(place, value)
    return family
