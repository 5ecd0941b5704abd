"""The languages of a registry: what is the same schema, what is normal, and what text a descriptor becomes."""

from __future__ import annotations

import base64
import json
from importlib.resources import files

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode
from posthouse.governance.local.protoc import compiled, has_protoc
from posthouse.governance.registry.format import Import
from posthouse.governance.registry.formats.avro import AvroFormat
from posthouse.governance.registry.formats.json_schema import JsonFormat
from posthouse.governance.registry.formats.protobuf import ProtobufFormat
from posthouse.governance.registry.formats.protobuf_text import written

AVRO, JSON, PROTOBUF = AvroFormat(), JsonFormat(), ProtobufFormat()
with_protoc = pytest.mark.skipif(not has_protoc(), reason="grpcio-tools, with Protobuf's compiler, is not installed")


def avro(schema: object) -> str:
    return AVRO.read(json.dumps(schema), []).canonical


def test_avro_is_the_same_schema_however_its_names_are_written() -> None:
    full = {"type": "record", "name": "shop.Order", "fields": [{"name": "next", "type": ["null", "shop.Order"]}]}
    short = {
        "fields": [{"type": ["null", "Order"], "name": "next"}],
        "namespace": "shop",
        "name": "Order",
        "type": "record",
    }
    assert avro(full) == avro(short)
    assert avro("string") == avro({"type": "string"}) == avro({"type": {"type": "string"}})


@pytest.mark.parametrize(
    "other",
    [
        {"type": "record", "name": "Order", "fields": []},
        {"type": "record", "name": "shop.Order", "fields": [], "doc": "an order"},
        {"type": "record", "name": "shop.Order", "fields": [], "aliases": ["Old"]},
        {"type": "record", "name": "shop.Order", "fields": [{"name": "a", "type": "int"}]},
        {"type": "record", "name": "shop.Order", "fields": [], "owner": "us"},
    ],
)
def test_avro_that_says_something_else_is_another_schema(other: object) -> None:
    assert avro({"type": "record", "name": "shop.Order", "fields": []}) != avro(other)


def test_a_normal_avro_text_is_the_same_schema_to_a_reader() -> None:
    text = json.dumps(
        {
            "namespace": "shop",
            "type": "record",
            "z": 1,
            "a": 2,
            "name": "Order",
            "fields": [
                {"type": {"type": "enum", "name": "E", "symbols": ["A"]}, "name": "e"},
                {"name": "f", "type": "E"},
            ],
        }
    )
    reading = AVRO.read(text, [])
    again = AVRO.read(reading.normal_text, [])
    assert reading.text == text
    assert again.normal == reading.normal
    assert AVRO.compare(reading.compiled, again.compiled, Mode.FULL).findings == ()


def test_json_keeps_every_digit_and_is_the_same_whatever_its_spaces() -> None:
    text = '{ "type": "number",\n "maximum": 0.10000000000000000000001 }'
    reading = JSON.read(text, [])
    assert reading.canonical == '{"type":"number","maximum":0.10000000000000000000001}'
    assert reading.normal == '{"maximum":0.10000000000000000000001,"type":"number"}'
    assert reading.text == text


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
def test_json_schemas_are_compared_with_what_they_refer_to(draft: str) -> None:
    text = json.dumps(
        {"$schema": draft, "type": "object", "properties": {"to": {"$ref": "address.json#/definitions/a"}}}
    )

    def read(kind: str) -> bytes:
        address = json.dumps({"$schema": draft, "$id": "http://else/where", "definitions": {"a": {"type": kind}}})
        return JSON.read(text, [Import("address.json", address)]).compiled

    assert JSON.compare(read("string"), read("string"), Mode.FULL).compatible
    (finding, *_) = JSON.compare(read("string"), read("number"), Mode.BACKWARD).findings
    assert finding.path == "/to"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "3",
        '{"type": "strin"}',
        '{"a": 1, "a": 2}',
        '{"$ref": "elsewhere.json"}',
        '{"$schema": "http://json-schema.org/draft-99/schema"}',
        '{"maximum": 1e999999999}',
        "[" * 100_000,
    ],
)
def test_what_is_no_json_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        JSON.read(text, [])


EVERYTHING_2 = """
syntax = "proto2";
package shop;
import public "google/protobuf/descriptor.proto";
option java_package = "com.shop";
option optimize_for = SPEED;
message Order {
  option deprecated = true;
  reserved 100 to 110, 120;
  reserved "old", "older";
  extensions 1000 to 1999, 536870000 to max;
  required string id = 1;
  optional int32 count = 2 [default = -5, deprecated = true];
  optional string text = 3 [default = "a \\"quote\\" \\n and \\303\\274"];
  optional bytes data = 4 [default = "\\001\\377\\""];
  optional Colour colour = 5 [default = RED];
  optional double huge = 6 [default = inf];
  repeated int32 packed = 7 [packed = true];
  optional group Detail = 8 { optional string note = 1; }
  map<string, Order> children = 9;
  oneof pay { string card = 10; group Cash = 11 { optional int32 coins = 1; } }
  optional string renamed = 12 [json_name = "other"];
  enum Colour { option allow_alias = true; RED = 1; ROT = 1; BLUE = -2; reserved 5 to 7, 9; reserved "GREEN"; }
  message Nested { message Deeper { optional .shop.Order.Nested up = 1; } }
  extend Order { optional int32 inside = 1001; }
}
extend Order { optional Order.Nested outside = 1000; repeated string more = 1002; }
service Desk {
  option deprecated = true;
  rpc Ask (Order) returns (stream Order);
  rpc Tell (stream Order) returns (Order) { option idempotency_level = IDEMPOTENT; }
}
"""
EVERYTHING_3 = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  optional string maybe = 1;
  oneof pay { string card = 2; google.protobuf.Timestamp at = 3; }
  int64 after = 4;
  repeated int32 loose = 5 [packed = false];
  map<int32, google.protobuf.Timestamp> times = 6;
}
"""
EDITION = """
edition = "2023";
option features.field_presence = IMPLICIT;
message Order {
  reserved old;
  int32 n = 1 [features.field_presence = EXPLICIT];
  message Inner { int32 a = 1; }
  Inner inner = 2 [features.message_encoding = DELIMITED];
}
"""
SHIPPED = ("any", "api", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers")


def shipped(name: str) -> str:
    return (files("grpc_tools") / "_proto" / "google" / "protobuf" / f"{name}.proto").read_text()


@with_protoc
@pytest.mark.parametrize(
    "text", [EVERYTHING_2, EVERYTHING_3, EDITION, *SHIPPED], ids=["proto2", "proto3", "edition", *SHIPPED]
)
def test_a_descriptor_becomes_a_text_that_says_the_same(text: str) -> None:
    source = shipped(text) if text in SHIPPED else text
    reading = PROTOBUF.read(source, [])
    descriptor = base64.b64decode(PROTOBUF.shown(source, reading.compiled, "serialized"))
    again = PROTOBUF.read(written(FileDescriptorProto.FromString(descriptor)), [])
    assert again.canonical == reading.canonical
    assert PROTOBUF.read(reading.normal_text, []).normal == reading.normal
    assert PROTOBUF.compare(reading.compiled, again.compiled, Mode.FULL).findings == ()


@with_protoc
def test_protobuf_is_the_same_schema_as_text_and_as_descriptor() -> None:
    text = PROTOBUF.read(EVERYTHING_3, [])
    sent = FileDescriptorSet.FromString(compiled(EVERYTHING_3, {})).file[-1]
    sent.name = "shop/order.proto"
    sent.source_code_info.location.add(path=[4, 0], span=[1, 2, 3], leading_comments="from somewhere")
    descriptor = PROTOBUF.read(base64.b64encode(sent.SerializeToString()).decode(), [])
    assert descriptor.canonical == text.canonical
    assert descriptor.text.startswith('syntax = "proto3";')
    spaced = PROTOBUF.read("// a comment\n" + EVERYTHING_3.replace(" ", "  "), [])
    assert spaced.canonical == text.canonical


@with_protoc
def test_normal_protobuf_does_not_mind_the_order_of_fields() -> None:
    one = PROTOBUF.read('syntax = "proto3"; message A { int32 a = 1; int32 b = 2; }', [])
    other = PROTOBUF.read('syntax = "proto3"; message A { int32 b = 2; int32 a = 1; }', [])
    third = PROTOBUF.read('syntax = "proto3"; message A { int32 b = 1; int32 a = 2; }', [])
    assert one.canonical != other.canonical
    assert one.normal == other.normal != third.normal


@with_protoc
@pytest.mark.parametrize(
    "descriptor", [FileDescriptorProto(dependency=["missing.proto"]), FileDescriptorProto(dependency=['x";\n'])]
)
def test_a_descriptor_that_lacks_something_is_refused(descriptor: FileDescriptorProto) -> None:
    descriptor.message_type.add(name="A")
    with pytest.raises(SchemaError):
        PROTOBUF.read(base64.b64encode(descriptor.SerializeToString()).decode(), [])
