"""Rules and their cases in the files of Prometheus: `rule_files` and `promtool test rules`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from posthouse.watch.alerts.alert import EXAMPLE, UP, Alert, Case, Given
from posthouse.watch.promql import duration_of
from posthouse.watch.table import metric

Value = str | int | float | Sequence["Value"] | Mapping[str, "Value"]

GROUP = "posthouse"
MINUTE = 60.0
FIRING = 'ALERTS{{alertname="{}",alertstate="firing"}}'
_PLAIN = re.compile(r"[A-Za-z][\w ./-]*[\w./-]|[A-Za-z]|\d+(ms|[smhd])")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def rule_file(alerts: Sequence[Alert], runbooks: str) -> str:
    """The rules, for `rule_files` of Prometheus. `runbooks`: where their pages are, as a URL or a folder."""
    groups: Value = [{"name": GROUP, "rules": [_rule(alert, runbooks.rstrip("/")) for alert in alerts]}]
    return _text({"groups": groups})


def case_file(alerts: Sequence[Alert], rules: str) -> str:
    """Of each alert one case in which it fires and one in which it does not, for `promtool test rules`. `rules`: the file of the
    rules, as seen from this one."""
    scale = alerts[0].ask.time_scale
    tests = [test for alert in alerts for test in (_test(alert, alert.fires, True), _test(alert, alert.quiet, False))]
    return _text({"rule_files": [rules], "evaluation_interval": duration_of(MINUTE * scale), "tests": tests})


def _rule(alert: Alert, runbooks: str) -> Mapping[str, Value]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **({"for": alert.ask.duration(alert.hold)} if alert.hold else {}),
        "labels": {"severity": alert.severity, "owner": alert.owner},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{runbooks}/{alert.page}.md",
        },
    }


def _test(alert: Alert, case: Case, fires: bool) -> Mapping[str, Value]:
    holds = int(alert.hold // MINUTE)
    after = case.after or holds + 3
    looks = {after: [_firing(alert, case)] if fires else []}
    if fires and holds > 1:
        looks = {holds - 1: [], **looks}
    return {
        "name": f"{alert.name} {'fires' if fires else 'does not fire'}",
        "interval": alert.ask.duration(MINUTE),
        "input_series": [
            {"series": series, "values": values} for one in case.given for series, values in _series(alert, one)
        ],
        "promql_expr_test": [
            {
                "expr": FIRING.format(alert.name),
                "eval_time": alert.ask.duration(MINUTE * minute),
                "exp_samples": [{"labels": labels, "value": 1} for labels in found],
            }
            for minute, found in looks.items()
        ],
    }


def _firing(alert: Alert, case: Case) -> str:
    """The one line of an alert that fires."""
    called = {label: _called(alert, case.given[0].name, label) for label in alert.by}
    own = {name: case.labels.get(label, EXAMPLE.get(label, "")) for label, name in called.items()}
    labels = {"alertname": alert.name, "alertstate": "firing", "owner": alert.owner, "severity": alert.severity, **own}
    return f"ALERTS{_braces(labels)}"


def _series(alert: Alert, one: Given) -> Iterator[tuple[str, str]]:
    """As Prometheus would have it; two processes say what they read from one store."""
    if one.name == UP or alert.ask.prefix == "" or metric(one.name).also is None:
        name = one.name if one.name == UP else metric(one.name).full
        labels = dict(one.labels)
    else:
        words = {label: word for label, word in one.labels.items() if label in metric(one.name).labels}
        said = {name: words[label] for label, name in (metric(one.name).also or alert).labels.items()}  # type: ignore[union-attr]
        name, labels = alert.ask.series(one.name).partition("{")[0], said
    several = one.name != UP and metric(one.name).source == "store" and "instance" not in one.labels
    for instance in ("a", "b") if several else (one.labels.get("instance", "a"),):
        yield f"{name}{_braces({**labels, 'instance': instance})}", one.values


def _called(alert: Alert, name: str, label: str) -> str:
    return label if name == UP or label not in metric(name).labels else alert.ask.label(name, label)


def _braces(labels: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{name}={json.dumps(word)}' for name, word in labels.items())}}}"


def _text(value: Value) -> str:
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Value) -> Iterator[str]:
    """YAML, of mappings, lists, texts and numbers."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            if isinstance(one, str | int | float) or not one:
                yield f"{name}: {_scalar(one)}"
            else:
                yield f"{name}:"
                yield from (f"  {line}" for line in _lines(one))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            first, *rest = [_scalar(one)] if isinstance(one, str | int | float) else _lines(one)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)


def _scalar(value: Value) -> str:
    if isinstance(value, str):
        return (
            value
            if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
            else json.dumps(value, ensure_ascii=False)
        )
    return str(value) if isinstance(value, int | float) else "[]"
