"""Names that are limited: whatever limits them, the members that are left are looked at."""

from __future__ import annotations

import json

import pytest

from posthouse.governance.evolution import Mode, Outcome, Reader
from posthouse.governance.evolution.json_schema import compare

INTEGERS = {"type": "integer"}
NUMBERS = {"type": "number"}
TEXTS = {"type": "string"}

LIMITS: list[dict[str, object]] = [
    {"enum": ["a", "b"]},
    {"const": "only"},
    {"$ref": "#/$defs/color"},
    {"allOf": [{"$ref": "#/$defs/color"}, {"minLength": 4}]},
    {"maxLength": 1},
    {"maxLength": 0},
    {"minLength": 30},
    {"pattern": "^a{2}$"},
    {"pattern": "^a", "maxLength": 1},
    {"anyOf": [{"enum": ["a"]}, {"maxLength": 2}]},
    {"not": {"enum": ["other", "another", "more", "extra", "x", "y", "z"]}},
    {"format": "uuid"},
]
"""None of the usual sample names fits any of them."""


def mapping(names: object, values: object, **more: object) -> str:
    colors = {"color": {"type": "string", "enum": ["red", "green"]}}
    keywords = {"type": "object", "propertyNames": names, "additionalProperties": values, "$defs": colors}
    return json.dumps(keywords | more)


@pytest.mark.parametrize("names", LIMITS, ids=json.dumps)
def test_other_values_under_limited_names_break_with_an_example(names: dict[str, object]) -> None:
    verdict = compare(mapping(names, INTEGERS), mapping(names, TEXTS), Mode.FULL)
    assert verdict.outcome is Outcome.INCOMPATIBLE
    assert {finding.breaks for finding in verdict.findings if finding.has_example} == set(Reader)


@pytest.mark.parametrize("names", LIMITS, ids=json.dumps)
def test_wider_values_under_limited_names_break_nobody(names: dict[str, object]) -> None:
    assert compare(mapping(names, INTEGERS), mapping(names, NUMBERS), Mode.BACKWARD).outcome is Outcome.COMPATIBLE


@pytest.mark.parametrize("names", LIMITS, ids=json.dumps)
def test_a_name_that_is_no_longer_taken_breaks(names: dict[str, object]) -> None:
    verdict = compare(mapping(names, INTEGERS), mapping({"maxLength": 40, "pattern": "^Q"}, INTEGERS), Mode.BACKWARD)
    assert verdict.outcome is Outcome.INCOMPATIBLE
    assert any(finding.has_example for finding in verdict.findings)


def test_values_under_names_that_cannot_be_do_not_count() -> None:
    nothing = mapping({"enum": ["a"], "minLength": 2}, INTEGERS)
    assert compare(nothing, mapping({"enum": ["a"], "minLength": 2}, TEXTS), Mode.FULL).outcome is Outcome.COMPATIBLE


def test_listed_names_may_become_declared_properties() -> None:
    """The same said in two ways."""
    listed = mapping({"enum": ["a", "b"]}, INTEGERS)
    declared = json.dumps(
        {"type": "object", "properties": {"a": INTEGERS, "b": INTEGERS}, "additionalProperties": False}
    )
    assert compare(listed, declared, Mode.FULL).outcome is Outcome.COMPATIBLE


def test_more_members_than_there_are_names_cannot_be() -> None:
    too_many = mapping({"enum": ["a", "b"]}, INTEGERS, minProperties=3)
    assert compare(too_many, json.dumps({"type": "string"}), Mode.BACKWARD).outcome is Outcome.COMPATIBLE
    enough = mapping({"enum": ["a", "b"]}, INTEGERS, minProperties=2)
    assert compare(enough, json.dumps({"type": "string"}), Mode.BACKWARD).outcome is Outcome.INCOMPATIBLE


def test_values_by_pattern_under_listed_names_are_looked_at() -> None:
    before = {"propertyNames": {"enum": ["s_a", "n_a"]}, "patternProperties": {"^s_": TEXTS, "^n_": INTEGERS}}
    after = {"propertyNames": {"enum": ["s_a", "n_a"]}, "patternProperties": {"^s_": TEXTS, "^n_": TEXTS}}
    verdict = compare(json.dumps(before), json.dumps(after), Mode.BACKWARD)
    assert [finding.example for finding in verdict.findings] == [{"n_a": 0}]
