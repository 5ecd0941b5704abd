"""The report as GitHub's workflow commands: each objection stands beside its line in the pull request."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.cli.findings import annotation
from posthouse.cli.schema.reports.located import Located
from posthouse.cli.schema.reports.people import told
from posthouse.cli.schema.reports.sarif import LEVELS
from posthouse.governance.gate import Report


def commands(report: Report, located: Located) -> Iterator[str]:
    """One command for each. What was given leave for is no error any more."""
    for one in report.objections:
        bypass = report.bypassed.get(one.fingerprint)
        level = LEVELS[one.severity] if bypass is None else "warning"
        title, file, line = f"{one.rule}: {one.subject}", located.path(one.file), located.line(one)
        yield annotation(level, told(one, bypass), title=title, file=file, line=line)
