"""Alerts: what Prometheus tells people of, made from the table of figures. Each has a page in docs/runbooks."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.watch.alerts.alert import Alert, Case, Given, Thresholds
from posthouse.watch.alerts.pages import runbooks
from posthouse.watch.alerts.processes import ended, in_time, sagas
from posthouse.watch.alerts.receiving import consuming, failing, holding
from posthouse.watch.alerts.sending import outbox, sending
from posthouse.watch.alerts.watching import equation, ground, watching
from posthouse.watch.alerts.writing import case_file, rule_file
from posthouse.watch.promql import Promql

__all__ = ["Alert", "Case", "Given", "Thresholds", "alerts", "case_file", "rule_file", "runbooks"]


def alerts(
    over: Thresholds | None = None, *, keep: Sequence[str] = (), prefix: str = "", time_scale: float = 1.0
) -> Sequence[Alert]:
    """All of them. `keep`: labels of the scrapes, as `env`, that tell figures apart. `prefix`: rules that a platform has written for
    names of its own ask for these, as `melmastoon_events_dlq_total`. `time_scale`: how long everything lasts, for drills: 0.01
    makes three seconds of five minutes."""
    over = over or Thresholds()
    ours = Promql(keep=tuple(keep), time_scale=time_scale)
    named = Promql(keep=tuple(keep), time_scale=time_scale, prefix=prefix)
    return (
        *equation(ours),
        *watching(ours, over),
        *ground(ours, over),
        *outbox(named, over),
        *sending(ours, over),
        *failing(named, over),
        *consuming(ours, over),
        *holding(ours, over),
        *ended(named, over),
        *sagas(ours, over),
        *in_time(ours, over),
    )
