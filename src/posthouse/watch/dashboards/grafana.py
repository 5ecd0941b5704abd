"""Grafana: dashboards as the JSON that Grafana 10 and later import. Ids and places are the same at every export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
Kind = Literal["stat", "timeseries"]
Unit = Literal["short", "s", "ops", "percentunit", "none"]

SCHEMA = 39
WIDE = 24
"""Columns of a row."""
SOURCE: Mapping[str, Json] = {"type": "prometheus", "uid": "${datasource}"}
RATE = "$__rate_interval"
"""As long as Grafana's resolution and the scrapes make sensible."""


class Query(msgspec.Struct, frozen=True):
    """What is asked, and how a line of the answer is called."""

    expr: str
    legend: str = "__auto"


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A picture. `alarm`: a number from which it is red; below it is green."""

    title: str
    asks: Sequence[Query]
    says: str
    unit: Unit = "short"
    kind: Kind = "timeseries"
    width: int = 8
    alarm: float | None = None
    good: float | None = None
    """Where more is better: below this number it is red."""


class Row(msgspec.Struct, frozen=True):
    """Panels under a heading."""

    title: str
    panels: Sequence[Panel]


class Variable(msgspec.Struct, frozen=True):
    """What the reader chooses: the values of a label."""

    name: str
    query: str


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    title: str
    says: str
    variables: Sequence[Variable]
    rows: Sequence[Row]

    @property
    def panels(self) -> Sequence[Panel]:
        return [panel for row in self.rows for panel in row.panels]


def written(dashboard: Dashboard) -> str:
    """The file to import."""
    document: Json = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.says,
        "tags": ["posthouse"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [{"type": "dashboards", "tags": ["posthouse"], "title": "Posthouse", "asDropdown": True}],
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": _placed(dashboard.rows),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _placed(rows: Sequence[Row]) -> list[Json]:
    """From left to right and from top to bottom, numbered in that order."""
    found: list[Json] = []
    top = 0
    for row in rows:
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": WIDE, "h": 1},
                "panels": [],
            }
        )
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > WIDE:
                top, left, height = top + height, 0, 0
            tall = 4 if panel.kind == "stat" else 8
            place = {"x": left, "y": top, "w": panel.width, "h": tall}
            found.append({"id": len(found) + 1, "gridPos": place, **_panel(panel)})
            left, height = left + panel.width, max(height, tall)
        top += height
    return found


def _panel(panel: Panel) -> Mapping[str, Json]:
    looks: Mapping[str, Json] = (
        {"colorMode": "background", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"]}}
        if panel.kind == "stat"
        else {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    )
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **_colours(panel)}, "overrides": []},
        "options": looks,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": False,
                "range": True,
            }
            for number, query in enumerate(panel.asks)
        ],
    }


def _colours(panel: Panel) -> Mapping[str, Json]:
    if panel.alarm is not None:
        steps = [("green", None), ("red", panel.alarm)]
    elif panel.good is not None:
        steps = [("red", None), ("green", panel.good)]
    else:
        return {"color": {"mode": "palette-classic"}} if panel.kind == "timeseries" else {}
    return {
        "thresholds": {"mode": "absolute", "steps": [{"color": colour, "value": value} for colour, value in steps]},
        **({"color": {"mode": "thresholds"}} if panel.kind == "stat" else {}),
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "hide": 0,
    }
