"""Avro: what a reader makes of what a writer wrote, as a table of cases that Confluent and Karapace agree on."""

from __future__ import annotations

import json
import time
from typing import NamedTuple

import pytest

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode, Outcome, Reader, Verdict, Weight
from posthouse.governance.evolution.avro import compare

Schema = object


def record(*fields: object, name: str = "Order", **more: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: object = "int", **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "Colour", **more: object) -> dict[str, object]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "Hash", **more: object) -> dict[str, object]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


def mapping(values: object) -> dict[str, object]:
    return {"type": "map", "values": values}


def decimal(precision: int, scale: int) -> dict[str, object]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def logical(kind: str, name: str) -> dict[str, object]:
    return {"type": kind, "logicalType": name}


def linked(head: str) -> dict[str, object]:
    return record(field("head", head), field("tail", ["null", "List"]), name="List")


class Case(NamedTuple):
    what: str
    old: Schema
    new: Schema
    backward: bool
    forward: bool


A = record(field("a"))
CASES = [
    Case("the same", A, A, True, True),
    Case("an added field with a default", A, record(field("a"), field("b", default=0)), True, True),
    Case("an added field without one", A, record(field("a"), field("b")), False, True),
    Case("a removed field", record(field("a"), field("b")), A, True, False),
    Case("a removed field with a default", record(field("a"), field("b", default=1)), A, True, True),
    Case("another default", record(field("a", default=1)), record(field("a", default=2)), True, True),
    Case("a default that is gone", record(field("a", default=1)), A, True, True),
    Case("fields in another order", record(field("a"), field("b")), record(field("b"), field("a")), True, True),
    Case("a renamed field", A, record(field("b")), False, False),
    Case("a renamed field with an alias", A, record(field("b", aliases=["a"])), True, False),
    Case("another name", record(name="Old"), record(name="New"), False, False),
    Case("another name with an alias", record(name="Old"), record(name="New", aliases=["Old"]), True, False),
    Case(
        "another name with an alias in a namespace",
        record(name="x.Old"),
        record(name="x.New", aliases=["Old"]),
        True,
        False,
    ),
    Case("another namespace", record(name="x.Order"), record(name="y.Order"), True, True),
    Case("int to long", "int", "long", True, False),
    Case("int to float", "int", "float", True, False),
    Case("int to double", "int", "double", True, False),
    Case("long to float", "long", "float", True, False),
    Case("long to double", "long", "double", True, False),
    Case("float to double", "float", "double", True, False),
    Case("string to bytes and back", "string", "bytes", True, True),
    Case("int to string", "int", "string", False, False),
    Case("boolean to int", "boolean", "int", False, False),
    Case("null to int", "null", "int", False, False),
    Case("int to boolean", "int", "boolean", False, False),
    Case("a type to a union with it", "int", ["null", "int"], True, False),
    Case("a type to a union with one it grows into", "int", ["null", "double"], True, False),
    Case("a union that lost a type", ["int", "string"], ["int"], False, True),
    Case("a union that lost the type for a wider one", ["int", "float"], ["double"], True, False),
    Case("a union of one to its type", ["int"], "int", True, True),
    Case("a union in another order", ["int", "string"], ["string", "int"], True, True),
    Case("an empty union", [], [], True, True),
    Case("an empty union to something", [], "int", True, False),
    Case("a union to a map", ["null", mapping("int")], mapping("int"), False, True),
    Case("a union of records", ["null", record(field("a"))], ["null", record(field("a"), field("b"))], False, True),
    Case("an array of wider items", array("int"), array("long"), True, False),
    Case("an array of others", array("int"), array("string"), False, False),
    Case("a map of wider values", mapping("int"), mapping("long"), True, False),
    Case("a map to an array", mapping("int"), array("int"), False, False),
    Case("an array to a map", array("int"), mapping("int"), False, False),
    Case("an added symbol", enum("RED"), enum("RED", "BLUE"), True, False),
    Case("a removed symbol", enum("RED", "BLUE"), enum("RED"), False, True),
    Case("a removed symbol with a default", enum("RED", "BLUE"), enum("RED", default="RED"), True, True),
    Case(
        "an added symbol before a default", enum("RED", default="RED"), enum("RED", "BLUE", default="RED"), True, True
    ),
    Case(
        "a default of the field is none of the enum",
        record(field("a", enum("RED", "BLUE"), default="RED")),
        record(field("a", enum("RED"), default="RED")),
        False,
        True,
    ),
    Case("an enum of another name", enum("RED"), enum("RED", name="Tint"), False, False),
    Case("an enum to a string", enum("RED"), "string", False, False),
    Case("a string to an enum", "string", enum("RED"), False, False),
    Case("a fixed of another size", fixed(4), fixed(8), False, False),
    Case("a fixed of another name", fixed(4), fixed(4, "Key"), False, False),
    Case("a fixed to bytes", fixed(4), "bytes", False, False),
    Case("bytes to a fixed", "bytes", fixed(4), False, False),
    Case(
        "a record inside",
        record(field("a", record(field("x"), name="In"))),
        record(field("a", record(name="In"))),
        True,
        False,
    ),
    Case("a list of itself with a wider head", linked("int"), linked("long"), True, False),
    Case("a list of itself with another head", linked("int"), linked("string"), False, False),
    Case("a logical type that was added", "long", logical("long", "timestamp-millis"), True, True),
    Case("an unknown logical type", logical("string", "colour"), "string", True, True),
    Case("the same decimal", decimal(9, 2), decimal(9, 2), True, True),
    Case("a decimal that cannot be is none", decimal(2, 9), "bytes", True, True),
]

STRICTER = [
    Case(
        "another unit of time", logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), False, False
    ),
    Case("another scale", decimal(9, 2), decimal(9, 3), False, False),
    Case("another precision", decimal(9, 2), decimal(10, 2), False, False),
]
"""Confluent and Karapace let these pass, and readers get other numbers than were written."""


def verdict(old: Schema, new: Schema, mode: Mode) -> Verdict:
    return compare(json.dumps(old), json.dumps(new), mode)


def by_name(case: Case) -> str:
    return case.what


@pytest.mark.parametrize("case", CASES + STRICTER, ids=by_name)
def test_a_change_passes_where_readers_get_what_was_written(case: Case) -> None:
    assert verdict(case.old, case.new, Mode.BACKWARD).compatible is case.backward
    assert verdict(case.old, case.new, Mode.FORWARD).compatible is case.forward
    assert verdict(case.old, case.new, Mode.FULL).compatible is (case.backward and case.forward)
    assert verdict(case.new, case.old, Mode.FORWARD).compatible is case.backward
    assert verdict(case.old, case.new, Mode.NONE).compatible


@pytest.mark.parametrize("case", CASES + STRICTER, ids=by_name)
def test_the_house_rules_are_never_looser_than_full(case: Case) -> None:
    if not (case.backward and case.forward):
        assert not verdict(case.old, case.new, Mode.ADDITIVE).compatible


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (record(field("a", default=1)), record(), "field-removed"),
        (record(field("a", default=1)), record(field("b", default=1, aliases=["a"])), "field-renamed"),
        ("string", "bytes", "type-changed"),
        (enum("RED", "BLUE", default="RED"), enum("RED", default="RED"), "enum-symbol-missing"),
    ],
)
def test_the_house_rules_let_nothing_be_taken_away(old: Schema, new: Schema, rule: str) -> None:
    found = verdict(old, new, Mode.ADDITIVE)
    assert not found.compatible
    assert rule in {finding.rule for finding in found.findings}


def test_the_house_rules_let_fields_be_added() -> None:
    assert verdict(A, record(field("a"), field("b", default=0)), Mode.ADDITIVE).compatible


def test_a_finding_says_where_who_and_how_to_mend_it_and_shows_a_message() -> None:
    old = record(field("items", array(record(field("sku", "string"), field("count"), name="Item"))))
    new = record(field("items", array(record(field("sku", "string"), field("count", "string"), name="Item"))))
    (finding,) = verdict(old, new, Mode.BACKWARD).findings
    assert finding.path == "/items/*/count"
    assert finding.rule == "type-changed"
    assert finding.breaks is Reader.NEW
    assert finding.example == {"items": [{"sku": "", "count": 0}]}
    assert "int is written and string is read" in finding.sentence
    assert finding.way_out


def test_every_mistake_is_found_at_once() -> None:
    old = record(field("a"), field("b", "string"), field("c", enum("X", "Y")))
    new = record(field("a", "string"), field("b", "int"), field("c", enum("X")), field("d"))
    found = verdict(old, new, Mode.BACKWARD).findings
    assert [(f.path, f.rule) for f in found] == [
        ("/d", "field-without-default"),
        ("/a", "type-changed"),
        ("/b", "type-changed"),
        ("/c", "enum-symbol-missing"),
    ]


def test_a_rounding_promotion_is_noted_and_passes() -> None:
    found = verdict("long", "double", Mode.BACKWARD)
    assert found.outcome is Outcome.COMPATIBLE
    assert [(f.rule, f.weight) for f in found.findings] == [("type-promoted", Weight.NOTE)]


def test_a_union_that_cannot_read_says_what_is_wrong_in_the_branch_that_was_meant() -> None:
    old = ["null", record(field("a"))]
    new = ["null", record(field("a"), field("b"))]
    (finding,) = verdict(old, new, Mode.BACKWARD).findings
    assert (finding.path, finding.rule) == ("/b", "field-without-default")


def test_a_type_that_fails_inside_a_union_fails_wherever_it_is_used() -> None:
    """Node reads only while Leaf does; a guess made while looking at one must not be kept for the other."""

    def tree(leaf: object) -> Schema:
        inner = record(field("up", ["null", "Node"]), field("value", leaf), name="Leaf")
        return record(
            field("first", ["null", record(field("leaf", ["null", inner]), name="Node")]), field("again", "Leaf")
        )

    assert not verdict(tree("int"), tree("string"), Mode.BACKWARD).compatible
    assert verdict(tree("int"), tree("long"), Mode.BACKWARD).compatible


def test_the_branch_that_reads_is_taken_though_another_one_has_the_name() -> None:
    old = [record(field("a"), name="x.Order")]
    new = [record(field("a", "string"), name="y.Order"), record(field("a"), name="x.Order")]
    assert verdict(old, new, Mode.BACKWARD).compatible


def test_a_branch_reads_though_only_one_type_of_its_own_union_does() -> None:
    old = [record(field("a"), name="x.Order")]
    new = [record(field("a", "string"), name="y.Order"), record(field("a", ["null", "int"]), name="x.Order")]
    assert verdict(old, new, Mode.BACKWARD).compatible


def test_a_branch_fails_with_what_it_contains_in_whatever_order_that_is_seen() -> None:
    """The first branch fails through P and C, the last one through C; only the one between them reads."""

    def part(kind: str) -> Schema:
        return record(field("c", record(field("v", kind), name="shared.C")), name="shared.P")

    old = [record(field("x", part("int")), field("c2", "shared.C"), name="Order")]
    new = [
        record(field("x", part("string")), name="a.Order"),
        record(name="b.Order"),
        record(field("c2", "shared.C"), name="g.Order"),
    ]
    assert verdict(old, new, Mode.BACKWARD).compatible


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "not JSON"),
        ('{"type": "record", "type": "record"}', "key twice"),
        ("3", "a schema is a name, an object or a list"),
        ('"strin"', "no type 'strin'"),
        ('{"name": "a"}', "no `type`"),
        ('{"type": "record", "fields": []}', "needs a `name`"),
        ('{"type": "record", "name": "a-b", "fields": []}', "not a name"),
        ('{"type": "record", "name": "int", "fields": []}', "simple type"),
        ('{"type": "record", "name": "A"}', "`fields`"),
        ('{"type": "record", "name": "A", "fields": [{"name": "b"}]}', "`type` is missing"),
        ('{"type": "record", "name": "A", "fields": [{"name": "b c", "type": "int"}]}', "name of letters"),
        ('{"type": "record", "name": "A", "fields": [{"name": "b", "type": "int", "default": "x"}]}', "default"),
        ('{"type": "record", "name": "A", "fields": [{"name": "b", "type": "int", "default": 3000000000}]}', "default"),
        ('{"type": "record", "name": "A", "fields": [{"name": "b", "type": "int", "default": true}]}', "default"),
        ('{"type": "record", "name": "A", "fields": [{"name": "b", "type": "int", "aliases": "c"}]}', "`aliases`"),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "b", "type": "int"}, {"name": "b", "type": "int"}]}',
            "'b' twice",
        ),
        ('["int", "int"]', "int twice"),
        ('["int", ["string"]]', "union stands directly in a union"),
        ('{"type": "array"}', "`items` is missing"),
        ('{"type": "map"}', "`values` is missing"),
        ('{"type": "fixed", "name": "F", "size": -1}', "`size`"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "symbol twice"),
        ('{"type": "enum", "name": "E", "symbols": ["A B"]}', "`symbols`"),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "none of the enum's symbols"),
        (
            '[{"type": "fixed", "name": "F", "size": 1}, {"type": "array", "items": {"type": "fixed", "name": "F", "size": 1}}]',
            "defined twice",
        ),
        ('{"type": "array", "items": ' * 150 + '"int"' + "}" * 150, "levels deep"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_schema_is_said_with_its_place(schema: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        compare('"int"', schema, Mode.BACKWARD)


def ladder(rungs: int, last: object) -> Schema:
    """Each record has the next one twice, inside unions: a walk that forgets takes 2 ** rungs steps."""
    kind: object = record(field("x", last), name=f"R{rungs}")
    for number in reversed(range(rungs)):
        kind = record(field("a", ["null", kind]), field("b", ["null", f"R{number + 1}"]), name=f"R{number}")
    assert isinstance(kind, dict)
    return kind


def test_schemas_that_are_knotted_are_compared_in_good_time() -> None:
    start = time.monotonic()
    (finding,) = verdict(ladder(24, "int"), ladder(24, "string"), Mode.BACKWARD).findings
    assert finding.path.endswith("/x")
    assert verdict(ladder(24, "int"), ladder(24, "long"), Mode.BACKWARD).compatible
    assert time.monotonic() - start < 5


def test_schemas_that_are_too_large_are_not_judged() -> None:
    many = [record(field("a"), name=f"N{number}") for number in range(400)]
    found = verdict(many, many, Mode.BACKWARD)
    assert found.outcome is Outcome.UNJUDGED
    assert [f.rule for f in found.findings] == ["too-large"]


def test_a_default_that_is_a_maze_is_refused_in_good_time() -> None:
    def nested(depth: int) -> object:
        value: object = 0
        for _ in range(depth):
            value = {"n": value}
        return value

    left = record(field("n", ["string", "L", record(field("n", ["string", "L", "R"]), name="R")]), name="L")
    schema = record(field("maze", left, default=nested(40)), name="Maze")
    start = time.monotonic()
    with pytest.raises(SchemaError, match="default"):
        compare('"int"', json.dumps(schema), Mode.BACKWARD)
    assert time.monotonic() - start < 5
