"""Schemas that cannot be used: a clear sentence, soon."""

from __future__ import annotations

import json
import time

import pytest

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode, Outcome
from posthouse.governance.evolution.json_schema import compare

FINE = '{"type": "object"}'
SOON = 10.0
"""Seconds of processor time; each of these takes far less on a machine with nothing else to do."""


def nested(depth: int) -> str:
    return '{"properties":{"a":' * depth + "{}" + "}}" * depth


CIRCLE = {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}
HIDDEN_CIRCLE = {
    "allOf": [{"properties": {"z": {"$ref": "#/$defs/y"}}}, {"$ref": "#/$defs/y"}],
    "$defs": {"y": {"anyOf": [{"$ref": "#"}, {"type": "string"}]}},
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "a schema is an object, true or false"),
        ("3", "a schema is an object, true or false"),
        ('{"minimum": NaN}', "NaN is not a number of JSON"),
        ('{"minimum": 1e999999}', "beyond what numbers"),
        ('{"minimum": ' + "9" * 5000 + "}", "not JSON"),
        ('{"type": "strin"}', "not a valid schema at /type"),
        ('{"properties": {"a": {"minLength": -1}}}', "not a valid schema at /properties/a/minLength"),
        ('{"pattern": "(("}', "not a valid schema at /pattern"),
        ('{"$schema": "http://json-schema.org/draft-04/schema#"}', "Did you mean 'http://json-schema.org/draft-0"),
        ('{"$schema": "https://example.org/own"}', "is not a draft that is known here"),
        ('{"$ref": "https://example.org/other.json"}', "https://example.org/other.json"),
        ('{"$ref": "#/$defs/nobody"}', "nobody"),
        (json.dumps(CIRCLE), "refers to itself"),
        (json.dumps(HIDDEN_CIRCLE), "refers to itself"),
        (json.dumps({"not": {"$ref": "#"}}), "refers to itself"),
        (nested(10_000), "nested deeper than 100 levels"),
        (nested(60), "nested deeper than 100 levels"),
        (json.dumps({"enum": ["x" * 1000 + str(number) for number in range(10_000)]}), "bytes; schemas of more than"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_schema_that_cannot_be_used_gets_a_clear_error_soon(text: str, said: str) -> None:
    began = time.process_time()
    for old, new in ((text, FINE), (FINE, text), (text, text)):
        for mode in (Mode.FULL, Mode.ADDITIVE):
            with pytest.raises(SchemaError) as caught:
                compare(old, new, mode)
            assert said in str(caught.value)
            assert "the old schema" in str(caught.value) or "the new schema" in str(caught.value)
    assert time.process_time() - began < SOON


def big_union(branches: int) -> str:
    parts = [
        {"type": "object", "properties": {f"f{number}": {"minimum": index + number} for number in range(6)}}
        for index in range(branches)
    ]
    return json.dumps({"anyOf": parts, "allOf": [{"anyOf": parts[::-1]}, {"oneOf": parts[1:]}]})


def deep_references(depth: int) -> str:
    defs = {f"d{at}": {"properties": {"a": {"$ref": f"#/$defs/d{at + 1}"}}} for at in range(depth)}
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**defs, f"d{depth}": {"type": "integer"}}})


def many_states(size: int) -> str:
    return json.dumps({"type": "string", "pattern": f"^(a|b)*a(a|b){{{size}}}$"})


def many_patterns(count: int, size: int) -> str:
    patterns = [f"^(a|b)*a(a|b){{{size + number}}}$" for number in range(count)]
    return json.dumps(
        {"properties": {f"p{at}": {"type": "string", "pattern": text} for at, text in enumerate(patterns)}}
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (many_patterns(200, 20), many_patterns(200, 19)),
        (big_union(12), big_union(13)),
        (deep_references(300), deep_references(300).replace("integer", "string")),
        (many_states(30), many_states(29)),
        (json.dumps({"type": "integer", "multipleOf": 7919}), json.dumps({"not": {"multipleOf": 7907}})),
    ],
    ids=["patterns", "union", "references", "pattern", "steps"],
)
def test_what_takes_too_much_work_is_never_called_compatible_and_ends_soon(old: str, new: str) -> None:
    began = time.process_time()
    verdict = compare(old, new, Mode.FULL)
    assert verdict.outcome is not Outcome.COMPATIBLE
    assert time.process_time() - began < 3 * SOON


def test_large_schemas_that_are_allowed_are_compared_soon() -> None:
    fields = {f"field_{number}": {"type": "string", "maxLength": number + 1} for number in range(8_000)}
    old = json.dumps({"type": "object", "properties": fields, "required": sorted(fields)})
    new = json.dumps({"type": "object", "properties": fields})
    began = time.process_time()
    assert compare(old, new, Mode.BACKWARD).compatible
    assert time.process_time() - began < 2 * SOON
