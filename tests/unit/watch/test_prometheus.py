"""Prometheus: the text is what its own parsers read, and the platform's names are sums of ours."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from posthouse.errors import ConfigurationError
from posthouse.watch.prometheus import Figures, render
from posthouse.watch.samples import Distribution, Sample
from posthouse.watch.table import TABLE, Metric

OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Key = tuple[str, frozenset[tuple[str, str]]]


def one_of(metric: Metric, **labels: str) -> Sample:
    """A sample of any metric."""
    words = {label: metric.words.get(label, (f"a-{label}",))[0] for label in metric.labels} | labels
    value = Distribution([(0.5, 2), (1.0, 3)], 4.25, 5) if metric.kind == "histogram" else 7.0
    return Sample(metric.name, words, value)


def parsed(samples: list[Sample], accept: str = "", prefix: str = "") -> dict[Key, float]:
    text, content_type = render(samples, accept=accept, prefix=prefix)
    parse = open_metrics if "openmetrics" in content_type else prometheus
    return {
        (line.name, frozenset(line.labels.items())): line.value
        for family in parse(text.decode())
        for line in family.samples
    }


@pytest.mark.parametrize("accept", ["", OPEN])
def test_every_metric_of_the_table_is_read_back_by_the_parser_as_it_was_said(accept: str) -> None:
    samples = [one_of(metric) for metric in TABLE.values()]

    found = parsed(samples, accept)

    for sample in samples:
        labels = frozenset(sample.labels.items())
        if sample.of.kind != "histogram":
            assert found.pop((sample.of.full, labels)) == 7.0
            continue
        assert found.pop((f"{sample.of.full}_sum", labels)) == 4.25
        assert found.pop((f"{sample.of.full}_count", labels)) == 5.0
        buckets = {le: found.pop((f"{sample.of.full}_bucket", labels | {("le", le)})) for le in ("0.5", "1.0", "+Inf")}
        assert buckets == {"0.5": 2.0, "1.0": 3.0, "+Inf": 5.0}
    assert found == {}


def test_open_metrics_is_given_to_those_who_ask_for_it() -> None:
    sample = one_of(TABLE["timers"])

    assert render([sample])[1].startswith("text/plain")
    text, content_type = render([sample], accept=OPEN)
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_help_and_type_come_from_the_table() -> None:
    text = render([one_of(TABLE["outbox_committed_total"])])[0].decode()

    assert f"# HELP posthouse_outbox_committed_total {TABLE['outbox_committed_total'].meaning}\n" in text
    assert "# TYPE posthouse_outbox_committed_total counter\n" in text


def test_what_has_no_sample_is_not_mentioned() -> None:
    assert render([])[0] == b""


def test_hostile_words_in_labels_stay_inside_their_quotes() -> None:
    evil = 'x"} 1\nposthouse_store_up{service="\\'
    found = parsed([Sample("timers", {"service": evil}, 1)])

    assert found == {("posthouse_timers", frozenset({("service", evil)})): 1.0}


def test_a_word_that_is_no_text_costs_nobody_the_scrape() -> None:
    found = parsed([Sample("timers", {"service": "gro\udcdf"}, 1), Sample("timers", {"service": "shop"}, 2)])

    assert found["posthouse_timers", frozenset({("service", "shop")})] == 2.0


def test_without_a_prefix_the_platforms_names_are_not_there() -> None:
    text = render([one_of(metric) for metric in TABLE.values()])[0].decode()

    assert all(line.startswith(("posthouse_", "# HELP posthouse_", "# TYPE posthouse_")) for line in text.splitlines())


def test_with_a_prefix_labels_that_the_platform_does_not_have_are_summed() -> None:
    def unsent(service: str, topic: str, number: int) -> Sample:
        return Sample("outbox_unsent", {"service": service, "topic": topic}, number)

    found = parsed([unsent("a", "x", 2), unsent("a", "y", 3), unsent("b", "x", 4)], prefix="melmastoon")

    theirs = {key[1]: value for key, value in found.items() if key[0] == "melmastoon_outbox_unpublished_count"}
    assert theirs == {frozenset({("service", "a")}): 5.0, frozenset({("service", "b")}): 4.0}


def test_with_a_prefix_words_get_the_platforms_names_and_the_rest_does_not_count() -> None:
    def ended(outcome: str, number: int) -> Sample:
        return Sample("saga_ended_total", {"service": "s", "saga": "booking", "outcome": outcome}, number)

    found = parsed(
        [
            ended("completed", 5),
            ended("compensated", 2),
            ended("cancelled", 1),
            ended("partial", 4),
            one_of(TABLE["events_published_total"], outcome="refused"),
        ],
        prefix="melmastoon",
    )

    place = {("service", "s"), ("saga_name", "booking")}
    assert {key: value for key, value in found.items() if key[0].startswith("melmastoon_")} == {
        ("melmastoon_saga_completed_total", frozenset({*place, ("outcome", "success")})): 5.0,
        ("melmastoon_saga_completed_total", frozenset({*place, ("outcome", "compensated")})): 3.0,
        ("melmastoon_saga_completed_total", frozenset({*place, ("outcome", "partial")})): 4.0,
    }


def test_with_a_prefix_histograms_are_there_too() -> None:
    found = parsed([one_of(TABLE["event_processing_seconds"])], OPEN, prefix="melmastoon_")

    assert ("melmastoon_event_processing_duration_seconds_count") in {name for name, _ in found}


@pytest.mark.parametrize("prefix", ["posthouse", "posthouse_", "1st", "mel mastoon", "a-b", "é", "_"])
def test_a_prefix_that_no_metric_can_begin_with_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        render([], prefix=prefix)


def test_a_registry_of_the_users_own_reads_anew_at_each_scrape() -> None:
    values = iter([1.0, 2.0])
    registry = CollectorRegistry()
    registry.register(Figures(lambda: [Sample("timers", {"service": "s"}, next(values))]))

    assert b'posthouse_timers{service="s"} 1.0' in generate_latest(registry)
    assert b'posthouse_timers{service="s"} 2.0' in generate_latest(registry)
