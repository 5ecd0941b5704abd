"""OpenTelemetry: the figures of the table as instruments of a meter, for whatever SDK the application has set up.

Names and units are such that a collector that writes them for Prometheus arrives at the names of the table."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as TooLate
from functools import partial
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from posthouse.app import App
from posthouse.errors import ConfigurationError
from posthouse.seam.timing import Place
from posthouse.watch.process import BOUNDS, samples
from posthouse.watch.prometheus import checked_prefix
from posthouse.watch.samples import Distribution, Sample, Value, summed
from posthouse.watch.standing import Standing
from posthouse.watch.table import PREFIX, TABLE, Also, Metric

log = logging.getLogger("posthouse.watch")

FRESH = 0.1
"""Seconds for which figures are good: one collection asks for each instrument in turn."""
STORES_FRESH = 1.0
"""The same, of stores and brokers."""
WITHIN = 8.0
"""Seconds that those may take."""

UNITS = {"seconds": "s", "1 or 0": ""}
"""What the units of the table are called; the others are what is counted, in braces."""


def export(*apps: App, provider: MeterProvider | None = None, stores: bool = False, prefix: str = "") -> Export:
    """Give the figures of these Apps to the application's meter provider, or to this one, until it is closed; a `with` block does
    that too. With `stores` those of their stores and brokers as well: then call it on the event loop on which the Apps run. With a
    `prefix` also under the platform's names. Nothing waits for whoever collects, and what goes wrong there is logged once."""
    if not apps:
        raise ConfigurationError("export needs an App: export(app)")
    return Export(apps, provider or metrics.get_meter_provider(), _loop() if stores else None, checked_prefix(prefix))


class Export:
    """Some Apps whose figures are exported. Close it before you export them again."""

    def __init__(
        self, apps: Sequence[App], provider: MeterProvider, loop: asyncio.AbstractEventLoop | None, prefix: str
    ) -> None:
        self._prefix = prefix
        self._process = _Latest(lambda: samples(apps), FRESH)
        self._stores = _Latest(partial(_there, Standing(apps), loop), STORES_FRESH) if loop is not None else None
        self._records: dict[str, list[Callable[[float, Mapping[str, str]], None]]] = {}
        self._seams = list({id(app.opened.seam): app.opened.seam for app in apps}.values())
        if any(seam.timing.heard is not None or seam.counting.heard is not None for seam in self._seams):
            raise ConfigurationError(f"{apps[0].opened.name} is exported already: close that export before another")
        self._instruments = _instruments(provider)
        for metric in TABLE.values():
            if metric.source == "process" or loop is not None:
                self._begin(metric)
        for seam in self._seams:
            seam.timing.heard, seam.counting.heard = self._crossed, self._noted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is said of these Apps from now on. Idempotent."""
        self._instruments.forget(self)
        for seam in self._seams:
            if seam.timing.heard == self._crossed:
                seam.timing.heard = seam.counting.heard = None

    # Counters and gauges: asked by whoever collects, in his thread.

    def _begin(self, metric: Metric) -> None:
        name, also = f"{PREFIX.rstrip('_')}.{_short(metric.name)}", metric.also if self._prefix else None
        theirs = "" if also is None else f"{self._prefix}_{_short(also.name)}"
        if metric.kind == "histogram":
            records = self._records.setdefault(metric.name, [])
            records.append(self._instruments.histogram(metric, name).record)
            if also is not None:
                record, labels = self._instruments.histogram(metric, theirs).record, also.labels
                records.append(lambda seconds, ours: record(seconds, {labels[one]: ours[one] for one in labels}))
            return
        self._instruments.ask(metric, name, self, partial(self._ours, metric))
        if also is not None:
            self._instruments.ask(metric, theirs, self, partial(self._theirs, metric, also))

    def _ours(self, metric: Metric) -> list[Observation]:
        return [Observation(_number(one.value), dict(one.labels)) for one in self._latest(metric)]

    def _theirs(self, metric: Metric, also: Also) -> list[Observation]:
        places = summed(also, self._latest(metric))
        names = tuple(also.labels.values())
        return [Observation(_number(v), dict(zip(names, place, strict=True))) for place, v in places.items()]

    def _latest(self, metric: Metric) -> list[Sample]:
        latest = self._process if metric.source == "process" else self._stores
        return [] if latest is None else [one for one in latest() if one.metric == metric.name]

    # Histograms: told as it happens, because the API has none that is asked.

    def _crossed(self, place: Place, seconds: float) -> None:
        self._noted("crossing_seconds", place, seconds)

    def _noted(self, name: str, labels: Sequence[str], seconds: float) -> None:
        try:
            ours = dict(zip(TABLE[name].labels, labels, strict=True))
            for record in self._records[name]:
                record(max(0.0, seconds), ours)
        except Exception:
            log.exception("the meter provider failed: nothing more of this process is exported")
            self.close()


class _Instruments:
    """Those of one meter provider. An SDK keeps the first of a name, so each is made once and asks all who export."""

    def __init__(self, provider: MeterProvider) -> None:
        self._meter = provider.get_meter("posthouse")
        self._histograms: dict[str, metrics.Histogram] = {}
        self._asked: dict[str, dict[Export, Callable[[], list[Observation]]]] = {}

    def histogram(self, metric: Metric, name: str) -> metrics.Histogram:
        if name not in self._histograms:
            self._histograms[name] = self._meter.create_histogram(
                name, _unit(metric), metric.meaning, explicit_bucket_boundaries_advisory=BOUNDS[metric.name]
            )
        return self._histograms[name]

    def ask(self, metric: Metric, name: str, who: Export, answer: Callable[[], list[Observation]]) -> None:
        if name not in self._asked:
            self._asked[name] = {}
            kind = metric.kind == "counter"
            create = self._meter.create_observable_counter if kind else self._meter.create_observable_gauge
            create(name, [partial(self._answers, name)], _unit(metric), metric.meaning)
        self._asked[name][who] = answer

    def forget(self, who: Export) -> None:
        for asked in self._asked.values():
            asked.pop(who, None)

    def _answers(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        return [one for answer in self._asked[name].copy().values() for one in answer()]


def _instruments(provider: MeterProvider) -> _Instruments:
    found = _known.get(provider)
    if found is None:
        found = _known[provider] = _Instruments(provider)
    return found


_known: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()


class _Latest:
    """A reading that is good for a moment. One that fails is none, and is told once in a row."""

    def __init__(self, read: Callable[[], Sequence[Sample]], fresh: float) -> None:
        self._read = read
        self._fresh = fresh
        self._at = float("-inf")
        self._found: Sequence[Sample] = ()
        self._failed = False

    def __call__(self) -> Sequence[Sample]:
        if time.monotonic() - self._at <= self._fresh:
            return self._found
        try:
            self._found, self._failed = self._read(), False
        except Exception as error:
            if not self._failed:
                log.warning("figures are left out of an export: %s: %s", type(error).__name__, error)
            self._found, self._failed = (), True
        self._at = time.monotonic()
        return self._found


def _there(standing: Standing, loop: asyncio.AbstractEventLoop) -> Sequence[Sample]:
    """Read on the loop of the Apps, from the thread of whoever collects. Collected on that very loop, nothing can be waited for."""
    if _running() is loop:
        raise RuntimeError("it was collected on the event loop of the App, which cannot answer meanwhile")
    reading = asyncio.run_coroutine_threadsafe(standing.samples(), loop)
    try:
        return reading.result(WITHIN)
    except TooLate:
        reading.cancel()
        raise


def _loop() -> asyncio.AbstractEventLoop:
    loop = _running()
    if loop is None:
        raise ConfigurationError("export(…, stores=True) reads on the event loop of the App: call it there")
    return loop


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _short(name: str) -> str:
    """Without what exporters to Prometheus append of themselves."""
    return name.removesuffix("_total").removesuffix("_seconds")


def _unit(metric: Metric) -> str:
    return UNITS.get(metric.unit, f"{{{metric.unit}}}")


def _number(value: Value) -> float:
    assert not isinstance(value, Distribution)
    return value
