"""One meaning has one hash, whichever library or author wrote the schema."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import typing
import uuid
from typing import Annotated, Any, Literal

import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posthouse.contracts import payload_of, schema_hash
from posthouse.contracts.normal import normalised
from posthouse.errors import ConfigurationError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    LARGE = 2
    SMALL = 1


FIELDS: dict[str, Any] = {
    "whole": int,
    "real": float,
    "text": str,
    "flag": bool,
    "anything": Any,
    "maybe": str | None,
    "several": int | str | None,
    "moment": datetime.datetime,
    "maybe_moment": datetime.datetime | None,
    "moments": list[datetime.datetime],
    "moments_by_name": dict[str, datetime.datetime],
    "day": datetime.date,
    "hour": datetime.time,
    "span": datetime.timedelta,
    "id": uuid.UUID,
    "price": decimal.Decimal,
    "colour": Colour,
    "maybe_colour": Colour | None,
    "size": Size,
    "only": Literal["x"],
    "one_of": Literal["x", None],
    "many": list[int],
    "distinct": set[int],
    "pair": tuple[int, str],
    "row": tuple[int, ...],
    "mapping": dict[str, float],
}
DEFAULTS: dict[str, tuple[Any, Any]] = {
    "count": (int, 0),
    "share": (float, 1.0),
    "note": (str | None, None),
    "first_colour": (Colour, Colour.RED),
    "since": (datetime.date, datetime.date(2020, 1, 1)),
}


def as_dataclass(name: str, fields: dict[str, Any], defaults: dict[str, tuple[Any, Any]]) -> type:
    return dataclasses.make_dataclass(name, [*fields.items(), *((k, t, d) for k, (t, d) in defaults.items())])


def as_struct(name: str, fields: dict[str, Any], defaults: dict[str, tuple[Any, Any]]) -> type:
    return msgspec.defstruct(name, [*fields.items(), *((k, t, d) for k, (t, d) in defaults.items())])


def as_model(name: str, fields: dict[str, Any], defaults: dict[str, tuple[Any, Any]]) -> type:
    return pydantic.create_model(name, **{k: (t, ...) for k, t in fields.items()}, **defaults)  # type: ignore[call-overload, no-any-return]


MAKERS = [as_dataclass, as_struct, as_model]


def hashes(fields: dict[str, Any], defaults: dict[str, tuple[Any, Any]]) -> set[str]:
    return {payload_of(make(f"N{n}", fields, defaults)).schema.hash for n, make in enumerate(MAKERS)}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_has_the_same_schema_in_three_libraries(field: str) -> None:
    assert len(hashes({field: FIELDS[field]}, {})) == 1, texts({field: FIELDS[field]})


@pytest.mark.parametrize("field", DEFAULTS)
def test_a_default_has_the_same_schema_in_three_libraries(field: str) -> None:
    assert len(hashes({}, {field: DEFAULTS[field]})) == 1


def test_all_fields_together_in_any_order_have_one_hash() -> None:
    backwards = dict(reversed(FIELDS.items()))
    assert hashes(FIELDS, DEFAULTS) == hashes(backwards, DEFAULTS)
    assert len(hashes(FIELDS, DEFAULTS)) == 1


def texts(fields: dict[str, Any]) -> list[str]:
    return [payload_of(make("N", fields, {})).schema.text for make in MAKERS]


@pytest.mark.parametrize("field", ["whole", "maybe", "colour", "pair", "moment"])
def test_another_type_has_another_hash(field: str) -> None:
    others = {"whole": float, "maybe": str, "colour": str, "pair": tuple[int, int], "moment": datetime.date}
    assert not hashes({field: FIELDS[field]}, {}) & hashes({field: others[field]}, {})


@dataclasses.dataclass
class GuestData:
    name: str
    friends: list[GuestData]


@dataclasses.dataclass
class StayData:
    guest: GuestData
    second: GuestData | None = None
    parent: StayData | None = None


class GuestStruct(msgspec.Struct):
    name: str
    friends: list[GuestStruct]


class StayStruct(msgspec.Struct):
    guest: GuestStruct
    second: GuestStruct | None = None
    parent: StayStruct | None = None


class GuestModel(pydantic.BaseModel):
    name: str
    friends: list[GuestModel]


class StayModel(pydantic.BaseModel):
    guest: GuestModel
    second: GuestModel | None = None
    parent: StayModel | None = None


def test_nested_and_recursive_payloads_have_the_same_schema_in_three_libraries() -> None:
    found = {cls: payload_of(cls).schema for cls in (StayData, StayStruct, StayModel)}
    assert len({schema.hash for schema in found.values()}) == 1
    text = found[StayData].text
    assert "Guest" not in text
    assert '{"$ref":"#"}' in text, "what contains the whole refers to the whole"


def test_limits_have_the_same_schema_in_msgspec_and_pydantic() -> None:
    theirs = as_struct(
        "A",
        {
            "n": Annotated[int, msgspec.Meta(ge=0, lt=10)],
            "s": Annotated[str, msgspec.Meta(min_length=1, max_length=5, pattern="^a")],
        },
        {},
    )
    ours = as_model(
        "B",
        {
            "n": Annotated[int, pydantic.Field(ge=0, lt=10, description="prose")],
            "s": Annotated[str, pydantic.Field(min_length=1, max_length=5, pattern="^a")],
        },
        {},
    )
    assert payload_of(theirs).schema == payload_of(ours).schema


class Cat(msgspec.Struct, tag="cat", tag_field="kind"):
    lives: int


class Dog(msgspec.Struct, tag="dog", tag_field="kind"):
    barks: bool


class CatModel(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class DogModel(pydantic.BaseModel):
    kind: Literal["dog"]
    barks: bool


def test_a_tagged_union_has_the_same_schema_in_msgspec_and_pydantic() -> None:
    tagged = Annotated[CatModel | DogModel, pydantic.Field(discriminator="kind")]
    theirs, ours = as_struct("A", {"pet": Cat | Dog}, {}), as_model("B", {"pet": tagged}, {})
    assert payload_of(theirs).schema == payload_of(ours).schema


def test_fields_travel_under_the_names_that_the_schema_gives() -> None:
    class Camel(pydantic.BaseModel):
        order_id: str = pydantic.Field(alias="orderId")

    payload = payload_of(Camel)
    assert payload.fields == ("orderId",)
    assert payload.encode(Camel(orderId="o1")) == b'{"orderId":"o1"}'
    assert payload.decode(b'{"orderId":"o1"}').order_id == "o1"


def test_a_field_that_json_cannot_carry_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="cannot travel as JSON"):
        payload_of(as_dataclass("A", {"work": complex}, {}))


SAME: list[tuple[Any, Any]] = [
    ({"const": 1}, {"enum": [1.0], "type": "integer"}),
    ({"type": ["null", "string"]}, {"anyOf": [{"type": "string", "title": "S"}, {"type": "null"}]}),
    ({"type": ["string", "null"], "maxLength": 3}, {"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]}),
    ({"enum": ["a", None]}, {"anyOf": [{"const": "a"}, {"type": "null"}]}),
    ({"type": ["integer", "number"]}, {"type": "number"}),
    ({"type": "object", "required": ["b", "a"]}, {"required": ["a", "b", "a"], "type": "object", "properties": {}}),
    ({"type": "object", "additionalProperties": True}, {"type": "object"}),
    ({"allOf": [{"type": "string"}]}, {"type": "string"}),
    ({"allOf": [{"type": "string"}], "default": "a"}, {"type": "string", "default": "a"}),
    (
        {"anyOf": [{"type": "object", "required": ["b"]}, {"type": "object", "required": ["a"]}]},
        {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]},
    ),
    ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "number"}]}, {"type": "number"}),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}}, {"type": "string"}),
    ({"$ref": "#/definitions/A", "definitions": {"A": {"$ref": "#/definitions/B"}, "B": {}}}, {}),
    ({"type": "string", "minimum": 3, "minLength": 0}, {"type": "string"}),
    (
        {"$ref": "#/$defs/N", "$defs": {"N": {"type": "array", "items": {"$ref": "#/$defs/N"}}}},
        {"type": "array", "items": {"$ref": "#"}},
    ),
    ({"type": "array", "prefixItems": [{}], "items": False}, {"type": "array", "prefixItems": [{}], "maxItems": 1}),
    (
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "schemas://x", "type": "null"},
        {"enum": [None]},
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=[json.dumps(one) for one, _ in SAME])
def test_spellings_of_one_meaning_have_one_hash(one: Any, other: Any) -> None:
    assert schema_hash(one) == schema_hash(other), (normalised(one), normalised(other))


DIFFERENT: list[tuple[Any, Any]] = [
    ({"enum": [1]}, {"enum": [True]}),
    ({"enum": ["1"]}, {"enum": [1]}),
    ({"properties": {"title": {}}}, {}),
    ({"type": "string", "default": "a"}, {"type": "string", "default": "b"}),
    ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, {"anyOf": [{"minimum": 1}, {"maximum": 5}]}),
    ({"prefixItems": [{}, {}], "maxItems": 2}, {"prefixItems": [{}, {}]}),
    ({"anyOf": [{"type": "string"}, {"minLength": 3}]}, {"type": "string", "minLength": 3}),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}]}, {"items": [{}]}),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=[json.dumps(one) for one, _ in DIFFERENT])
def test_another_meaning_has_another_hash(one: Any, other: Any) -> None:
    assert schema_hash(one) != schema_hash(other)


VALUES_OF_ALL_KINDS: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    2,
    7,
    -1,
    0.5,
    1.0,
    2.5,
    "",
    "a",
    "ab",
    "abc",
    [],
    ["a"],
    [1],
    [1, "a"],
    [1, 2],
]
VALUES_OF_ALL_KINDS += [["a", "b", "c"], {}, {"a": 1}, {"b": "x"}, {"a": None, "b": 1}, {"c": {}}]

DELICATE: list[dict[str, Any]] = [
    {"anyOf": [{"type": ["string", "null"], "not": {"type": "null"}}, {"type": "integer"}]},
    {"anyOf": [{"type": "number", "minimum": 2}, {"type": "integer"}]},
    {"anyOf": [{"type": "number", "maximum": 0}, {"type": "integer", "minimum": 2}]},
    {"anyOf": [{"type": "number", "maximum": 0}, {"type": "integer", "minimum": 2}, {"type": "null"}]},
    {
        "anyOf": [
            {"type": "string", "minLength": 2},
            {"type": "array", "minItems": 2},
            {"type": "object", "minProperties": 1},
        ]
    },
    {"anyOf": [{"type": "string"}, {"minLength": 2}]},
    {"anyOf": [{"enum": ["a", 1]}, {"type": "null"}, {"enum": [True]}], "not": {"const": 1}},
    {"$ref": "#/$defs/A", "minLength": 1, "$defs": {"A": {"type": "string", "minLength": 2}}},
    {
        "$ref": "#/$defs/A",
        "properties": {"b": {}},
        "$defs": {"A": {"properties": {"a": {}}, "additionalProperties": False}},
    },
    {"$ref": "#/$defs/A", "allOf": [{"minLength": 1}], "$defs": {"A": {"type": "string", "maxLength": 2}}},
    {"allOf": [{"type": "string"}], "minLength": 2},
    {"prefixItems": [{}], "maxItems": 2, "items": {"type": "string"}},
    {"prefixItems": [{"type": "integer"}], "items": False},
    {"prefixItems": [{"type": "integer"}, {}], "maxItems": 1, "items": {"type": "string"}},
    {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"anyOf": [{"$ref": "#"}, {"type": "string"}]}}},
    {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
    {"oneOf": [{"type": "object", "properties": {"a": {"const": 1}}}, {"type": "object", "required": ["b"]}]},
    {"enum": [1, True, "a"], "type": ["boolean", "string"]},
    {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "array"}},
    {"then": False},
    {"not": {}},
    {"allOf": [True, False]},
    {"anyOf": [False, {"type": "string"}]},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False},
    {"type": "string", "properties": {"a": False}},
]


@pytest.mark.parametrize("document", DELICATE, ids=json.dumps)
def test_the_normal_form_accepts_the_same_in_delicate_cases(document: dict[str, Any]) -> None:
    before = jsonschema_rs.Draft202012Validator(document)
    after = jsonschema_rs.Draft202012Validator(typing.cast("dict[str, Any] | bool", normalised(document)))
    assert [before.is_valid(v) for v in VALUES_OF_ALL_KINDS] == [after.is_valid(v) for v in VALUES_OF_ALL_KINDS]


def test_a_definition_that_would_fill_the_memory_stays_a_definition() -> None:
    levels = {f"L{n}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/L{n + 1}"}] * 2} for n in range(60)}
    document = {"$ref": "#/$defs/L0", "$defs": {**levels, "L60": {"type": "string"}}}
    assert normalised(document) == document


def test_a_reference_to_itself_without_progress_does_not_hang() -> None:
    document = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    assert normalised(document) == document


def test_a_schema_nested_too_deeply_is_refused_with_a_sentence() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"items": deep}
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        schema_hash(deep)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -2.0]),
    st.sampled_from(["", "a", "ab", "b"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
NUMBERS = st.sampled_from([0, 1, 2, 1.0, 0.5, -1])
SMALL = st.integers(0, 3)
NAMES = st.sampled_from(["a", "b", "c"])
REFERENCES = st.sampled_from(["#", "#/$defs/X", "#/$defs/Y"])


def nodes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(SCALARS, min_size=1, max_size=4),
            "const": SCALARS,
            "minimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "minLength": SMALL,
            "maxLength": SMALL,
            "pattern": st.sampled_from(["^a", "b$"]),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "^b"]), inner, max_size=2),
            "propertyNames": inner,
            "minProperties": SMALL,
            "items": inner,
            "prefixItems": some,
            "maxItems": SMALL,
            "minItems": SMALL,
            "uniqueItems": st.booleans(),
            "contains": inner,
            "anyOf": some,
            "oneOf": some,
            "allOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "title": st.just("words"),
            "default": SCALARS,
            "description": st.just("words"),
        },
    )


LEAVES = st.booleans() | st.fixed_dictionaries({}, optional={"type": TYPES, "title": st.just("t")})


def few(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Small unions of simple things, as libraries write them."""
    typed = st.fixed_dictionaries(
        {"type": TYPES}, optional={"minLength": SMALL, "minimum": NUMBERS, "format": st.just("int32")}
    )
    branch = typed | st.fixed_dictionaries({"enum": st.lists(SCALARS, min_size=1, max_size=2)}) | inner
    return st.fixed_dictionaries(
        {}, optional={"anyOf": st.lists(branch, min_size=1, max_size=4)}
    ) | st.fixed_dictionaries({"oneOf": st.lists(typed, min_size=1, max_size=3)})


SCHEMAS = st.recursive(LEAVES, lambda inner: nodes(inner) | few(inner), max_leaves=8)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Whole documents, sometimes with definitions. References are put below `items` or `properties`: progress is made."""
    root = draw(SCHEMAS)
    document: dict[str, Any] = dict(root) if isinstance(root, dict) else {"allOf": [root]}
    if draw(st.booleans()):
        document["$defs"] = {"X": with_reference(draw), "Y": with_reference(draw)}
        document = {**document, **draw(st.sampled_from([{"$ref": "#/$defs/X"}, {"items": {"$ref": "#/$defs/Y"}}]))}
    return document


def with_reference(draw: st.DrawFn) -> dict[str, Any]:
    place, reference = draw(st.sampled_from(["items", "additionalProperties"])), {"$ref": draw(REFERENCES)}
    inner: Any = {"anyOf": [reference, {"type": "null"}]} if draw(st.booleans()) else reference
    return {**draw(nodes(LEAVES)), place: inner}


SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@SETTINGS
@given(documents(), st.lists(VALUES, min_size=5, max_size=20))
def test_the_normal_form_accepts_what_the_document_accepts(document: dict[str, Any], values: list[Any]) -> None:
    before, after = (
        jsonschema_rs.Draft202012Validator(document),
        jsonschema_rs.Draft202012Validator(typing.cast("dict[str, Any] | bool", normalised(document))),
    )
    for value in values:
        assert before.is_valid(value) == after.is_valid(value), (value, normalised(document))


@SETTINGS
@given(documents())
def test_the_normal_form_of_a_normal_form_is_itself(document: dict[str, Any]) -> None:
    once = normalised(document)
    assert normalised(once) == once


@SETTINGS
@given(documents(), st.randoms(use_true_random=False))
def test_order_and_names_of_definitions_do_not_count(document: dict[str, Any], random: Any) -> None:
    assert schema_hash(shuffled(renamed(document), random)) == schema_hash(document)


def renamed(document: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(document).replace("#/$defs/X", "#/$defs/Other")
    changed: dict[str, Any] = json.loads(text)
    if "$defs" in changed:
        changed["$defs"]["Other"] = changed["$defs"].pop("X")
    return changed


def shuffled(node: Any, random: Any) -> Any:
    if isinstance(node, dict):
        names = list(node)
        random.shuffle(names)
        return {name: shuffled(node[name], random) for name in names}
    return [shuffled(item, random) for item in node] if isinstance(node, list) else node
