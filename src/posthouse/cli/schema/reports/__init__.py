"""The gate's report, for people and for programs."""

from __future__ import annotations

from enum import StrEnum

import msgspec
import typer

from posthouse.cli.output import print_json
from posthouse.cli.schema.reports.github import commands
from posthouse.cli.schema.reports.located import Located
from posthouse.cli.schema.reports.people import show_report, summary
from posthouse.cli.schema.reports.sarif import sarif
from posthouse.governance.gate import Objection, Report

__all__ = ["Form", "Located", "print_report"]


class Form(StrEnum):
    """Who reads the report."""

    PEOPLE = "people"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def print_report(report: Report, form: Form, located: Located) -> None:
    """The report on stdout."""
    match form:
        case Form.PEOPLE:
            show_report(report, located)
        case Form.JSON:
            print_json(_as_json(report, located))
        case Form.SARIF:
            print_json(sarif(report, located))
        case Form.GITHUB:
            for line in commands(report, located):
                typer.echo(line)
            typer.echo(summary(report))


def _as_json(report: Report, located: Located) -> dict[str, object]:
    return {
        "passes": report.passes,
        "against": report.against,
        "mode": report.mode,
        "schemas": report.schemas,
        "changed": report.changed,
        "findings": [_finding(one, report, located) for one in report.objections],
        "bypasses": list({id(bypass): bypass for bypass in report.bypassed.values()}.values()),
    }


def _finding(one: Objection, report: Report, located: Located) -> dict[str, object]:
    bypass = report.bypassed.get(one.fingerprint)
    return {
        **msgspec.to_builtins(one),
        "file": located.path(one.file),
        "line": located.line(one),
        "fingerprint": one.fingerprint,
        "bypassed_by": None if bypass is None else bypass.incident,
    }
