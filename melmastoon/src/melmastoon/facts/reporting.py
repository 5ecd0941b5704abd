"""reporting-service: what the hotelier reads in the morning."""

from __future__ import annotations

from datetime import date
from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

reporting = service("reporting", owner="insight")


@reporting.event("report.generated.v1", key="report_id", retention="warm", idempotency="required")
class ReportGenerated(Payload):
    """A report of one day was rendered; a later revision replaces it."""

    report_id: str
    day: date
    format: Literal["csv", "pdf"]
    lines: int
    sha256: str
    revision: int
