"""What reporting-service remembers: the latest report of each day."""

from __future__ import annotations

from melmastoon.facts.reporting import reporting
from melmastoon.tables import run
from posthouse import Tx

REPORTS = """CREATE TABLE IF NOT EXISTS reporting_report (
    tenant TEXT NOT NULL, report_id TEXT NOT NULL, revision BIGINT NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (tenant, report_id))"""


@reporting.setup
async def make_tables(tx: Tx) -> None:
    await run(tx, REPORTS)
