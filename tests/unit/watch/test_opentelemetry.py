"""OpenTelemetry: the same figures through the SDK's own readers, and nobody waits for a collector."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)

from posthouse import App, Event, Payload, Service, Tx
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.contracts import event_type_of
from posthouse.errors import ConfigurationError
from posthouse.watch import opentelemetry as adapter
from posthouse.watch.opentelemetry import export
from posthouse.watch.process import BOUNDS, samples
from posthouse.watch.samples import Distribution
from posthouse.watch.table import TABLE
from tests.kit.waiting import eventually

shop = Service("shop")


@shop.event("order.placed.v1", key="order")
class OrderPlaced(Payload):
    order: str


@shop.on(OrderPlaced)
async def book(event: Event[OrderPlaced], tx: Tx) -> None:
    pass


TOPIC = event_type_of(OrderPlaced).topic
[CONSUMER] = shop.declared.consumers
PLACE = {"service": "shop", "consumer": CONSUMER, "topic": TOPIC}

Point = tuple[str, frozenset[tuple[str, object]]]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    app = App(shop, store=f"sqlite:///{tmp_path}/shop.db", broker=MemoryBroker(clock=SystemClock()))
    yield app
    await app.aclose()


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    provider = MeterProvider([reader], shutdown_on_exit=False)
    yield provider
    provider.shutdown()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two collections in a row are two readings."""
    monkeypatch.setattr(adapter, "FRESH", 0.0)
    monkeypatch.setattr(adapter, "STORES_FRESH", 0.0)


def collected(reader: InMemoryMetricReader) -> dict[Point, object]:
    """Every point, by the name of its instrument and its attributes."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        (metric.name, frozenset((point.attributes or {}).items())): point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def value(found: dict[Point, object], name: str, labels: dict[str, str]) -> float:
    point = found[name, frozenset(labels.items())]
    return point.value  # type: ignore[attr-defined,no-any-return]


async def publish(count: int) -> None:
    async with shop.transaction(tenant="t1") as tx:
        for number in range(count):
            tx.publish(OrderPlaced(order=f"o{number}"))


def applied(app: App) -> float:
    return sum(
        one.value
        for one in samples([app])
        if one.metric == "events_consumed_total" and one.labels["result"] == "ok" and isinstance(one.value, int)
    )


async def run(app: App, count: int) -> None:
    """So many events, published and applied."""
    async with app.running():
        await publish(count)
        await eventually(lambda: applied(app), right=lambda number: number == count)


async def test_counters_gauges_and_histograms_say_what_the_samples_say(
    app: App, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    with export(app, provider=provider):
        await run(app, 7)
        found = collected(reader)
        said = samples([app])

    names = {name for name, _ in found}
    assert names == {f"posthouse.{adapter._short(one.metric)}" for one in said}
    for one in said:
        point = found[f"posthouse.{adapter._short(one.metric)}", frozenset(one.labels.items())]
        if isinstance(one.value, Distribution):
            assert isinstance(point, HistogramDataPoint)
            assert point.count == one.value.count
            assert point.sum == pytest.approx(one.value.sum)
            assert list(point.explicit_bounds) == BOUNDS[one.metric]
        else:
            assert point.value == one.value  # type: ignore[attr-defined]


async def test_names_and_units_become_those_of_the_table_behind_a_collector(
    app: App, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    """An exporter to Prometheus turns dots into underscores, appends seconds for `s`, `_total` for a sum that only grows, `_ratio`
    for the unit 1, and drops what is in braces."""
    with export(app, provider=provider):
        await run(app, 1)
        data = reader.get_metrics_data()

    assert data is not None
    found = [metric for one in data.resource_metrics for scope in one.scope_metrics for metric in scope.metrics]
    for metric in found:
        name = metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")
        name += "_total" if getattr(metric.data, "is_monotonic", False) else ""
        assert name.removeprefix("posthouse_") in TABLE
        assert metric.unit in ("s", "") or (metric.unit or "").startswith("{")


async def test_with_a_prefix_the_platforms_names_are_there_too(
    app: App, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    with export(app, provider=provider, prefix="melmastoon"):
        await run(app, 3)
        found = collected(reader)

    theirs = {"service": "shop", "topic": TOPIC, "subscription": CONSUMER}
    assert value(found, "melmastoon_events_consumed", {**theirs, "result": "ok"}) == 3
    assert value(found, "melmastoon_events_dlq", theirs) == 0
    took = found["melmastoon_event_processing_duration", frozenset(theirs.items())]
    assert isinstance(took, HistogramDataPoint)
    assert took.count == 3


async def test_figures_of_the_stores_are_read_on_the_loop_of_the_app(
    app: App, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    async with app.running():
        await publish(5)
        await eventually(lambda: applied(app), right=lambda number: number == 5)
        with export(app, provider=provider, stores=True):
            found = await asyncio.to_thread(collected, reader)

    assert value(found, "posthouse.store_up", {"service": "shop"}) == 1
    assert value(found, "posthouse.outbox_committed", {"service": "shop", "topic": TOPIC}) == 5
    assert value(found, "posthouse.consumer_unaccounted", PLACE) == 0


async def test_collected_on_the_loop_of_the_app_the_stores_are_left_out_and_nothing_hangs(
    app: App, provider: MeterProvider, reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    async with app.running():
        with export(app, provider=provider, stores=True):
            found = collected(reader)

    assert "posthouse.build_info" in {name for name, _ in found}
    assert "posthouse.store_up" not in {name for name, _ in found}
    assert "which cannot answer meanwhile" in caplog.text


def test_the_figures_of_stores_need_a_loop(app: App, provider: MeterProvider) -> None:
    with pytest.raises(ConfigurationError, match="call it there"):
        export(app, provider=provider, stores=True)


async def test_a_collector_that_never_answers_slows_nothing(app: App) -> None:
    hangs, let_go = threading.Event(), threading.Event()

    class Hanging(MetricExporter):
        def export(
            self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object
        ) -> MetricExportResult:
            hangs.set()
            let_go.wait(60)
            return MetricExportResult.FAILURE

        def force_flush(self, timeout_millis: float = 10_000) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
            let_go.set()

    provider = MeterProvider([PeriodicExportingMetricReader(Hanging(), 10)], shutdown_on_exit=False)
    try:
        with export(app, provider=provider):
            await eventually(hangs.is_set)
            await run(app, 200)
            assert not let_go.is_set(), "it hung all the time"
    finally:
        let_go.set()
        provider.shutdown()


async def test_a_meter_that_fails_is_told_once_and_no_event_is_lost(
    app: App, provider: MeterProvider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("no room")

    with export(app, provider=provider) as exported:
        monkeypatch.setattr(exported, "_records", {name: [broken] for name in exported._records})
        with caplog.at_level(logging.ERROR, logger="posthouse.watch"):
            await run(app, 20)

    assert [record.getMessage() for record in caplog.records if record.name == "posthouse.watch"] == [
        "the meter provider failed: nothing more of this process is exported"
    ]


async def test_after_its_end_nothing_is_said_and_it_can_be_exported_again(
    app: App, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    first = export(app, provider=provider)
    with pytest.raises(ConfigurationError, match="exported already"):
        export(app, provider=provider)
    first.close()
    first.close()
    assert collected(reader) == {}

    with export(app, provider=provider):
        await run(app, 2)
        found = collected(reader)
        assert value(found, "posthouse.events_consumed", {**PLACE, "result": "ok"}) == 2
        took = found["posthouse.event_processing", frozenset(PLACE.items())]
        assert isinstance(took, HistogramDataPoint)
        assert took.count == 2


async def test_apps_that_are_exported_one_by_one_are_both_there(
    app: App, provider: MeterProvider, reader: InMemoryMetricReader
) -> None:
    other = App(Service("mill"), store="sqlite://", broker=MemoryBroker(clock=SystemClock()))
    with export(app, provider=provider), export(other, provider=provider):
        found = collected(reader)

    for service in ("shop", "mill"):
        assert value(found, "posthouse.reconnects", {"service": service, "server": "store"}) == 0


def test_an_export_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"export\(app\)"):
        export()


@pytest.mark.parametrize("name", TABLE)
def test_every_histogram_has_bounds_that_grow(name: str) -> None:
    if TABLE[name].kind == "histogram":
        assert list(BOUNDS[name]) == sorted(set(BOUNDS[name]))
    else:
        assert name not in BOUNDS
