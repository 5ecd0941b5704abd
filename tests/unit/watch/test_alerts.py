"""Rules and panels ask only for what the table has, and nothing that can go wrong is without them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import get_args

import pytest
import yaml

from posthouse.errors import ConfigurationError
from posthouse.store import HeldState
from posthouse.watch import table
from posthouse.watch.alerts import Alert, Thresholds, alerts, case_file, rule_file, runbooks
from posthouse.watch.dashboards import DASHBOARDS, written
from posthouse.watch.promql import Promql, duration_of
from posthouse.watch.table import TABLE
from tests.kit.promql import names_in

ALERTS = alerts()
SCRAPED = {"instance", "job"}
"""Labels that Prometheus gives."""
SUFFIX = re.compile(r"_(bucket|sum|count)$")
SAID = {"$value", "humanize", "humanizeDuration", "humanizePercentage"}


def queries() -> Iterator[tuple[str, str]]:
    """Every expression that anybody is given, with where it is from."""
    for alert in ALERTS:
        yield alert.name, alert.expr
    for dashboard in DASHBOARDS:
        for panel in json.loads(written(dashboard))["panels"]:
            for target in panel.get("targets", []):
                yield f"{dashboard.uid}: {panel['title']}", target["expr"]


QUERIES = list(queries())


def names_of(figure: str) -> str:
    """Its name in the table."""
    short = figure.removeprefix("posthouse_")
    plain = SUFFIX.sub("", short)
    return plain if plain in TABLE and TABLE[plain].kind == "histogram" else short


@pytest.mark.parametrize(("place", "expr"), QUERIES, ids=[place for place, _ in QUERIES])
def test_every_name_label_and_word_of_a_query_is_of_the_table(place: str, expr: str) -> None:
    names = names_in(expr)
    figures = [(figure, chosen) for figure, chosen in names.figures if figure != "up"]
    known = {label for figure, _ in figures for label in TABLE[names_of(figure)].labels} | {"le"}
    assert figures or names.figures
    assert names.labels <= known, place
    for figure, chosen in figures:
        assert figure.startswith("posthouse_"), place
        metric = TABLE[names_of(figure)]
        assert set(chosen) <= set(metric.labels)
        for label, words in chosen.items():
            if "$" not in words:
                assert set(words.split("|")) <= set(metric.words.get(label, words.split("|"))), place


@pytest.mark.parametrize(("place", "expr"), QUERIES, ids=[place for place, _ in QUERIES])
def test_what_several_processes_read_from_one_store_is_never_summed_over_them(place: str, expr: str) -> None:
    """Directly around a figure of a store, or around a function of it, there is no `sum`."""
    inner = r"sum(?: by \([^)]*\))? \((?:\w+\()?(posthouse_\w+)"
    assert not [name for name in re.findall(inner, expr) if TABLE[names_of(name)].source == "store"], place


def test_the_reader_of_queries_finds_what_is_named() -> None:
    found = names_in('sum by (a, b) (rate(x_total{c="d e", f=~"g|h"}[5m])) / on (i) y offset 5m > 1e3 unless z{} > 0.5')
    assert found.figures == [("x_total", {"c": "d e", "f": "g|h"}), ("y", {}), ("z", {})]
    assert found.labels == {"a", "b", "i"}


def test_a_name_a_label_or_a_word_that_is_not_in_the_table_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'outbox_unsent'"):
        Promql().worst("outbox_unsend", "service")
    with pytest.raises(ConfigurationError, match="Did you mean 'service'"):
        Promql().worst("outbox_unsent", "servise")
    with pytest.raises(ConfigurationError, match="Did you mean 'dead'"):
        Promql().worst("held", "service", state="deat")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_names_only_labels_that_it_has(alert: Alert) -> None:
    for text in (alert.summary, alert.description):
        words = {word for braces in re.findall(r"{{(.*?)}}", text) for word in braces.replace("|", " ").split()}
        assert words - SAID <= {f"$labels.{label}" for label in alert.by}, text


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_has_a_runbook_that_is_shipped_and_names_it(alert: Alert) -> None:
    page = runbooks()[f"{alert.page}.md"]
    assert f"`{alert.name}`" in page


def test_no_two_alerts_have_one_name_and_each_case_gives_what_the_alert_asks_for() -> None:
    assert not [name for name, times in Counter(alert.name for alert in ALERTS).items() if times > 1]
    for alert in ALERTS:
        asked = {names_of(figure) for figure, _ in names_in(alert.expr).figures}
        for case in (alert.fires, alert.quiet):
            assert case.given, alert.name
        assert {one.name for one in alert.quiet.given} & asked, f"{alert.name} is quiet whatever it asks for"


@pytest.mark.parametrize("state", get_args(HeldState))
def test_every_held_state_has_an_alert_a_runbook_and_a_panel(state: str) -> None:
    of = [alert for alert in ALERTS if state in alert.states]
    assert of
    assert any(f"`{state}`" in runbooks()[f"{alert.page}.md"] for alert in of)
    assert any("posthouse_held{" in expr and "state" in names_in(expr).labels for _, expr in QUERIES)


def test_no_figure_is_in_the_table_twice() -> None:
    assert len(TABLE) == len(table._STORE) + len(table._PROCESS)


@pytest.mark.parametrize("name", TABLE)
def test_every_figure_has_a_panel(name: str) -> None:
    shown = {names_of(figure) for place, expr in QUERIES if ":" in place for figure, _ in names_in(expr).figures}
    assert name in shown


def test_alerts_of_the_seeds_have_their_names_thresholds_and_lengths() -> None:
    found = {alert.name: alert for alert in ALERTS}
    for name, limit, minutes in (
        ("outbox_lag_high", "> 60", 5),
        ("dlq_depth_growing", "* 60 > 1", 5),
        ("consumer_error_rate", "> 0.05", 5),
        ("saga_partial_rate", "> 0.01", 15),
        ("dlq_depth", "> 10", 5),
        ("consumer_lag_events", "> 10000", 5),
        ("relay_lag_p99", "> 30", 0),
    ):
        assert found[name].expr.endswith(limit), name
        assert found[name].hold == minutes * 60, name
    assert "> 0.001" in found["schema_drift"].expr
    assert (found["cross_tenant_publish_blocked"].severity, found["cross_tenant_publish_blocked"].owner) == (
        "page",
        "platform",
    )
    assert found["saga_partial_rate"].owner == "service, product"


def test_every_threshold_is_used_by_an_alert() -> None:
    for name, value in vars(Thresholds()).items():
        other = min(1.0, value / 2 + 0.001) if name.endswith("share") else value + 77
        changed = alerts(Thresholds(**{name: other}))
        assert [one.name for one, was in zip(changed, ALERTS, strict=True) if one.expr != was.expr], name


def test_a_platform_that_named_figures_itself_is_asked_by_these_names_where_it_wrote_the_rule() -> None:
    found = {alert.name: alert for alert in alerts(prefix="melmastoon")}
    assert found["outbox_lag_high"].expr == "max by (service) (melmastoon_outbox_oldest_unpublished_seconds) > 60"
    assert "sum by (service, subscription) (rate(melmastoon_events_dlq_total[5m]))" in found["dlq_depth_growing"].expr
    assert "{{ $labels.subscription }}" in found["dlq_depth_growing"].summary
    assert 'melmastoon_saga_completed_total{outcome="partial"}' in found["saga_partial_rate"].expr
    assert "by (service, saga_name)" in found["saga_partial_rate"].expr
    assert "melmastoon" not in found["held_dead"].expr


def test_a_label_of_the_scrapes_tells_figures_apart_in_every_rule() -> None:
    for alert in alerts(keep=["env"]):
        assert all("env" in by for by in re.findall(r"(?:by|on) \(([^)]*)\)", alert.expr)), alert.name


def test_the_files_are_yaml_that_says_what_the_alerts_say() -> None:
    rules = yaml.safe_load(rule_file(ALERTS, "https://wiki/runbooks/"))["groups"][0]["rules"]
    assert [(rule["alert"], rule["expr"]) for rule in rules] == [(alert.name, alert.expr) for alert in ALERTS]
    assert {rule["labels"]["severity"] for rule in rules} == {"page", "ticket"}
    for rule, alert in zip(rules, ALERTS, strict=True):
        assert rule["annotations"]["runbook_url"] == f"https://wiki/runbooks/{alert.page}.md"
        assert rule["annotations"]["description"] == alert.description
    cases = yaml.safe_load(case_file(ALERTS, "rules.yaml"))["tests"]
    assert Counter(case["name"] for case in cases) == Counter(
        f"{alert.name} {word}" for alert in ALERTS for word in ("fires", "does not fire")
    )


def test_a_scale_makes_everything_in_a_rule_shorter() -> None:
    rules = yaml.safe_load(rule_file(alerts(time_scale=0.01), "x"))["groups"][0]["rules"]
    for rule in rules:
        assert not re.search(r"\d[mhd]$", rule.get("for", "")), rule["alert"]
        assert not re.search(r"[\[ ]\d+(m|h|d)\b", rule["expr"]), rule["alert"]


def test_panels_have_ids_and_places_of_their_own_and_ask_the_chosen_source() -> None:
    for dashboard in DASHBOARDS:
        document = json.loads(written(dashboard))
        panels = document["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken = Counter(
            (x, y)
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        )
        assert max(taken.values()) == 1, "panels lie on each other"
        assert max(x for x, _ in taken) < 24
        assert {target["datasource"]["uid"] for panel in panels for target in panel.get("targets", [])} == {
            "${datasource}"
        }
        assert written(dashboard) == written(dashboard)


@pytest.mark.parametrize(("seconds", "said"), [(300, "5m"), (90, "90s"), (3, "3s"), (0.5, "500ms"), (86_400, "1d")])
def test_lengths_are_said_as_prometheus_says_them(seconds: float, said: str) -> None:
    assert duration_of(seconds) == said
