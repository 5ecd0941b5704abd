"""A case of our own for every rule of buf's categories WIRE and WIRE_JSON, in their second version: none passes unseen.

Unseen is not unpunished. What changes bytes breaks; what only JSON or a later version would suffer from is a note, with which a
change passes, because a registry cannot know who speaks JSON.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest

from posthouse.governance.evolution import Mode, Weight
from posthouse.governance.evolution.protobuf import compare
from posthouse.governance.local.protoc import compiled, has_protoc

pytestmark = pytest.mark.skipif(not has_protoc(), reason="grpcio-tools, with Protobuf's compiler, is not installed")

BREAKS, UNJUDGED, NOTE = Weight.BREAKS, Weight.UNJUDGED, Weight.NOTE


class Case(NamedTuple):
    """A change, the rule of buf that names it, and what is said here; `weight` is against new readers of old data."""

    buf: str
    old: str
    new: str
    rule: str
    weight: Weight


def proto3(body: str, package: str = "shop") -> str:
    return f'syntax = "proto3"; package {package}; {body}'


def proto2(body: str) -> str:
    return f'syntax = "proto2"; package shop; {body}'


def edition(body: str) -> str:
    return f'edition = "2023"; package shop; {body}'


def service(call: str) -> str:
    return proto3(f"message A {{}} message B {{}} service Shop {{ rpc Buy{call} }}")


def message(fields: str) -> str:
    return proto3(f"message Order {{ {fields} }}")


def enum(values: str) -> str:
    return proto3(f"enum State {{ {values} }} message Order {{ State state = 1; }}")


LOOSE = "option features.json_format = LEGACY_BEST_EFFORT;"
SET = "message Order {{ option message_set_wire_format = {}; extensions 4 to 900; }}"

WIRE = [
    Case("FIELD_SAME_DEFAULT", proto2("message O { optional int32 n = 1 [default = 1]; }"),
         proto2("message O { optional int32 n = 1 [default = 2]; }"), "default-changed", BREAKS),
    Case("FIELD_SAME_DEFAULT", proto2("message O { optional string s = 1; }"),
         proto2('message O { optional string s = 1 [default = "EUR"]; }'), "default-changed", BREAKS),
    Case("FIELD_SAME_DEFAULT", proto2("enum E { A = 1; B = 2; } message O { optional E e = 1 [default = A]; }"),
         proto2("enum E { A = 1; B = 2; } message O { optional E e = 1 [default = B]; }"), "default-changed", BREAKS),
    Case("FIELD_SAME_DEFAULT", edition("message O { bool paid = 1 [default = true]; }"),
         edition("message O { bool paid = 1; }"), "default-changed", BREAKS),
    Case("FIELD_SAME_ONEOF", message("string s = 1; int32 n = 2;"),
         message("oneof pay { string s = 1; int32 n = 2; }"), "moved-into-oneof", BREAKS),
    Case("FIELD_SAME_ONEOF", message("string s = 1;"), message("oneof pay { string s = 1; }"), "oneof-changed", NOTE),
    Case("FILE_SAME_PACKAGE", proto3("message A {}"), proto3("message A {}", "other"), "package-changed", BREAKS),
    Case("MESSAGE_SAME_REQUIRED_FIELDS", proto2("message O {}"), proto2("message O { required int32 n = 1; }"),
         "required-added", BREAKS),
    Case("RESERVED_ENUM_NO_DELETE", enum("NONE = 0; reserved 5 to 9;"), enum("NONE = 0; reserved 5 to 7;"),
         "reservation-dropped", NOTE),
    Case("RESERVED_ENUM_NO_DELETE", enum('NONE = 0; reserved "OLD";'), enum("NONE = 0;"), "reservation-dropped", NOTE),
    Case("RESERVED_ENUM_NO_DELETE", enum("NONE = 0; reserved 5;"), enum("NONE = 0; NEW = 5;"),
         "reserved-number-used", BREAKS),
    Case("RESERVED_MESSAGE_NO_DELETE", message("reserved 5, 7 to 9;"), message("reserved 8;"),
         "reservation-dropped", NOTE),
    Case("RESERVED_MESSAGE_NO_DELETE", message('reserved "old";'), message(""), "reservation-dropped", NOTE),
    Case("RESERVED_MESSAGE_NO_DELETE", message("reserved 5;"), message("int32 n = 5;"), "reserved-number-used", BREAKS),
    Case("RPC_SAME_CLIENT_STREAMING", service("(A) returns (B);"), service("(stream A) returns (B);"),
         "rpc-client-streaming-changed", BREAKS),
    Case("RPC_SAME_SERVER_STREAMING", service("(A) returns (B);"), service("(A) returns (stream B);"),
         "rpc-server-streaming-changed", BREAKS),
    Case("RPC_SAME_REQUEST_TYPE", service("(A) returns (B);"), service("(B) returns (B);"),
         "rpc-request-changed", BREAKS),
    Case("RPC_SAME_RESPONSE_TYPE", service("(A) returns (B);"), service("(A) returns (A);"),
         "rpc-response-changed", BREAKS),
    Case("RPC_SAME_IDEMPOTENCY_LEVEL", service("(A) returns (B);"),
         service("(A) returns (B) { option idempotency_level = NO_SIDE_EFFECTS; }"),
         "rpc-idempotency-changed", BREAKS),
    Case("ENUM_VALUE_NO_DELETE_UNLESS_NUMBER_RESERVED", enum("NONE = 0; PAID = 1;"), enum("NONE = 0;"),
         "number-not-reserved", NOTE),
    Case("FIELD_NO_DELETE_UNLESS_NUMBER_RESERVED", message("int32 n = 1;"), message(""), "number-not-reserved", NOTE),
    Case("FIELD_WIRE_COMPATIBLE_CARDINALITY", message("repeated int32 n = 1;"), message("int32 n = 1;"),
         "repeated-to-single", BREAKS),
    Case("FIELD_WIRE_COMPATIBLE_CARDINALITY", message("int32 n = 1;"), message("repeated int32 n = 1;"),
         "single-to-repeated", BREAKS),
    Case("FIELD_WIRE_COMPATIBLE_CARDINALITY", message("map<string, int32> m = 1;"),
         message("message M {} repeated M m = 1;"), "type-changed", BREAKS),
    Case("FIELD_WIRE_COMPATIBLE_TYPE", message("int32 n = 1;"), message("sint32 n = 1;"), "type-changed", BREAKS),
    Case("FIELD_WIRE_COMPATIBLE_TYPE", message("int64 n = 1;"), message("int32 n = 1;"), "type-narrowed", UNJUDGED),
    Case("FIELD_WIRE_COMPATIBLE_TYPE", message("enum E { A = 0; } enum F { B = 0; } E e = 1; F f = 2;"),
         message("enum E { A = 0; } enum F { B = 0; } F e = 1; F f = 2;"), "enum-type-changed", BREAKS),
    Case("FIELD_WIRE_COMPATIBLE_TYPE", message("message M {} message N {} M m = 1;"),
         message("message M {} message N {} N m = 1;"), "message-type-changed", BREAKS),
    Case("MESSAGE_SAME_MESSAGE_SET_WIRE_FORMAT", proto2(SET.format("true")), proto2(SET.format("false")),
         "message-set-changed", BREAKS),
    Case("FIELD_SAME_UTF8_VALIDATION", edition("message O { string s = 1 [features.utf8_validation = NONE]; }"),
         edition("message O { string s = 1; }"), "utf8-checked", UNJUDGED),
    Case("FIELD_SAME_UTF8_VALIDATION", edition("message O { string s = 1; }"),
         edition("message O { string s = 1 [features.utf8_validation = NONE]; }"), "utf8-unchecked", NOTE),
    Case("ENUM_SAME_TYPE", edition("enum E { A = 0; } message O { E e = 1; }"),
         edition("enum E { option features.enum_type = CLOSED; A = 0; } message O { E e = 1; }"), "enum-closed", NOTE),
]  # fmt: skip

WIRE_JSON = [
    Case("FIELD_SAME_JSON_NAME", message("int32 n = 1;"), message('int32 n = 1 [json_name = "m"];'),
         "json-name-changed", NOTE),
    Case("FIELD_SAME_NAME", message("int32 n = 1;"), message("int32 m = 1;"), "field-renamed", NOTE),
    Case("ENUM_VALUE_SAME_NAME", enum("NONE = 0; PAID = 1;"), enum("NONE = 0; PAYED = 1;"), "enum-value-renamed", NOTE),
    Case("ENUM_VALUE_SAME_NAME", enum("option allow_alias = true; NONE = 0; PAID = 1; PAYED = 1;"),
         enum("NONE = 0; PAID = 1;"), "enum-value-renamed", NOTE),
    Case("ENUM_SAME_JSON_FORMAT", edition("enum E { A = 0; } message O { E e = 1; }"),
         edition(f"enum E {{ {LOOSE} A = 0; }} message O {{ E e = 1; }}"), "json-format-loosened", NOTE),
    Case("MESSAGE_SAME_JSON_FORMAT", edition("message O { int32 n = 1; }"),
         edition(f"message O {{ {LOOSE} int32 n = 1; }}"), "json-format-loosened", NOTE),
    Case("MESSAGE_SAME_JSON_FORMAT", proto3("message O { int32 n = 1; }"),
         proto2("message O { optional int32 n = 1; }"), "json-format-loosened", NOTE),
    Case("ENUM_VALUE_NO_DELETE_UNLESS_NAME_RESERVED", enum("NONE = 0; PAID = 1;"), enum("NONE = 0; reserved 1;"),
         "name-not-reserved", NOTE),
    Case("FIELD_NO_DELETE_UNLESS_NAME_RESERVED", message("int32 n = 1;"), message("reserved 1;"),
         "name-not-reserved", NOTE),
    Case("FIELD_WIRE_JSON_COMPATIBLE_CARDINALITY", message("message M { string key = 1; int32 value = 2; } repeated M m = 1;"),
         message("map<string, int32> m = 1;"), "type-changed", BREAKS),
    Case("FIELD_WIRE_JSON_COMPATIBLE_CARDINALITY", message("string s = 1;"), message("repeated string s = 1;"),
         "single-to-repeated", NOTE),
    Case("FIELD_WIRE_JSON_COMPATIBLE_TYPE", message("int32 n = 1;"), message("int64 n = 1;"), "type-widened", NOTE),
    Case("FIELD_WIRE_JSON_COMPATIBLE_TYPE", message("int32 n = 1;"), message("bool n = 1;"), "type-narrowed", UNJUDGED),
    Case("FIELD_WIRE_JSON_COMPATIBLE_TYPE", message("string s = 1;"), message("bytes s = 1;"), "type-widened", NOTE),
]  # fmt: skip

BOTH = {
    "ENUM_VALUE_NO_DELETE_UNLESS_NUMBER_RESERVED",
    "FIELD_NO_DELETE_UNLESS_NUMBER_RESERVED",
    "FIELD_SAME_DEFAULT",
    "FIELD_SAME_ONEOF",
    "FILE_SAME_PACKAGE",
    "MESSAGE_SAME_REQUIRED_FIELDS",
    "RESERVED_ENUM_NO_DELETE",
    "RESERVED_MESSAGE_NO_DELETE",
    "RPC_SAME_CLIENT_STREAMING",
    "RPC_SAME_IDEMPOTENCY_LEVEL",
    "RPC_SAME_REQUEST_TYPE",
    "RPC_SAME_RESPONSE_TYPE",
    "RPC_SAME_SERVER_STREAMING",
}
WIRE_ALONE = {"FIELD_WIRE_COMPATIBLE_CARDINALITY", "FIELD_WIRE_COMPATIBLE_TYPE"}
WIRE_JSON_ALONE = {
    "ENUM_SAME_JSON_FORMAT",
    "ENUM_VALUE_NO_DELETE_UNLESS_NAME_RESERVED",
    "ENUM_VALUE_SAME_NAME",
    "FIELD_NO_DELETE_UNLESS_NAME_RESERVED",
    "FIELD_SAME_JSON_NAME",
    "FIELD_SAME_NAME",
    "FIELD_WIRE_JSON_COMPATIBLE_CARDINALITY",
    "FIELD_WIRE_JSON_COMPATIBLE_TYPE",
    "MESSAGE_SAME_JSON_FORMAT",
}
BESIDE = {"ENUM_SAME_TYPE", "FIELD_SAME_UTF8_VALIDATION", "MESSAGE_SAME_MESSAGE_SET_WIRE_FORMAT"}
"""Rules of buf's that are in neither category, and change what is read all the same."""

MOVED = {
    "two fields that change places": (message("int32 a = 1; int32 b = 2;"), message("int32 b = 1; int32 a = 2;")),
    "a field that takes the number of one that is gone": (
        message("int32 a = 1; int32 b = 2;"),
        message("int32 b = 1;"),
    ),
    "fields that move up": (
        message("int32 a = 1; int32 b = 2; int32 c = 3;"),
        message("int32 n = 1; int32 a = 2; int32 b = 3; int32 c = 4;"),
    ),
    "two values that change places": (enum("N = 0; A = 1; B = 2;"), enum("N = 0; B = 1; A = 2;")),
    "a value with another number": (enum("N = 0; A = 1;"), enum("N = 0; A = 2;")),
    "values that move up": (enum("N = 0; A = 1; B = 2;"), enum("N = 0; X = 1; A = 2; B = 3;")),
}


@cache
def built(text: str) -> bytes:
    return compiled(text, {})


@pytest.mark.parametrize("case", WIRE + WIRE_JSON, ids=lambda case: f"{case.buf}: {case.rule}")
def test_every_change_that_buf_names_is_caught(case: Case) -> None:
    found = compare(built(case.old), built(case.new), Mode.BACKWARD)
    assert (case.rule, case.weight) in {(finding.rule, finding.weight) for finding in found.findings}
    assert found.compatible is (case.weight is Weight.NOTE)


def test_no_rule_of_the_categories_is_without_a_case() -> None:
    assert {case.buf for case in WIRE} == BOTH | WIRE_ALONE | BESIDE
    assert {case.buf for case in WIRE_JSON} == WIRE_JSON_ALONE


@pytest.mark.parametrize("label", ["", "optional"])
def test_texts_of_proto2_are_not_judged_safe_for_readers_of_proto3(label: str) -> None:
    """proto2 writes what is no UTF-8, and a reader of proto3 refuses the whole message."""
    old = built(proto2("message Order { optional string note = 1; optional int32 n = 2; }"))
    new = built(proto3(f"message Order {{ {label} string note = 1; {label} int32 n = 2; }}"))
    assert _weighty(old, new, Mode.BACKWARD) == {("/Order/note", "utf8-checked", UNJUDGED)}
    assert _weighty(old, new, Mode.ADDITIVE) == {("/Order/note", "utf8-checked", UNJUDGED)}
    assert _weighty(old, new, Mode.FORWARD) == set()
    assert _weighty(new, old, Mode.BACKWARD) == set()


def test_numbers_and_bytes_of_proto2_are_read_by_proto3() -> None:
    fields = "optional bytes b = 1; optional int32 n = 2; repeated int32 list = 3;"
    old, new = built(proto2(f"message Order {{ {fields} }}")), built(proto3(f"message Order {{ {fields} }}"))
    for mode in (Mode.FULL, Mode.ADDITIVE):
        assert _weighty(old, new, mode) == set()


def _weighty(old: bytes, new: bytes, mode: Mode) -> set[tuple[str, str, Weight]]:
    found = compare(old, new, mode).findings
    return {(finding.path, finding.rule, finding.weight) for finding in found if finding.weight is not NOTE}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (message("int32 n = 1;"), message('reserved 1; reserved "n";')),
        (edition(f"message O {{ {LOOSE} int32 n = 1; }}"), edition("message O { int32 n = 1; }")),
        (message("int32 n = 1;"), message("optional int32 n = 1;")),
    ],
)
def test_what_buf_lets_pass_is_not_even_a_note_about_json(old: str, new: str) -> None:
    rules = {finding.rule for finding in compare(built(old), built(new), Mode.BACKWARD).findings}
    assert not rules & {"number-not-reserved", "name-not-reserved", "json-format-loosened"}


@pytest.mark.parametrize(("old", "new"), MOVED.values(), ids=MOVED)
@pytest.mark.parametrize("mode", [Mode.BACKWARD, Mode.FORWARD, Mode.ADDITIVE])
def test_a_number_that_was_given_to_another_name_is_no_new_name(old: str, new: str, mode: Mode) -> None:
    found = compare(built(old), built(new), mode)
    assert not found.compatible
    rules = {finding.rule for finding in found.findings if finding.weight is Weight.BREAKS}
    assert rules & {"number-changed", "enum-number-changed"}


def test_the_house_rules_let_no_reservation_go_and_no_name_of_json_change() -> None:
    for old, new in (("reserved 5;", ""), ("int32 n = 1;", 'int32 n = 1 [json_name = "m"];')):
        assert not compare(built(message(old)), built(message(new)), Mode.ADDITIVE).compatible


def test_an_alias_is_no_other_number() -> None:
    old = enum("N = 0; A = 1;")
    new = enum("option allow_alias = true; N = 0; PAID = 1; A = 1;")
    assert compare(built(old), built(new), Mode.BACKWARD).findings == ()
