"""`posthouse schema check`: one report, in the form that its reader understands."""

from __future__ import annotations

import json
import shutil
from typing import Any, cast

import jsonschema_rs
import pytest
from typer.testing import Result

from posthouse.cli.schema.reports.github import commands
from posthouse.cli.schema.reports.located import Located
from posthouse.governance.evolution import Mode
from posthouse.governance.gate import Objection, Report, Severity
from tests.unit.cli.conftest import SHOP, Project

FILE = "event-schemas/orders/order/placed/v1.json"

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
PLACE = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation", "region"],
            "properties": {
                "artifactLocation": {"required": ["uri"], "properties": {"uri": {"pattern": "^[^/\\\\][^\\\\]*$"}}},
                "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}, "required": ["startLine"]},
            },
        }
    },
}
RESULT = {
    "type": "object",
    "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
    "properties": {
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": TEXT,
        "locations": {"type": "array", "items": PLACE, "minItems": 1},
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
        "suppressions": {"items": {"required": ["kind"], "properties": {"kind": {"enum": ["inSource", "external"]}}}},
    },
    "additionalProperties": {"type": ["string", "integer"]},
}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "tool": {"properties": {"driver": {"required": ["name", "rules"]}}, "required": ["driver"]},
                    "results": {"type": "array", "items": RESULT},
                },
            },
        },
    },
}
"""What a reader of SARIF 2.1.0 relies on, of the parts that we write."""


@pytest.fixture
def changed(project: Project) -> Project:
    """A shop that was frozen, and then renamed a field."""
    project.run("catalog", "freeze", "shop")
    shutil.copytree(project.folder / "event-schemas", project.folder / "released")
    project.write("shop.py", SHOP.replace("total_cents", "total"))
    project.run("catalog", "freeze", "shop")
    return project


def check(project: Project, *options: str) -> Result:
    return project.run("schema", "check", "--against", "released", *options)


def test_json_says_everything(changed: Project) -> None:
    result = check(changed, "--json")
    assert result.exit_code == 1
    assert result.stdout == check(changed, "--format", "json").stdout
    said = json.loads(result.stdout)
    assert (said["passes"], said["mode"], said["changed"], said["against"]) == (False, "ADDITIVE", 1, "released")
    gone = next(one for one in said["findings"] if one["rule"] == "field-removed")
    assert (gone["path"], gone["severity"], gone["file"]) == ("/total_cents", "error", FILE)
    assert gone["touched"] == [{"consumer": "orders", "handler": "shop.invoice", "certain": False}]
    assert gone["bypassed_by"] is None
    assert gone["example"] == {"order_id": "a", "total": 0}


def test_sarif_has_what_its_readers_rely_on(changed: Project) -> None:
    log = cast("dict[str, Any]", json.loads(check(changed, "--format", "sarif").stdout))
    jsonschema_rs.validator_for(SARIF).validate(log)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[one["ruleIndex"]] for one in run["results"]] == [one["ruleId"] for one in run["results"]]
    came = next(one for one in run["results"] if one["ruleId"] == "required-added")
    place = came["locations"][0]["physicalLocation"]
    line = (changed.folder / FILE).read_text().splitlines()[place["region"]["startLine"] - 1]
    assert '"total":' in line
    assert place["artifactLocation"]["uri"] == FILE
    assert came["suppressions"] == []
    assert "Way out:" in came["message"]["text"]


def test_sarif_shows_leave_as_a_suppression(changed: Project) -> None:
    result = check(changed, "--format", "sarif", "--bypass", "INC-7", "--reason", "pay day")
    assert result.exit_code == 0
    log = json.loads(result.stdout)
    jsonschema_rs.validator_for(SARIF).validate(log)
    assert [one["suppressions"] for one in log["runs"][0]["results"]] == [
        [{"kind": "external", "justification": "INC-7: pay day"}]
    ] * 2


def test_github_gets_one_command_per_finding_and_the_verdict(changed: Project) -> None:
    lines = check(changed, "--format", "github").stdout.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith(f"::error file={FILE},line=1,title=field-removed%3A shop.orders.order.placed.v1::")
    assert "%0AWay out: Keep it and mark it as deprecated." in lines[1]
    assert lines[2].startswith("this change must not pass (ADDITIVE): 2 errors; 1 schema, 1 changed")


def test_a_command_cannot_be_broken_out_of(project: Project) -> None:
    nasty = Objection(
        rule="a,b:c",
        severity=Severity.WARNING,
        subject="x",
        file="a%b,c.json",
        sentence="one\n::error::two 100%",
        way_out="",
        change="",
    )
    report = Report(mode=Mode.FULL, schemas=1, changed=1, objections=(nasty,))
    (line,) = commands(report, Located(project.folder / "event-schemas"))
    assert "\n" not in line
    assert "a%25b%2Cc.json,line=1,title=a%2Cb%3Ac%3A x::x, the event: one%0A::error::two 100%25" in line


def test_leave_is_shown_to_everyone(changed: Project) -> None:
    check(changed, "--bypass", "INC-7", "--reason", "pay day")
    assert "bypassed  INC-7 by" in check(changed).stdout
    assert check(changed, "--format", "github").stdout.startswith("::warning file=")
    said = json.loads(check(changed, "--json").stdout)
    assert {one["bypassed_by"] for one in said["findings"]} == {"INC-7"}
    assert [one["reason"] for one in said["bypasses"]] == ["pay day"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--mode", "FULL_TRANSITIVE"), "use FULL"),
        (("--reason", "pay day"), "--reason goes with --bypass INCIDENT"),
        (("--bypass", "INC-7"), "--bypass needs --reason"),
        (("--bypass", "", "--reason", "x"), "needs the id of an incident"),
        (("--dir", "nowhere"), "there is no folder nowhere: run `posthouse catalog freeze`"),
    ],
)
def test_what_cannot_be_meant_ends_with_2_and_a_sentence(changed: Project, options: tuple[str, ...], said: str) -> None:
    result = check(changed, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (changed.folder / "event-schemas" / "bypasses.json").exists()


def test_another_mode_may_let_it_pass(changed: Project) -> None:
    assert check(changed, "--mode", "none").exit_code == 0
    assert check(changed, "--mode", "forward").exit_code == 1
