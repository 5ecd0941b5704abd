"""The report as SARIF 2.1.0, which code scanning services and editors read."""

from __future__ import annotations

from importlib.metadata import version
from urllib.parse import quote

from posthouse.cli.schema.reports.located import Located
from posthouse.cli.schema.reports.people import told
from posthouse.contracts.gate import Objection, Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(report: Report, located: Located) -> dict[str, object]:
    """One log with one run."""
    rules = sorted({one.rule for one in report.objections})
    driver = {
        "name": "posthouse schema check",
        "version": version("posthouse"),
        "rules": [{"id": rule, "shortDescription": {"text": rule.replace("-", " ")}} for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The top of the repository."}}},
        "results": [_result(one, rules.index(one.rule), report, located) for one in report.objections],
        "properties": {"against": report.against, "mode": report.mode.value},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(one: Objection, rule: int, report: Report, located: Located) -> dict[str, object]:
    bypass = report.bypassed.get(one.fingerprint)
    place = {
        "artifactLocation": {"uri": quote(located.path(one.file)), "uriBaseId": "SRCROOT"},
        "region": {"startLine": located.line(one)},
    }
    suppressions = (
        [] if bypass is None else [{"kind": "external", "justification": f"{bypass.incident}: {bypass.reason}"}]
    )
    return {
        "ruleId": one.rule,
        "ruleIndex": rule,
        "level": one.severity.value,
        "message": {"text": told(one, bypass)},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"posthouse/v1": one.fingerprint},
        "suppressions": suppressions,
    }
