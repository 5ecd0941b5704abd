"""The report as GitHub's workflow commands: each objection stands beside its line in the pull request."""

from __future__ import annotations

from collections.abc import Iterator

from posthouse.cli.schema.reports.located import Located
from posthouse.cli.schema.reports.people import told
from posthouse.contracts.gate import Report, Severity

LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def commands(report: Report, located: Located) -> Iterator[str]:
    """One command for each. What was given leave for is no error any more."""
    for one in report.objections:
        bypass = report.bypassed.get(one.fingerprint)
        level = LEVELS[one.severity] if bypass is None else "warning"
        place = {"file": located.path(one.file), "line": str(located.line(one)), "title": f"{one.rule}: {one.subject}"}
        said = ",".join(f"{name}={_property(value)}" for name, value in place.items())
        yield f"::{level} {said}::{_data(told(one, bypass))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
