"""Protobuf: what a reader makes of what a writer wrote, as a table of cases; most are those of Confluent and Karapace."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from posthouse.errors import SchemaError
from posthouse.governance.evolution import Mode, Outcome, Reader, Verdict, Weight
from posthouse.governance.evolution.protobuf import compare
from posthouse.governance.evolution.protobuf_scalars import GROUPS, Fit, fit
from posthouse.governance.local.protoc import compiled, has_protoc

pytestmark = pytest.mark.skipif(not has_protoc(), reason="grpcio-tools, with Protobuf's compiler, is not installed")


class Case(NamedTuple):
    what: str
    old: str
    new: str
    backward: bool
    forward: bool


def proto3(body: str) -> str:
    return f'syntax = "proto3"; package shop; {body}'


def proto2(body: str) -> str:
    return f'syntax = "proto2"; package shop; {body}'


def order(fields: str) -> str:
    return proto3(f"message Order {{ string id = 1; {fields} }}")


def change(what: str, old: str, new: str, backward: bool, forward: bool) -> Case:
    """A change of one message."""
    return Case(what, order(old), order(new), backward, forward)


INNER = "message Inner { string a = 1; }"
STATUS = "enum Status { UNKNOWN = 0; PAID = 1; }"
CASES = [
    change("the same", "int32 n = 2;", "int32 n = 2;", True, True),
    change("an added field", "", "float f = 2;", True, True),
    change("a removed field", "float f = 2;", "", True, True),
    change("a renamed field", "int32 n = 2;", "int32 m = 2;", True, True),
    change("fields in another order", "int32 a = 2; int32 b = 3;", "int32 b = 3; int32 a = 2;", True, True),
    change("a wider number", "int32 n = 2;", "int64 n = 2;", True, False),
    change("a text to bytes", "string s = 2;", "bytes s = 2;", True, False),
    change("a number to a text", "int32 n = 2;", "string n = 2;", False, False),
    change("int to sint", "int32 n = 2;", "sint32 n = 2;", False, False),
    change("int to fixed", "int32 n = 2;", "fixed32 n = 2;", False, False),
    change("float to double", "float f = 2;", "double f = 2;", False, False),
    change("a number to an enum", "int32 n = 2;", f"{STATUS} Status n = 2;", True, True),
    change("a number to a message", "int32 n = 2;", f"{INNER} Inner n = 2;", False, False),
    change("a message to bytes", f"{INNER} Inner n = 2;", f"{INNER} bytes n = 2;", False, False),
    change("another message", f"{INNER} Inner n = 2;", f"{INNER} message Other {{}} Other n = 2;", False, False),
    change("a qualified name", f"{INNER} Inner n = 2;", f"{INNER} .shop.Order.Inner n = 2;", True, True),
    change("a map of other values", "map<string, int32> m = 2;", "map<string, string> m = 2;", False, False),
    change("a map of wider values", "map<string, int32> m = 2;", "map<string, int64> m = 2;", True, False),
    change("a map to a list", f"{INNER} map<string, int32> m = 2;", f"{INNER} repeated Inner m = 2;", False, False),
    change("a number to a list", "optional int32 n = 2;", "repeated int32 n = 2;", False, False),
    change("a text to a list", "optional string s = 2;", "repeated string s = 2;", True, False),
    change("a message to a list", f"{INNER} Inner m = 2;", f"{INNER} repeated Inner m = 2;", True, False),
    change("a field that may be unset", "int32 n = 2;", "optional int32 n = 2;", True, True),
    change("a field into a new oneof", "string s = 2;", "oneof pay { string s = 2; int32 card = 3; }", True, False),
    change("one field alone into a oneof", "string s = 2;", "oneof pay { string s = 2; }", True, True),
    change(
        "two fields into a new oneof",
        "string s = 2; int32 n = 3;",
        "oneof p { string s = 2; int32 n = 3; }",
        False,
        True,
    ),
    change(
        "a field into a oneof that is there",
        "string s = 2; oneof p { int32 n = 3; }",
        "oneof p { string s = 2; int32 n = 3; }",
        False,
        True,
    ),
    change(
        "a field out of a oneof",
        "oneof p { int32 a = 2; int32 b = 3; }",
        "oneof p { int32 a = 2; } int32 b = 3;",
        True,
        False,
    ),
    change("an added member", "oneof p { int32 a = 2; }", "oneof p { int32 a = 2; int32 b = 3; }", True, False),
    change("a removed member", "oneof p { int32 a = 2; int32 b = 3; }", "oneof p { int32 a = 2; }", False, True),
    change("a removed oneof", "oneof p { int32 a = 2; int32 b = 3; }", "", True, True),
    change(
        "a renamed oneof", "oneof p { int32 a = 2; int32 b = 3; }", "oneof q { int32 a = 2; int32 b = 3; }", True, True
    ),
    change(
        "a member lost with a new name",
        "oneof p { int32 a = 2; int32 b = 3; }",
        "oneof q { int32 a = 2; }",
        False,
        True,
    ),
    change("a member of another type", "oneof p { int32 a = 2; }", "oneof p { string a = 2; }", False, False),
    change(
        "a member into another oneof",
        "oneof p { int32 a = 2; int32 b = 3; } oneof q { int32 c = 4; }",
        "oneof p { int32 a = 2; } oneof q { int32 c = 4; int32 b = 3; }",
        False,
        False,
    ),
    change(
        "two oneofs made one",
        "oneof p { int32 a = 2; } oneof q { int32 b = 3; }",
        "oneof r { int32 a = 2; int32 b = 3; }",
        False,
        True,
    ),
    change(
        "a member alone in a new oneof",
        "oneof p { int32 a = 2; int32 b = 3; }",
        "oneof p { int32 b = 3; } oneof q { int32 a = 2; }",
        True,
        False,
    ),
    change("a removed field that is reserved", "int32 n = 2;", "reserved 2;", True, True),
    change("a reserved number that is used", "reserved 2;", "int32 n = 2;", False, True),
    change("a nested message that grew", INNER, "message Inner { string a = 1; string b = 2; }", True, True),
    change("a nested message that is gone", INNER, "", False, True),
    change("a message inside itself", "Order next = 2;", "Order next = 2; int32 n = 3;", True, True),
    Case("an added message", proto3("message A {}"), proto3("message A {} message B {}"), True, False),
    Case(
        "messages in another order",
        proto3("message A {} message B {}"),
        proto3("message B {} message A {}"),
        True,
        True,
    ),
    Case("another package", proto3("message A {}"), 'syntax = "proto3"; package other; message A {}', False, False),
    Case("an added value", proto3("enum E { A = 0; }"), proto3("enum E { A = 0; B = 1; }"), True, True),
    Case("a renamed value", proto3("enum E { A = 0; }"), proto3("enum E { B = 0; }"), True, True),
    Case("an enum that is gone", proto3("enum E { A = 0; }"), proto3(""), True, True),
    Case(
        "an added required field",
        proto2("message A { optional string a = 1; }"),
        proto2("message A { optional string a = 1; required string b = 2; }"),
        False,
        False,
    ),
    Case(
        "a required field that is optional",
        proto2("message A { required string a = 1; }"),
        proto2("message A { optional string a = 1; }"),
        True,
        False,
    ),
    Case(
        "the same group",
        proto2("message A { optional group B = 1 {} }"),
        proto2("message A { optional group B = 1 {} }"),
        True,
        True,
    ),
    Case(
        "a group to a message",
        proto2("message A { optional group B = 1 {} }"),
        proto2("message A { message B {} optional B b = 1; }"),
        False,
        False,
    ),
    Case(
        "an extension of another type",
        proto2("message A { extensions 5 to 9; } extend A { optional int32 x = 5; }"),
        proto2("message A { extensions 5 to 9; } extend A { optional string x = 5; }"),
        False,
        False,
    ),
]

STRICTER = [
    change("another number", "int32 n = 2;", "int32 n = 3;", False, False),
    change("a narrower number", "int64 n = 2;", "int32 n = 2;", False, True),
    change("signed to unsigned", "int32 n = 2;", "uint32 n = 2;", False, False),
    change("fixed to sfixed", "fixed32 n = 2;", "sfixed32 n = 2;", False, False),
    change("a number to a truth", "int32 n = 2;", "bool n = 2;", False, True),
    change("bytes to a text", "bytes s = 2;", "string s = 2;", False, True),
    change("a list to a text", "repeated string s = 2;", "optional string s = 2;", False, True),
    Case(
        "an optional field that is required",
        proto2("message A { optional string a = 1; }"),
        proto2("message A { required string a = 1; }"),
        False,
        True,
    ),
    Case(
        "a value of a closed enum that is gone",
        proto2("enum E { A = 0; B = 1; }"),
        proto2("enum E { A = 0; }"),
        False,
        True,
    ),
]
"""Confluent lets these pass (Karapace not the first), and readers get other values than were written, or none."""


@cache
def built(text: str) -> bytes:
    return compiled(text, {})


def verdict(old: str, new: str, mode: Mode) -> Verdict:
    return compare(built(old), built(new), mode)


def by_name(case: Case) -> str:
    return case.what


@pytest.mark.parametrize("case", CASES + STRICTER, ids=by_name)
def test_a_change_passes_where_readers_get_what_was_written(case: Case) -> None:
    assert verdict(case.old, case.new, Mode.BACKWARD).compatible is case.backward
    assert verdict(case.old, case.new, Mode.FORWARD).compatible is case.forward
    assert verdict(case.old, case.new, Mode.FULL).compatible is (case.backward and case.forward)
    assert verdict(case.old, case.new, Mode.NONE).compatible


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("int32 n = 2;", "", "field-removed"),
        ("int32 n = 2;", "int32 m = 2;", "field-renamed"),
        ("int32 n = 2;", "int64 n = 2;", "type-changed"),
        ("enum E { A = 0; B = 1; } E e = 2;", "enum E { A = 0; } E e = 2;", "enum-value-removed"),
        ("enum E { A = 0; } E e = 2;", "enum E { B = 0; } E e = 2;", "enum-value-renamed"),
    ],
)
def test_the_house_rules_let_nothing_be_taken_away(old: str, new: str, rule: str) -> None:
    found = verdict(order(old), order(new), Mode.ADDITIVE)
    assert not found.compatible
    assert rule in {finding.rule for finding in found.findings if finding.weight is Weight.BREAKS}


def test_the_house_rules_let_fields_be_added() -> None:
    assert verdict(order(""), order("int32 n = 2;"), Mode.ADDITIVE).compatible


def test_a_finding_says_where_who_and_how_to_mend_it_and_shows_a_message() -> None:
    (finding,) = verdict(order("int32 n = 2;"), order("string n = 2;"), Mode.BACKWARD).findings
    assert (finding.path, finding.rule, finding.breaks) == ("/Order/n", "type-changed", Reader.NEW)
    assert finding.sentence == "int32 is written and string is read"
    assert finding.example == {"n": 2147483647}


def test_what_depends_on_the_values_is_not_judged() -> None:
    found = verdict(order("int64 n = 2;"), order("int32 n = 2;"), Mode.BACKWARD)
    assert found.outcome is Outcome.UNJUDGED


def test_a_number_and_a_name_that_may_be_used_again_are_noted() -> None:
    found = verdict(order("int32 n = 2;"), order(""), Mode.BACKWARD)
    assert [(f.rule, f.way_out) for f in found.findings] == [
        ("number-not-reserved", "say `reserved 2;`"),
        ("name-not-reserved", 'say `reserved "n";` where JSON is used'),
    ]


def test_zero_and_unset_are_told_apart_in_a_note() -> None:
    found = verdict(order("int32 n = 2;"), order("optional int32 n = 2;"), Mode.BACKWARD)
    assert [(f.rule, f.weight) for f in found.findings] == [("presence-added", Weight.NOTE)]


def test_types_of_imported_files_are_compared_too() -> None:
    def files(money: str, package: str = "bank") -> bytes:
        text = f'syntax = "proto3"; import "money.proto"; message Order {{ {package}.Money total = 1; }}'
        return compiled(text, {"money.proto": f'syntax = "proto3"; package {package}; message Money {{ {money} }}'})

    def passes(old: bytes, new: bytes) -> bool:
        return compare(old, new, Mode.BACKWARD).compatible

    old = files("int64 cents = 1;")
    assert passes(old, files("int64 cents = 1; string currency = 2;"))
    assert not passes(old, files("string cents = 1;"))
    assert passes(old, files("int64 cents = 1;", package="treasury"))
    here = built('syntax = "proto3"; message Order { Money total = 1; } message Money { int64 cents = 1; }')
    assert passes(old, here)
    assert not passes(here, old)


def test_editions_are_compared_by_what_their_features_say() -> None:
    def edition(features: str) -> str:
        return f'edition = "2023"; message Order {{ int32 n = 1 {features}; }}'

    explicit, required = edition(""), edition("[features.field_presence = LEGACY_REQUIRED]")
    assert not verdict(explicit, required, Mode.BACKWARD).compatible
    assert verdict(required, explicit, Mode.BACKWARD).compatible
    assert verdict(edition("[features.field_presence = IMPLICIT]"), explicit, Mode.BACKWARD).compatible


def test_files_that_do_not_fit_together_are_refused() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add(name="a.proto", dependency=["missing.proto"])
    for bad in (files.SerializeToString(), b"", b"\xff\xff"):
        with pytest.raises(SchemaError):
            compare(bad, built(order("")), Mode.BACKWARD)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("message", "the schema:1:8"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "already been used"),
        ('syntax = "proto3"; message A { Missing a = 1; }', '"Missing" is not defined'),
        ('syntax = "proto3"; import "elsewhere.proto";', "elsewhere.proto"),
        ('syntax = "proto3"; import "/etc/passwd";', "etc/passwd"),
    ],
)
def test_the_compiler_says_where_a_text_is_wrong(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words) as refused:
        compiled(text, {})
    assert "posthouse-protoc" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["../a.proto", "/a.proto", "a b.proto", "", "a//b.proto", "-o.proto", "posthouse-main.proto"]
)
def test_an_import_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(SchemaError, match="cannot be the name"):
        compiled("", {name: 'syntax = "proto3";'})


def test_the_compiler_is_ended_when_it_takes_too_long() -> None:
    with pytest.raises(SchemaError, match="longer than"):
        compiled(order(""), {}, patience=0.0001)


SCALARS = sorted({name for group in GROUPS for name in group} - {"enum"})
EXTREMES: dict[str, list[object]] = {
    "bool": [True],
    "string": ["grüß"],
    "bytes": [b"ok", b"\xff"],
    "float": [1.5],
    "double": [1.5],
}


def extremes(name: str) -> list[object]:
    """Values of a type that fit nowhere else if any does."""
    if name in EXTREMES:
        return EXTREMES[name]
    bits = int(name[-2:])
    unsigned = name.startswith(("uint", "fixed"))
    return [1, 2**bits - 1] if unsigned else [1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]


def message_of(name: str) -> type[Message]:
    files = descriptor_pb2.FileDescriptorSet.FromString(built(f'syntax = "proto3"; message M {{ {name} v = 1; }}'))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(files.file[0])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))


@pytest.mark.parametrize("writer", SCALARS)
def test_the_table_of_types_is_what_protobuf_itself_does(writer: str) -> None:
    for reader in SCALARS:
        arrives = all(_arrives(writer, reader, value) for value in extremes(writer))
        assert (fit(writer, reader) is Fit.ALL) is arrives, (writer, reader)


def _arrives(writer: str, reader: str, value: object) -> bool:
    data = message_of(writer)(v=value).SerializeToString()
    made = message_of(reader)()
    try:
        made.ParseFromString(data)
    except Exception:
        return False
    read = made.v  # type: ignore[attr-defined]  # the class is made as the test runs
    same = read == (value.encode() if isinstance(value, str) and isinstance(read, bytes) else value)
    return bool(same) and made.SerializeToString() == data
