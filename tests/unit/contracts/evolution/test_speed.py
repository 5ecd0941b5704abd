"""Hundreds of schemas are compared while a person waits."""

from __future__ import annotations

import json
import time
from random import Random

from posthouse.contracts.evolution import Mode, Outcome
from posthouse.contracts.evolution.json_schema import compare

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
