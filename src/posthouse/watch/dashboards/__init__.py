"""Dashboards of Grafana, made from the table of figures."""

from __future__ import annotations

from posthouse.watch.dashboards.consumer import CONSUMER
from posthouse.watch.dashboards.grafana import Dashboard, Panel, written
from posthouse.watch.dashboards.overview import OVERVIEW

__all__ = ["DASHBOARDS", "Dashboard", "Panel", "written"]

DASHBOARDS = (OVERVIEW, CONSUMER)
