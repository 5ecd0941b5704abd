"""JSON Schemas by meaning: keywords that registries pass over, recursion, and what a finding says."""

from __future__ import annotations

import json

import pytest

from posthouse.governance.evolution import Finding, Mode, Outcome, Reader, Weight
from posthouse.governance.evolution.json_schema import compare

Schema = dict[str, object] | bool


def outcome(old: Schema, new: Schema, mode: Mode = Mode.BACKWARD) -> Outcome:
    return compare(json.dumps(old), json.dumps(new), mode).outcome


def findings(old: Schema, new: Schema, mode: Mode = Mode.BACKWARD) -> list[Finding]:
    return list(compare(json.dumps(old), json.dumps(new), mode).findings)


TREE: Schema = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#"}},
            "required": ["value"],
            "additionalProperties": False,
        }
    },
}
FOREST: Schema = {
    "type": "object",
    "properties": {
        "value": {"type": "number"},
        "left": {"$ref": "#"},
        "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
}
ENDLESS: Schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
PAID = {"properties": {"kind": {"const": "paid"}, "by": {"type": "string"}}, "required": ["kind", "by"]}
FREE = {"properties": {"kind": {"const": "free"}}, "required": ["kind"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TREE, FOREST),
        (ENDLESS, {"type": "string"}),  # no value is endless, so none is ever sent
        ({"type": "number", "multipleOf": 0.1, "minimum": 0, "maximum": 0.2}, {"enum": [0, 0.1, 0.2]}),
        ({"enum": [1.0, 2]}, {"type": "integer"}),
        (
            {"const": {"a": [1, None]}},
            {"type": "object", "properties": {"a": {"prefixItems": [{"const": 1.0}], "maxItems": 2}}},
        ),
        ({"type": "array", "prefixItems": [{"const": 1}], "minItems": 1}, {"contains": {"type": "integer"}}),
        (
            {"type": "array", "contains": {"const": 1}, "minContains": 2},
            {"contains": {"type": "integer"}, "minItems": 2},
        ),
        (
            {"type": "array", "items": {"type": "string"}},
            {"contains": {"type": "integer"}, "minContains": 0, "maxContains": 0},
        ),
        ({"type": "array", "maxItems": 1}, {"uniqueItems": True}),
        ({"type": "array", "prefixItems": [True], "items": False}, {"type": "array", "maxItems": 1}),
        (
            {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False},
            {"propertyNames": {"maxLength": 1}},
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "integer"}}}], "unevaluatedProperties": False},
            {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
        ),
        (
            {"type": "object", "dependentRequired": {"card": ["address"]}, "required": ["card"]},
            {"required": ["address"]},
        ),
        ({"type": "object", "oneOf": [PAID, FREE]}, {"type": "object", "anyOf": [FREE, {"required": ["by"]}]}),
        (
            {"type": "object", "if": {"required": ["vat"]}, "then": {"required": ["country"]}, "required": ["vat"]},
            {"type": "object", "required": ["country"]},
        ),
        ({"type": "string", "format": "uri"}, {"type": "string", "format": "uri-reference"}),
        ({"enum": ["2026-01-31"]}, {"format": "date"}),
        ({"$defs": {"n": {"$anchor": "name", "type": "string"}}, "$ref": "#name"}, {"type": "string"}),
        (
            {"$id": "https://example.org/s", "$defs": {"n": {"$id": "n", "type": "string"}}, "$ref": "n"},
            {"type": "string"},
        ),
        ({"type": ["integer", "null"]}, {"anyOf": [{"type": "number"}, {"type": "null"}]}),
        (
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "properties": {"a": {}},
                "additionalProperties": False,
            },
            {"required": ["a"]},
        ),
        ({"type": "string", "minLength": 2, "pattern": "^a*$"}, {"pattern": "^aa"}),
        ({"type": "string"}, {"dependentRequired": {"a": ["b"]}}),
        ({"type": "number", "multipleOf": 2}, {"type": "integer"}),
        (
            {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"anyOf": [{"properties": {"a": False}}, {"properties": {"b": False}}]},
        ),
        ({"type": "object", "required": ["a"], "maxProperties": 1}, {"properties": {"b": False}}),
        (
            {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"oneOf": [{"required": ["b"]}, {"required": ["a"]}]},
        ),
    ],
    ids=lambda schema: json.dumps(schema)[:60],
)
def test_what_follows_from_the_old_schema_is_compatible(old: Schema, new: Schema) -> None:
    assert outcome(old, new) is Outcome.COMPATIBLE, findings(old, new)


ONE: Schema = {"const": 1}
SOME_CLOSED: Schema = {
    "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"type": "object"}],
    "unevaluatedProperties": False,
}


@pytest.mark.parametrize(
    ("old", "new", "example"),
    [
        ({"type": "array", "prefixItems": [ONE]}, {"contains": {"type": "integer"}}, []),
        ({"type": "array", "contains": ONE}, {"contains": ONE, "minContains": 2}, [1]),
        (
            {"type": "array", "contains": {"type": "integer"}, "maxContains": 3},
            {"contains": {"type": "integer"}, "maxContains": 2},
            None,
        ),
        ({"type": "array", "prefixItems": [ONE], "minItems": 1}, {"const": [1]}, None),
        (
            {"type": "array", "prefixItems": [ONE], "contains": {"type": "string"}, "unevaluatedItems": False},
            {"maxItems": 1},
            None,
        ),
        ({"type": "object", "properties": {"a": ONE}, "required": ["a"]}, {"const": {"a": 1}}, None),
        (
            {"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": ONE},
            {"additionalProperties": ONE},
            None,
        ),
        (
            {
                "type": "object",
                "anyOf": [{"required": ["a"], "additionalProperties": True}, {"required": ["b"]}],
                "unevaluatedProperties": False,
            },
            {"maxProperties": 0},
            None,
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
            SOME_CLOSED,
            {"a": "a"},
        ),
        ({"type": "integer", "minimum": 3}, {"exclusiveMinimum": 3}, 3),
        ({"type": "number", "exclusiveMinimum": 3, "exclusiveMaximum": 4}, False, None),
        ({"type": "integer", "exclusiveMinimum": 3}, {"minimum": 5}, 4),
    ],
    ids=lambda part: json.dumps(part)[:50],
)
def test_what_does_not_follow_is_shown(old: Schema, new: Schema, example: object) -> None:
    verdict = compare(json.dumps(old), json.dumps(new), Mode.BACKWARD)
    assert verdict.outcome is Outcome.INCOMPATIBLE
    assert example is None or verdict.findings[0].example == example


@pytest.mark.parametrize(
    ("old", "new", "path", "rule"),
    [
        (FOREST, TREE, "/value", "required-added"),
        ({"type": "string"}, {"type": "string", "format": "date"}, "", "format-narrowed"),
        ({"type": "array"}, {"type": "array", "contains": {"const": 7}}, "", "contains-narrowed"),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, "", "unique-narrowed"),
        ({"type": "object"}, {"type": "object", "propertyNames": {"pattern": "^x"}}, "", "names-narrowed"),
        ({"type": "object"}, {"type": "object", "unevaluatedProperties": False}, "/*", "content-closed"),
        ({"type": "array"}, {"type": "array", "unevaluatedItems": False}, "/*", "value-refused"),
        (
            {"properties": {"a/b": {"type": "string"}}},
            {"properties": {"a/b": {"type": "null"}}},
            "/a~1b",
            "type-changed",
        ),
        (
            {"oneOf": [PAID, FREE]},
            {"oneOf": [PAID, {"properties": {"kind": {"const": "gift"}}, "required": ["kind"]}]},
            "",
            "union-narrowed",
        ),
        (
            {"type": "object", "patternProperties": {"^x": {}}},
            {"type": "object", "patternProperties": {"^x": {"type": "null"}}},
            "/*",
            "type-narrowed",
        ),
        ({"type": "integer"}, {"type": "integer", "exclusiveMinimum": 3}, "", "range-narrowed"),
        ({"items": {"type": "integer"}}, {"items": {"type": "integer", "multipleOf": 2}}, "/*", "step-narrowed"),
    ],
    ids=lambda part: json.dumps(part)[:40],
)
def test_a_finding_names_the_place_and_the_rule_and_shows_it(old: Schema, new: Schema, path: str, rule: str) -> None:
    found = {(finding.path, finding.rule): finding for finding in findings(old, new)}
    assert (path, rule) in found
    assert found[path, rule].weight is Weight.BREAKS
    assert found[path, rule].breaks is Reader.NEW


def test_an_example_shows_its_own_finding_where_there_are_several() -> None:
    old: Schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }
    new: Schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 5}, "b": {"maxLength": 3}},
        "required": ["a", "b"],
    }
    shown = {finding.path: finding.example for finding in findings(old, new)}
    assert shown == {"/a": {"a": 6, "b": "a"}, "/b": {"a": 0, "b": "aaaa"}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string"}, {"type": "string", "format": "x-own"}),
        ({"type": "string"}, {"type": "string", "contentEncoding": "base32"}),
        ({"type": "object"}, {"type": "object", "$dynamicRef": "#"}),
        ({"type": "string", "pattern": "^(?=.*x).*$"}, {"type": "string", "pattern": "^(?=.*x)(?=.*).*$"}),
        ({"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid", "maxLength": 36}),
    ],
    ids=lambda part: json.dumps(part)[:50],
)
def test_what_cannot_be_proven_is_not_let_through(old: Schema, new: Schema) -> None:
    verdict = compare(json.dumps(old), json.dumps(new), Mode.BACKWARD)
    assert verdict.outcome is Outcome.UNJUDGED
    assert all(finding.weight is Weight.UNJUDGED for finding in verdict.findings)


def test_the_same_keyword_that_is_not_understood_is_no_change() -> None:
    old: dict[str, object] = {"type": "string", "format": "x-own", "contentEncoding": "base32", "pattern": "^(?=.*x)"}
    assert outcome(old, {**old, "description": "the same"}, Mode.FULL) is Outcome.COMPATIBLE


def test_a_format_of_the_writer_is_not_relied_on_because_many_take_it_for_a_remark() -> None:
    old: Schema = {"enum": ["ab", "a@example.org"], "format": "email"}
    assert outcome(old, {"const": "a@example.org"}) is Outcome.UNJUDGED
    assert outcome({"enum": ["a@example.org"]}, {"format": "email"}) is Outcome.COMPATIBLE


def test_drafts_may_differ_between_the_versions() -> None:
    old: Schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"type": "string"}],
        "additionalItems": False,
        "definitions": {"ignored": {"$ref": "#/definitions/other", "type": "null"}, "other": {}},
    }
    new: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "prefixItems": [{"type": "string"}],
        "items": False,
    }
    assert outcome(old, new, Mode.FULL) is Outcome.COMPATIBLE


@pytest.mark.parametrize(
    ("draft", "body"),
    [
        ("http://json-schema.org/draft-07/schema#", {"dependentRequired": {"a": ["b"]}}),
        ("http://json-schema.org/draft-07/schema#", {"unevaluatedProperties": False}),
        ("http://json-schema.org/draft-07/schema#", {"prefixItems": [{"type": "string"}]}),
        ("http://json-schema.org/draft-06/schema#", {"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
        ("https://json-schema.org/draft/2019-09/schema", {"prefixItems": [{"type": "string"}]}),
    ],
)
def test_a_keyword_counts_only_in_the_drafts_that_have_it(draft: str, body: dict[str, object]) -> None:
    old: Schema = {"$schema": draft, "properties": {"x": body}}
    new: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {"x": body}}
    assert outcome(old, new) is Outcome.INCOMPATIBLE
    assert outcome(new, old) is Outcome.COMPATIBLE


def test_additional_items_say_nothing_in_2020_12_not_even_to_unevaluated_items() -> None:
    new: Schema = {"prefixItems": [{"type": "string"}], "additionalItems": True, "unevaluatedItems": False}
    assert outcome({"prefixItems": [{"type": "string"}]}, new) is Outcome.INCOMPATIBLE


def test_beside_a_reference_draft_7_reads_nothing_and_2020_12_everything() -> None:
    beside: dict[str, object] = {"$ref": "#/definitions/any", "type": "string", "definitions": {"any": {}}}
    draft7: Schema = {"$schema": "http://json-schema.org/draft-07/schema#", **beside}
    assert outcome({"type": "integer"}, draft7) is Outcome.COMPATIBLE
    assert outcome({"type": "integer"}, beside) is Outcome.INCOMPATIBLE


def test_what_was_taken_for_granted_in_a_failed_attempt_is_not_believed_later() -> None:
    """The first branch fails at `n`, after `z` was found to fit if the whole did; the second asks for `z` again."""
    whole: Schema = {"type": "integer"}
    old: Schema = {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {
                "type": "object",
                "properties": {
                    "x": {"$ref": "#/$defs/in"},
                    "z": {"$ref": "#/$defs/too"},
                    "n": whole,
                    "k": whole,
                    "m": whole,
                },
            },
            "in": {"type": "object", "properties": {"back": {"$ref": "#/$defs/a"}}},
            "too": {"type": "object", "properties": {"again": {"$ref": "#/$defs/a"}}},
        },
    }
    number: Schema = {"type": "number"}
    new: Schema = {
        "anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/c"}],
        "$defs": {
            "b": {"properties": {"x": {"$ref": "#/$defs/in"}, "z": {"$ref": "#/$defs/too"}, "n": {"type": "string"}}},
            "c": {"properties": {"z": {"$ref": "#/$defs/too"}, "k": number, "m": number, "n": number}},
            "in": {"properties": {"back": {"$ref": "#/$defs/b"}}},
            "too": {"properties": {"again": {"$ref": "#/$defs/b"}}},
        },
    }
    assert outcome(old, new) is Outcome.INCOMPATIBLE


def test_if_then_and_else_bind_only_their_own_cases() -> None:
    either: Schema = {
        "type": "object",
        "if": {"required": ["a"]},
        "then": {"required": ["c"]},
        "else": {"required": ["b"]},
    }
    assert outcome(either, {"anyOf": [{"required": ["a", "c"]}, {"required": ["b"]}]}) is Outcome.COMPATIBLE
    assert outcome(either, {"required": ["b"]}) is Outcome.INCOMPATIBLE
    assert outcome(either, {"required": ["c"]}) is Outcome.INCOMPATIBLE
    assert outcome({"type": "object", "required": ["b"], "maxProperties": 1}, either) is Outcome.COMPATIBLE
    assert outcome({"type": "object", "required": ["a"]}, either) is Outcome.INCOMPATIBLE


def test_a_recursive_change_is_told_once() -> None:
    new = json.loads(json.dumps(TREE).replace("integer", "string"))
    assert max(finding.path.count("/") for finding in findings(TREE, new)) == 3


def test_true_is_not_one() -> None:
    assert outcome({"const": True}, {"const": 1}) is Outcome.INCOMPATIBLE
    assert outcome({"const": [False]}, {"const": [0]}) is Outcome.INCOMPATIBLE
