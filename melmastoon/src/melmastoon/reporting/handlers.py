"""What reporting-service does about facts: each snapshot becomes a report, unless a later one is there."""

from __future__ import annotations

import csv
import hashlib
import io

import msgspec

from melmastoon.facts.analytics import SnapshotComputed
from melmastoon.facts.reporting import ReportGenerated, reporting
from melmastoon.tables import run, typed
from posthouse import Event, Reject, Tx

KEEP = """INSERT INTO reporting_report (tenant, report_id, revision, content) VALUES (?, ?, ?, ?)
    ON CONFLICT (tenant, report_id) DO UPDATE SET revision = excluded.revision, content = excluded.content
    WHERE reporting_report.revision < excluded.revision"""
CONTENT = "SELECT content FROM reporting_report WHERE tenant = ? AND report_id = ?"
NOT_FIGURES = ("snapshot_id", "day", "revision")


@reporting.on(SnapshotComputed)
async def render(event: Event[SnapshotComputed], tx: Tx) -> ReportGenerated | None:
    snapshot = event.data
    report_id = f"daily-{snapshot.snapshot_id}"
    content = as_csv(snapshot)
    if not (await run(tx, KEEP, tx.tenant, report_id, snapshot.revision, content)).rowcount:
        return None
    return ReportGenerated(
        report_id=report_id,
        day=snapshot.day,
        format="csv",
        lines=content.count("\n"),
        sha256=hashlib.sha256(content.encode()).hexdigest(),
        revision=snapshot.revision,
    )


def as_csv(snapshot: SnapshotComputed) -> str:
    """One line per figure, under a heading."""
    page = io.StringIO()
    lines = csv.writer(page, lineterminator="\n")
    lines.writerow(("figure", snapshot.day.isoformat()))
    figures = msgspec.structs.asdict(snapshot)
    lines.writerows((name, value) for name, value in figures.items() if name not in NOT_FIGURES)
    return page.getvalue()


async def read_report(tx: Tx, report_id: str) -> str:
    """The latest report under this name."""
    found = typed(await run(tx, CONTENT, tx.tenant, report_id), tuple[str])
    if not found:
        raise Reject(f"there is no report {report_id} in this tenant yet")
    return found[0][0]
