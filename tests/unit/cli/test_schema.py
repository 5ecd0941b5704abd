"""`posthouse schema diff`: one verdict, for people and for programs, with an exit code for each outcome."""

from __future__ import annotations

import json

import pytest
from typer.testing import Result

from tests.unit.cli.conftest import Project

OLD: dict[str, object] = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "total": {"type": "integer", "maximum": 1000}},
    "required": ["order_id"],
}
STRICTER = {**OLD, "required": ["order_id", "total"]}
LOWER = {**OLD, "properties": {"order_id": {"type": "string"}, "total": {"type": "integer", "maximum": 500}}}
OWN = {
    **OLD,
    "properties": {"order_id": {"type": "string", "format": "x-own"}, "total": {"type": "integer", "maximum": 1000}},
}


def diff(project: Project, old: object, new: object, *more: str) -> Result:
    project.write("old.json", json.dumps(old))
    project.write("new.json", json.dumps(new))
    return project.run("schema", "diff", "old.json", "new.json", *more)


def test_a_compatible_change_ends_with_0(project: Project) -> None:
    result = diff(project, STRICTER, OLD)
    assert result.exit_code == 0
    assert result.stdout == "compatible (BACKWARD)\n"


def test_a_breaking_change_ends_with_1_and_says_what_for_whom_how_and_the_way_out(project: Project) -> None:
    result = diff(project, OLD, STRICTER)
    assert result.exit_code == 1
    for said in (
        "✗ /total  required-added",
        '"total" is required now; old data may lack it.',
        "breaks new readers of old data",
        '{"order_id":"a"}',
        "Leave it optional with a default",
        "incompatible (BACKWARD): 1 break",
    ):
        assert said in result.stdout


def test_a_change_that_cannot_be_judged_ends_with_2(project: Project) -> None:
    result = diff(project, OLD, OWN)
    assert result.exit_code == 2
    assert "? /order_id  format-narrowed" in result.stdout
    assert "cannot be judged, so it does not pass" in result.stdout


def test_the_mode_says_who_counts(project: Project) -> None:
    assert diff(project, OLD, STRICTER, "--mode", "forward").exit_code == 0
    assert diff(project, OLD, STRICTER, "--mode", "FULL").exit_code == 1
    assert diff(project, OLD, STRICTER, "--mode", "NONE").exit_code == 0
    assert diff(project, OLD, STRICTER, "--mode", "SIDEWAYS").exit_code == 2


def test_json_holds_the_verdict_and_every_finding(project: Project) -> None:
    result = diff(project, OLD, STRICTER, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "mode": "BACKWARD",
        "old": "old.json",
        "new": "new.json",
        "outcome": "incompatible",
        "findings": [
            {
                "path": "/total",
                "rule": "required-added",
                "breaks": "new readers of old data",
                "sentence": '"total" is required now; old data may lack it.',
                "way_out": "Leave it optional with a default, or publish a new version of the event.",
                "weight": "breaks",
                "example": {"order_id": "a"},
                "against": "",
            }
        ],
    }


def test_past_messages_decide_whether_a_range_may_be_tightened(project: Project) -> None:
    assert diff(project, OLD, LOWER, "--mode", "ADDITIVE").exit_code == 2
    project.write("past.jsonl", '{"order_id": "1", "total": 500}\n\n{"order_id": "2"}\n')
    allowed = diff(project, OLD, LOWER, "--mode", "ADDITIVE", "--past", "past.jsonl")
    assert allowed.exit_code == 0
    assert "all 2 past messages" in allowed.stdout
    project.write("past.jsonl", '{"order_id": "1", "total": 501}\n')
    assert diff(project, OLD, LOWER, "--mode", "ADDITIVE", "--past", "past.jsonl").exit_code == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("new.json", "{", "the new schema: not JSON"),
        ("new.json", '{"type": "objekt"}', "the new schema: not a valid schema at /type"),
        ("new.yaml", "{}", "new.yaml: not a schema by its name"),
        ("new.avsc", '"int"', "are schemas of different formats"),
        ("missing.json", None, "missing.json cannot be read: No such file or directory"),
    ],
)
def test_bad_input_ends_with_2_and_a_sentence(project: Project, name: str, text: str | None, said: str) -> None:
    project.write("old.json", json.dumps(OLD))
    if text is not None:
        project.write(name, text)
    result = project.run("schema", "diff", "old.json", name)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_past_messages_go_with_additive_only_and_must_be_json(project: Project) -> None:
    project.write("past.jsonl", "{}\n{oops\n")
    assert "--past goes with --mode ADDITIVE" in diff(project, OLD, LOWER, "--past", "past.jsonl").stderr
    refused = diff(project, OLD, LOWER, "--mode", "ADDITIVE", "--past", "past.jsonl")
    assert refused.exit_code == 2
    assert "past.jsonl, line 2: not JSON" in refused.stderr


def test_a_name_in_a_schema_has_no_power_over_the_terminal(project: Project) -> None:
    new = {**OLD, "required": ["\x1b[31mred"]}
    result = diff(project, OLD, new)
    assert result.exit_code == 1
    assert "\x1b[31m" not in result.stdout


def test_avro_and_protobuf_files_are_compared_by_their_own_rules(project: Project) -> None:
    record = '{"type": "record", "name": "Order", "fields": [%s]}'
    project.write("old.avsc", record % '{"name": "id", "type": "int"}')
    project.write("new.avsc", record % '{"name": "id", "type": "string"}')
    assert project.run("schema", "diff", "old.avsc", "new.avsc").exit_code == 1
    pytest.importorskip("grpc_tools", reason="Protobuf's compiler is not installed")
    project.write("money.proto", 'syntax = "proto3";\nmessage Money { int64 cents = 1; }\n')
    order = 'syntax = "proto3";\nimport "money.proto";\nmessage Order { %s id = 1; Money total = 2; }\n'
    project.write("old.proto", order % "string")
    project.write("new.proto", order % "int64")
    assert project.run("schema", "diff", "old.proto", "new.proto").exit_code == 1
    assert project.run("schema", "diff", "old.proto", "old.proto").exit_code == 0
