"""What a pact of another maker asks for, as a JSON Schema."""

from __future__ import annotations

import msgspec
import pytest

from posthouse.errors import ConfigurationError
from posthouse.governance.pacts.matchers import literal, rules_in, schema_of


def rule(match: str, **more: object) -> dict[str, object]:
    return {"combine": "AND", "matchers": [{"match": match, **more}]}


def test_values_without_matchers_stand_for_their_type() -> None:
    value = {"id": "a", "total": 1, "paid": True, "items": [{"price": 2.5}], "note": None}
    assert schema_of(value, {}) == {
        "type": "object",
        "required": ["id", "items", "note", "paid", "total"],
        "properties": {
            "id": {"type": "string"},
            "total": {"type": "number"},
            "paid": {"type": "boolean"},
            "note": {"type": "null"},
            "items": {
                "type": "array",
                "items": {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]},
            },
        },
    }


@pytest.mark.parametrize(
    ("matcher", "schema"),
    [
        (rule("integer"), {"type": "integer"}),
        (rule("decimal"), {"type": "number"}),
        (rule("regex", regex="^x"), {"type": "string", "pattern": "^x"}),
        (rule("include", value="a.b"), {"type": "string", "pattern": "a\\.b"}),
        (rule("equality"), {"const": "xa.b"}),
        (rule("null"), {"type": "null"}),
        (rule("timestamp", timestamp="yyyy"), {"type": "string"}),
        (rule("type"), {"type": "string"}),
    ],
)
def test_each_matcher_has_its_schema(matcher: dict[str, object], schema: dict[str, object]) -> None:
    made = schema_of({"a": "xa.b"}, rules_in({"$.a": matcher}))
    assert made["properties"] == {"a": schema}


def test_lists_may_have_a_least_and_a_most() -> None:
    rules = rules_in({"$.a": rule("type", min=1, max=3), "$['a'][*]['b']": rule("integer")})
    made = schema_of({"a": [{"b": 1}]}, rules)["properties"]
    assert made == {
        "a": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
        }
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"$.a": rule("semver")}, "the matcher 'semver' is not known"),
        ({"$.a": {"combine": "OR", "matchers": [{"match": "type"}, {"match": "null"}]}}, "one matcher is understood"),
        ({"a": rule("type")}, "'a' is not a place in a message"),
        ({"$.a..b": rule("type")}, "is not a place in a message"),
    ],
)
def test_what_is_not_understood_is_refused_rather_than_guessed(body: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said.replace("$", r"\$")):
        rules_in(body)


def test_only_values_without_a_matcher_are_meant_to_the_letter() -> None:
    value = {"state": "PAID", "total": 1, "guest": {"name": "Ann", "born": "x"}, "items": [{"a": 1}], "tags": ["x"]}
    rules = rules_in(
        {"$.total": rule("integer"), "$.guest": rule("type"), "$.items[*].a": rule("type"), "$.state": rule("equality")}
    )
    assert literal(value, rules) == {"state": "PAID", "tags": ["x"]}
    assert literal("a", rules_in({"$": rule("type")})) is msgspec.UNSET
