"""Findings for machines: SARIF 2.1.0 for code scanning, and annotations for GitHub's workflows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Literal
from urllib.parse import quote

import msgspec

Level = Literal["error", "warning", "note"]
"""As SARIF says it; GitHub calls the last one a notice."""

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `file` is relative to the root of the repository where that is known, with forward slashes; `line` counts
    from 1; `name` is what is meant when it is no file: a subject, a handler, a topic. `fingerprint` stays the same when lines
    move. `leave`: who let it pass, and why."""

    rule: str
    level: Level
    text: str
    file: str | None = None
    line: int | None = None
    name: str = ""
    fingerprint: str = ""
    leave: str = ""


class RuleText(msgspec.Struct, frozen=True, kw_only=True):
    """What a report may say about a rule: one line, and a paragraph in Markdown."""

    id: str
    summary: str
    help: str = ""
    level: Level = "error"


def sarif(
    reports: Iterable[Report], rules: Sequence[RuleText], *, command: str, properties: Mapping[str, str] | None = None
) -> dict[str, object]:
    """One run of one tool. `command` is the name under which results are tracked, as in `posthouse check`; `properties` say
    how it was run."""
    places = {rule.id: number for number, rule in enumerate(rules)}
    driver = {"name": command, "version": version("posthouse"), "rules": [_rule(rule) for rule in rules]}
    run: dict[str, object] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The top of the repository."}}},
        "results": [_result(report, places) for report in reports],
    }
    if properties:
        run["properties"] = dict(properties)
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def github(reports: Iterable[Report]) -> list[str]:
    """One workflow command for each; GitHub shows them beside the changed lines."""
    return [
        annotation(one.level, one.text, title=f"{one.rule} {one.name}".strip(), file=one.file, line=one.line)
        for one in reports
    ]


def _rule(rule: RuleText) -> dict[str, object]:
    made: dict[str, object] = {
        "id": rule.id,
        "shortDescription": {"text": rule.summary},
        "defaultConfiguration": {"level": rule.level},
    }
    if rule.help:
        made["help"] = {"text": rule.help, "markdown": rule.help}
    return made


def _result(report: Report, places: dict[str, int]) -> dict[str, object]:
    made: dict[str, object] = {
        "ruleId": report.rule,
        "level": report.level,
        "message": {"text": report.text},
        "suppressions": [{"kind": "external", "justification": report.leave}] if report.leave else [],
    }
    if report.rule in places:
        made["ruleIndex"] = places[report.rule]
    location: dict[str, object] = {}
    if report.file is not None:
        physical: dict[str, object] = {"artifactLocation": {"uri": quote(report.file), "uriBaseId": "SRCROOT"}}
        if report.line is not None:
            physical["region"] = {"startLine": report.line}
        location["physicalLocation"] = physical
    if report.name:
        location["logicalLocations"] = [{"fullyQualifiedName": report.name}]
    if location:
        made["locations"] = [location]
    if report.fingerprint:
        made["partialFingerprints"] = {"posthouse/v1": report.fingerprint}
    return made


def annotation(level: Level, text: str, *, title: str, file: str | None, line: int | None) -> str:
    """One workflow command. Without a file it stands beside the run."""
    kind = "notice" if level == "note" else level
    place = {"file": file, "line": line, "title": title}
    said = ",".join(f"{name}={_property(str(value))}" for name, value in place.items() if value is not None)
    return f"::{kind} {said}::{_data(text)}"


def _data(text: str) -> str:
    """The runner reads a line; what would end it is escaped as it wants."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
