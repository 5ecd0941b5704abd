"""A change that breaks is shown by a message, also where several schemas have to be missed at once."""

from __future__ import annotations

import json

import pytest

from posthouse.governance.evolution import Mode, Outcome
from posthouse.governance.evolution.json_schema import compare

Schema = dict[str, object]
INTEGER: Schema = {"type": "integer"}
NULL: Schema = {"type": "null"}


def text(**limits: object) -> Schema:
    return {"type": "string", **limits}


def array(items: Schema, **limits: object) -> Schema:
    return {"type": "array", "items": items, **limits}


def holding(name: str, value: Schema) -> Schema:
    return {"type": "object", "properties": {name: value}, "required": [name]}


def one_of(*branches: Schema) -> Schema:
    return {"oneOf": list(branches)}


def any_of(*branches: Schema) -> Schema:
    return {"anyOf": list(branches)}


BREAKING: dict[str, tuple[Schema, Schema]] = {
    "lengths that overlap": (text(), one_of(text(maxLength=5), text(minLength=3))),
    "lengths that leave a hole": (text(), one_of(text(maxLength=10), text(minLength=301))),
    "a pattern beside a long length": (
        one_of(text(pattern="^a"), text(maxLength=250)),
        one_of(text(pattern="^a"), text(maxLength=240)),
    ),
    "a pattern beside a longer length": (
        one_of(text(pattern="^a"), text(maxLength=240)),
        one_of(text(pattern="^a"), text(maxLength=250)),
    ),
    "a list of a union to a union of lists": (
        array(any_of(INTEGER, text())),
        any_of(array(INTEGER), array(text())),
    ),
    "three branches": (
        array(any_of(INTEGER, text(), NULL)),
        any_of(array(INTEGER), array(text()), array(NULL)),
    ),
    "branches that share a part": (
        array(any_of(INTEGER, text(), NULL)),
        any_of(array(any_of(INTEGER, text())), array(any_of(text(), NULL))),
    ),
    "a list of objects": (
        array(one_of(holding("a", INTEGER), holding("b", text()))),
        any_of(array(holding("a", INTEGER)), array(holding("b", text()))),
    ),
    "a list of a fixed length": (
        array(any_of(INTEGER, text()), minItems=3, maxItems=3),
        any_of(array(INTEGER), array(text())),
    ),
    "a list without repeats": (
        array(any_of(INTEGER, text()), uniqueItems=True),
        any_of(array(INTEGER), array(text())),
    ),
    "a list inside an object": (
        holding("xs", array(any_of(INTEGER, text()))),
        holding("xs", any_of(array(INTEGER), array(text()))),
    ),
    "lengths of lists that overlap": (
        array(INTEGER),
        one_of(array(INTEGER, maxItems=3), array(INTEGER, minItems=3)),
    ),
}


@pytest.mark.parametrize(("old", "new"), BREAKING.values(), ids=BREAKING)
def test_a_message_shows_the_break(old: Schema, new: Schema) -> None:
    verdict = compare(json.dumps(old), json.dumps(new), Mode.BACKWARD)
    assert verdict.outcome is Outcome.INCOMPATIBLE
    assert any(finding.has_example for finding in verdict.findings)
