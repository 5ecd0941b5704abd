"""Findings are written as SARIF and as GitHub's annotations, whatever their texts hold."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, cast

from posthouse.cli.findings import Report, RuleText, github, sarif

RULES = [RuleText(id="a", summary="A.", level="note"), RuleText(id="b", summary="B.", help="Because.")]


def test_sarif_names_the_tool_its_rules_and_each_result_with_its_place() -> None:
    reports = [
        Report(rule="b", level="warning", text="wrong", file="src/a b.py", line=3, name="shop.x"),
        Report(rule="other", level="note", text="so so", fingerprint="f", leave="INC-7: pay day"),
    ]
    document = cast("dict[str, Any]", sarif(reports, RULES, command="posthouse check", properties={"mode": "FULL"}))
    assert document["version"] == "2.1.0"
    [run] = document["runs"]
    assert run["tool"]["driver"] == {
        "name": "posthouse check",
        "version": version("posthouse"),
        "rules": [
            {"id": "a", "shortDescription": {"text": "A."}, "defaultConfiguration": {"level": "note"}},
            {
                "id": "b",
                "shortDescription": {"text": "B."},
                "defaultConfiguration": {"level": "error"},
                "help": {"text": "Because.", "markdown": "Because."},
            },
        ],
    }
    assert run["properties"] == {"mode": "FULL"}
    assert run["results"] == [
        {
            "ruleId": "b",
            "level": "warning",
            "message": {"text": "wrong"},
            "suppressions": [],
            "ruleIndex": 1,
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": "src/a%20b.py", "uriBaseId": "SRCROOT"},
                        "region": {"startLine": 3},
                    },
                    "logicalLocations": [{"fullyQualifiedName": "shop.x"}],
                }
            ],
        },
        {
            "ruleId": "other",
            "level": "note",
            "message": {"text": "so so"},
            "suppressions": [{"kind": "external", "justification": "INC-7: pay day"}],
            "partialFingerprints": {"posthouse/v1": "f"},
        },
    ]


def test_an_annotation_stays_one_line_and_cannot_begin_another() -> None:
    report = Report(rule="a", level="error", text="50%\n::error::x\r", file="a,b:c.py", line=2, name="n")
    assert github([report]) == ["::error file=a%2Cb%3Ac.py,line=2,title=a n::50%25%0A::error::x%0D"]


def test_a_note_is_a_notice_and_may_have_no_place() -> None:
    assert github([Report(rule="a", level="note", text="x")]) == ["::notice title=a::x"]
