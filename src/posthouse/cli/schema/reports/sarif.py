"""The report as SARIF 2.1.0, which code scanning services and editors read."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.cli import findings
from posthouse.cli.findings import Level, RuleText
from posthouse.cli.schema.reports.located import Located
from posthouse.cli.schema.reports.people import told
from posthouse.governance.gate import Objection, Report, Severity

LEVELS: Mapping[Severity, Level] = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def sarif(report: Report, located: Located) -> dict[str, object]:
    """One log with one run."""
    levels = {one.rule: LEVELS[one.severity] for one in report.objections}
    return findings.sarif(
        [_finding(one, report, located) for one in report.objections],
        [RuleText(id=rule, summary=rule.replace("-", " "), level=levels[rule]) for rule in sorted(levels)],
        command="posthouse schema check",
        properties={"against": report.against, "mode": report.mode.value},
    )


def _finding(one: Objection, report: Report, located: Located) -> findings.Report:
    bypass = report.bypassed.get(one.fingerprint)
    return findings.Report(
        rule=one.rule,
        level=LEVELS[one.severity],
        text=told(one, bypass),
        file=located.path(one.file),
        line=located.line(one),
        fingerprint=one.fingerprint,
        leave="" if bypass is None else f"{bypass.incident}: {bypass.reason}",
    )
