"""Panels of the dashboards: questions to the table, with the table's own sentences below their titles."""

from __future__ import annotations

from collections.abc import Sequence

from posthouse.watch.dashboards.grafana import RATE, Kind, Panel, Query, Unit, Variable
from posthouse.watch.promql import Promql, Words
from posthouse.watch.table import metric

ASK = Promql()
SERVICE = "(.*, )?($service)(, .*)?"
"""The service that was chosen, or an App that runs it with others: what they share has the names of them all."""


class Chosen:
    """What the reader has chosen, as conditions on figures that have these labels."""

    def __init__(self, **variables: str) -> None:
        self._variables = variables

    def only(self, name: str, more: dict[str, Words]) -> dict[str, Words]:
        chosen: dict[str, Words] = {
            label: value for label, value in self._variables.items() if label in metric(name).labels
        }
        return chosen | more

    def total(self, name: str, *by: str, legend: str = "", **only: Words) -> Query:
        return Query(ASK.total(name, *by, **self.only(name, only)), _legend(by, legend))

    def worst(self, name: str, *by: str, legend: str = "", **only: Words) -> Query:
        return Query(ASK.worst(name, *by, **self.only(name, only)), _legend(by, legend))

    def farthest(self, name: str, *by: str, legend: str = "", **only: Words) -> Query:
        return Query(ASK.farthest(name, *by, **self.only(name, only)), _legend(by, legend))

    def least(self, name: str, *by: str, legend: str = "", **only: Words) -> Query:
        return Query(ASK.least(name, *by, **self.only(name, only)), _legend(by, legend))

    def rate(self, name: str, *by: str, legend: str = "", **only: Words) -> Query:
        return Query(ASK.rate(name, *by, window=RATE, **self.only(name, only)), _legend(by, legend))

    def share(self, part: Query, whole: Query, *by: str) -> Query:
        return Query(f"{part.expr} / {whole.expr}", _legend(by, ""))

    def quantiles(self, name: str, *by: str) -> Sequence[Query]:
        shares = {"half": 0.5, "p95": 0.95, "p99": 0.99}
        return [
            Query(ASK.quantile(share, name, *by, window=RATE, **self.only(name, {})), _legend(by, word, word))
            for word, share in shares.items()
        ]


def stat(
    title: str, ask: Query, of: str, unit: Unit = "none", alarm: float | None = None, good: float | None = None
) -> Panel:
    """A number, green or red."""
    return _panel("stat", title, [ask], of, unit, alarm, good, 4)


def graph(
    title: str, asks: Query | Sequence[Query], of: str, unit: Unit = "short", alarm: float | None = None
) -> Panel:
    """Lines over time."""
    return _panel("timeseries", title, [asks] if isinstance(asks, Query) else asks, of, unit, alarm, None, 8)


def variable(label: str, of: str, **only: str) -> Variable:
    """The values that a label of this figure has."""
    return Variable(label, f"label_values({ASK.series(of, **only)}, {ASK.label(of, label)})")


def _panel(
    kind: Kind,
    title: str,
    asks: Sequence[Query],
    of: str,
    unit: Unit,
    alarm: float | None,
    good: float | None,
    width: int,
) -> Panel:
    return Panel(
        kind=kind, title=title, asks=asks, says=metric(of).meaning, unit=unit, alarm=alarm, good=good, width=width
    )


def _legend(by: Sequence[str], given: str, ending: str = "") -> str:
    if given and not ending:
        return given
    return " ".join([*(f"{{{{{label}}}}}" for label in by), ending]).strip() or "all"
