"""Hundreds of schemas are compared while a person waits."""

from __future__ import annotations

import json
import time
from random import Random

import pytest

from posthouse.governance.evolution import Mode, Outcome
from posthouse.governance.evolution.json_schema import compare

pytestmark = pytest.mark.slow
PAIRS = 500
GENEROUS = 15.0
"""Seconds of processor time for all pairs on a busy machine; one or two are usual."""

FIELDS: list[dict[str, object]] = [
    {"type": "string", "maxLength": 100},
    {"type": "integer", "minimum": 0},
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
    {"enum": ["new", "paid", "sent"]},
    {"type": "string", "pattern": "^[A-Z]{3}$"},
]


def order(random: Random, currency: str, quantity: str) -> str:
    """A schema of twenty fields, some of them nested."""
    fields: dict[str, object] = {f"field_{number}": random.choice(FIELDS) for number in range(18)}
    fields |= {"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}, "total": {"$ref": "#/$defs/money"}}
    money = {
        "type": "object",
        "properties": {"amount": {"type": "integer"}, "currency": {"type": "string", "pattern": currency}},
    }
    line = {
        "type": "object",
        "properties": {"sku": {"type": "string"}, "count": {"type": quantity}, "price": {"$ref": "#/$defs/money"}},
    }
    defs = {"money": money | {"required": ["amount"]}, "line": line | {"required": ["sku"]}}
    return json.dumps({"type": "object", "properties": fields, "required": list(fields)[:9], "$defs": defs})


def test_five_hundred_changed_schemas_are_compared_soon() -> None:
    pairs = []
    for seed in range(PAIRS):
        new_count = "number" if seed % 2 else "string"
        old = order(Random(seed), "^[A-Z]{3}$", "integer")
        pairs.append((old, order(Random(seed), "^[A-Z]+$", new_count)))
    began = time.process_time()
    outcomes = [compare(old, new, Mode.BACKWARD).outcome for old, new in pairs]
    assert time.process_time() - began < GENEROUS
    assert outcomes == [Outcome.INCOMPATIBLE, Outcome.COMPATIBLE] * (PAIRS // 2)


def texts(pattern: str) -> str:
    return json.dumps({"type": "string", "pattern": pattern})


def branches(count: int, longer: int) -> str:
    """A union whose branches all overlap."""
    return json.dumps(
        {
            "oneOf": [
                {"properties": {f"k{number}": {"minimum": number}, "c": {"maxLength": number + longer}}}
                for number in range(count)
            ]
        }
    )


def named_branches(count: int, longer: int, *, properties: int = 1, union: str = "oneOf") -> str:
    """The same with names of their own that are required, so that it pays to look at each."""
    return json.dumps(
        {
            union: [
                {
                    "properties": {f"k{number}_{n}": {"minimum": number} for n in range(properties)}
                    | {"c": {"maxLength": number + longer}},
                    "required": [f"k{number}_0"],
                }
                for number in range(count)
            ]
        }
    )


COSTLY = {
    "repeats of repeats of repeats": (texts("^((a{1,20}){1,20}){1,20}$"), texts("^a*$")),
    "optional parts between repeats": (texts("^(((a{1,9}b?){1,9}c?){1,9}){1,9}$"), texts("^[abc]*$")),
    "repeats in a row": (texts(f"^{'(a{0,30}b{0,30}){0,30}' * 20}$"), texts("^[ab]*$")),
    "optional letters": (texts(f"^{'a?' * 400}$"), texts("^(aa)*$")),
    "many branches that begin alike": (texts("|".join(f"x{n}.*y" for n in range(150))), texts("^x")),
    "a large union": (branches(120, 1), branches(120, 2)),
    "a huge union": (branches(600, 1), branches(600, 2)),
    "two hundred names": (named_branches(200, 1), named_branches(200, 2)),
    "as many names as are looked at": (named_branches(290, 1), named_branches(290, 2)),
    "names with many properties": (named_branches(100, 1, properties=30), named_branches(100, 2, properties=30)),
    "names that may overlap": (named_branches(600, 1, union="anyOf"), named_branches(600, 2, union="anyOf")),
}
LONGEST = 10.0
"""Seconds of processor time for one pair on a busy machine; about two are the most elsewhere."""


@pytest.mark.parametrize(("old", "new"), COSTLY.values(), ids=COSTLY)
def test_nothing_takes_longer_than_its_budget(old: str, new: str) -> None:
    began = time.process_time()
    for mode in (Mode.BACKWARD, Mode.FORWARD):
        compare(old, new, mode)
    assert time.process_time() - began < LONGEST


def test_two_hundred_branches_that_overlap_are_within_the_budget() -> None:
    old, new = COSTLY["two hundred names"]
    assert compare(old, new, Mode.FULL).outcome is Outcome.INCOMPATIBLE


def test_what_is_beyond_the_budget_is_not_called_compatible() -> None:
    old, new = COSTLY["repeats in a row"]
    assert compare(old, new, Mode.BACKWARD).outcome is Outcome.UNJUDGED
