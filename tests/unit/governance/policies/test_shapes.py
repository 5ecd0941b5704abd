"""Fields are read from schemas of every format."""

from __future__ import annotations

import pytest

from posthouse.errors import SchemaError
from posthouse.governance.policies.shapes import MOST_FIELDS, fields_of, largest_json
from tests.unit.governance.policies.test_rules import entry

SUBJECT = "shop.orders.order.placed.v1"


def fields(schema: str, format: str = "json") -> dict[str, set[str]]:
    return {field.path: set(field.kinds) for field in fields_of(entry(SUBJECT, schema, format=format))}


def test_references_unions_lists_and_maps_are_entered() -> None:
    schema = """{"type":"object","$defs":{"a":{"type":"object","properties":{"x":{"type":"integer"}}}},"properties":{
      "one":{"$ref":"#/$defs/a"},"many":{"type":"array","items":{"$ref":"#/$defs/a"}},
      "maybe":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}]},
      "by":{"type":"object","additionalProperties":{"$ref":"#/$defs/a"}},"kind":{"enum":["p","q"]}}}"""
    assert fields(schema) == {
        "one": {"object"}, "one.x": {"integer"}, "many": {"array"}, "many.*.x": {"integer"}, "maybe": {"null", "object"},
        "maybe.x": {"integer"}, "by": {"object", "map"}, "by.*.x": {"integer"}, "kind": set(),
    }  # fmt: skip


def test_a_reference_to_nothing_and_a_circle_of_references_end() -> None:
    schema = """{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},
      "properties":{"x":{"$ref":"#/$defs/none"},"y":{"$ref":"#/$defs/a"}}}"""
    assert set(fields(schema)) == {"x", "y"}


def test_a_field_of_the_type_that_it_stands_in_is_not_anything() -> None:
    schema = """{"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}}}},
      "properties":{"first":{"$ref":"#/$defs/n"}}}"""
    assert fields(schema) == {"first": {"object"}, "first.next": set()}


def test_a_map_may_hold_anything_by_saying_so() -> None:
    schema = '{"properties":{"m":{"type":"object","additionalProperties":true},"a":{"type":"array","items":true}}}'
    assert fields(schema) == {"m": {"object", "map", "any"}, "a": {"array", "any"}}


def test_no_more_fields_are_looked_at_than_anybody_needs() -> None:
    many = ",".join(f'"f{number}":{{"type":"string"}}' for number in range(MOST_FIELDS + 500))
    assert len(fields(f'{{"properties":{{{many}}}}}')) == MOST_FIELDS


def test_types_that_hold_each_other_many_times_end_in_time() -> None:
    names = [f"t{number}" for number in range(12)]
    inside = ",".join(f'"{name}":{{"$ref":"#/$defs/{name}"}}' for name in names)
    types = ",".join(f'"{name}":{{"type":"object","properties":{{{inside}}}}}' for name in names)
    assert len(fields(f'{{"$defs":{{{types}}},"properties":{{{inside}}}}}')) <= MOST_FIELDS


def test_alternatives_that_hold_each_other_end_in_time_and_so_does_their_size() -> None:
    names = [f"t{number}" for number in range(12)]
    any_of = ",".join(f'{{"$ref":"#/$defs/{name}"}}' for name in names)
    types = ",".join(f'"{name}":{{"anyOf":[{any_of}]}}' for name in names)
    schema = f'{{"$defs":{{{types}}},"properties":{{"x":{{"anyOf":[{any_of}]}}}}}}'
    assert set(fields(schema)) == {"x"}
    assert largest_json(entry(SUBJECT, schema)) == len('"x":,')


def test_lists_of_lists_are_entered() -> None:
    item = '{"type":"object","properties":{"x":{"type":"string"}}}'
    schema = f'{{"properties":{{"a":{{"type":"array","items":{{"type":"array","items":{item}}}}}}}}}'
    assert set(fields(schema)) == {"a", "a.*.*.x"}


@pytest.mark.parametrize("schema", ["{", "[" * 3_000 + "]" * 3_000])
def test_a_schema_that_cannot_be_read_is_said_to_be_so(schema: str) -> None:
    with pytest.raises(SchemaError, match=rf"the schema of {SUBJECT}"):
        fields(schema)


def test_avro_has_fields_too() -> None:
    schema = """{"type":"record","name":"R","fields":[{"name":"price","type":["null","double"]},
      {"name":"lines","type":{"type":"array","items":{"type":"record","name":"L","fields":[{"name":"sku","type":"string"}]}}},
      {"name":"by","type":{"type":"map","values":{"type":"record","name":"V","fields":[{"name":"n","type":"long"}]}}},
      {"name":"cost","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}]}"""
    assert fields(schema, "avro") == {
        "price": {"null", "number"}, "lines": {"array"}, "lines.*.sku": {"string"}, "by": {"map"}, "by.*.n": {"integer"}, "cost": {"string"},
    }  # fmt: skip


def test_protobuf_has_fields_too() -> None:
    schema = (
        'syntax = "proto3";\nmessage M {\n  string order_id = 1;\n  repeated string skus = 2;\n  double price = 3;\n'
        "  map<string, string> tags = 4;\n  optional sint64 cents = 5;\n  Other o = 6;\n  option deprecated = true;\n}\n"
    )
    assert fields(schema, "protobuf") == {
        "order_id": {"string"}, "skus": {"array"}, "price": {"number"}, "tags": {"map"}, "cents": {"integer"},
        "o": {"object"},
    }  # fmt: skip
