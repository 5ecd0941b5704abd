"""Payloads in protobuf: the compiler's message classes, one canonical text, and their own bytes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, timestamp_pb2
from google.protobuf.message import Message

from posthouse import Event, Service
from posthouse.contracts import payload_of
from posthouse.errors import ConfigurationError, ContractError
from posthouse.governance.listing import catalogue_of
from posthouse.governance.schema_files import file_of, schema_in
from posthouse.testing import Harness

protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools brings the protobuf compiler")

NUMBERS = itertools.count()

ORDER = """
syntax = "proto3";
package shop.orders;
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";

// An order was placed.
message OrderPlaced {
  reserved 20 to 22, 9;
  reserved "old", "older";
  string order_id = 1;      // the key
  optional int64 total = 3;
  repeated int32 rooms = 4 [packed = false];
  map<string, Guest> guests = 5;
  google.protobuf.Timestamp at = 6;
  oneof paid_by { string card = 7; Cash cash = 8; }
  Colour colour = 2;
  message Cash { int32 coins = 1; enum Kind { NOTE = 0; COIN = 1; } Kind kind = 2; }
  OrderPlaced before = 10;
}
enum Colour { option allow_alias = true; RED = 0; ROT = 0; BLUE = 1; reserved 5 to 7; reserved "PINK"; }
message Guest { string name = 1; }
message Unused { string name = 1; }
"""

LEGACY = """
syntax = "proto2";
message Old {
  required string name = 1;
  optional string tone = 2 [default = "a\\"b\\\\c"];
  optional int32 size = 3 [default = 7];
  repeated int32 many = 4 [packed = true];
}
"""


def compiled(text: str, folder: Path) -> descriptor_pb2.FileDescriptorProto:
    """What the compiler makes of a text, under a name of its own, so that all may live in one process."""
    name = f"m{next(NUMBERS)}.proto"
    (folder / name).write_text(text)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={folder}/out", name]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return descriptor_pb2.FileDescriptorSet.FromString((folder / "out").read_bytes()).file[0]


def message_class(file: descriptor_pb2.FileDescriptorProto, name: str) -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, struct_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("protos")


@pytest.fixture(scope="module")
def order(folder: Path) -> Any:
    return message_class(compiled(ORDER, folder), "shop.orders.OrderPlaced")


@pytest.fixture(scope="module")
def legacy(folder: Path) -> Any:
    return message_class(compiled(LEGACY, folder), "Old")


def test_a_message_reads_back_as_it_was(order: Any) -> None:
    payload = payload_of(order)
    value = order(order_id="o1", total=5, rooms=[1, 2], card="4711", before=order(order_id="o0"))
    value.guests["a"].name = "Ada"
    assert payload.decode(payload.encode(value)) == value
    assert (payload.content_type, payload.schema.format) == ("application/protobuf", "protobuf")
    assert payload.fields[:2] == ("order_id", "total")


def test_the_text_says_what_the_compiler_read(order: Any, legacy: Any, folder: Path) -> None:
    for cls, name in ((order, "shop.orders.OrderPlaced"), (legacy, "Old")):
        text = payload_of(cls).schema.text
        again = message_class(compiled(text, folder), name)
        assert payload_of(again).schema.text == text
        assert said(again.DESCRIPTOR) == said(cls.DESCRIPTOR)


def said(descriptor: Any) -> Any:
    """Everything that the compiler knows about a message, fields by number."""
    made = descriptor_pb2.DescriptorProto()
    descriptor.CopyToProto(made)
    fields = sorted(made.field, key=lambda field: field.number)
    del made.field[:]
    made.field.extend(fields)
    made.nested_type.sort(key=lambda inner: inner.name)
    made.reserved_range.sort(key=lambda span: span.start)
    made.reserved_name.sort()
    return made


def test_order_comments_and_what_is_not_used_do_not_count(order: Any, folder: Path) -> None:
    other = ORDER.replace("// the key", "").replace('import "google/protobuf/struct.proto";\n', "")
    other = other.replace("message Unused { string name = 1; }", "")
    moved = other.replace("  string order_id = 1;      \n", "").replace(
        "OrderPlaced before = 10;", "OrderPlaced before = 10;\n  string order_id = 1;"
    )
    assert moved.index("order_id = 1") > moved.index("before = 10")
    text = payload_of(order).schema.text
    assert payload_of(message_class(compiled(moved, folder), "shop.orders.OrderPlaced")).schema.text == text
    assert "Unused" not in text
    assert "struct.proto" not in text
    assert text.index("message OrderPlaced") < text.index("message Guest"), "the event itself comes first"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("order_id = 1", "order_id = 11"),
        ("order_id = 1", "order = 1"),
        ("optional int64 total", "int64 total"),
        ("message Guest { string name = 1; }", "message Guest { bytes name = 1; }"),
        ("BLUE = 1", "BLUE = 2"),
        ("reserved 20 to 22", "reserved 20 to 23"),
        ("NOTE = 0; COIN = 1;", "NOTE = 0;"),
    ],
)
def test_another_meaning_has_another_hash(order: Any, folder: Path, old: str, new: str) -> None:
    assert old in ORDER
    other = message_class(compiled(ORDER.replace(old, new), folder), "shop.orders.OrderPlaced")
    assert payload_of(other).schema.hash != payload_of(order).schema.hash


def test_a_required_field_that_is_missing_is_named(legacy: Any) -> None:
    payload = payload_of(legacy)
    with pytest.raises(ContractError, match="it lacks name"):
        payload.encode(legacy())
    with pytest.raises(ContractError, match="it lacks name"):
        payload.decode(b"\x18\x01")


def test_bytes_that_are_no_message_are_refused(order: Any) -> None:
    with pytest.raises(ContractError, match="not a valid OrderPlaced"):
        payload_of(order).decode(b'{"order_id": "o1"}')


def test_fields_that_a_reader_does_not_know_are_skipped(order: Any, folder: Path) -> None:
    small = 'syntax = "proto3"; message Seen { string order_id = 1; }'
    seen = message_class(compiled(small, folder), "Seen")
    data = payload_of(order).encode(order(order_id="o1", total=3))
    assert payload_of(seen).decode(data).order_id == "o1"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ('edition = "2023"; message A { string b = 1; }', "A", "editions"),
        ('syntax = "proto2"; message A { extensions 5 to 9; }', "A", "extensions"),
        ('syntax = "proto2"; message A { optional group B = 1 { } }', "A", "group"),
        ('syntax = "proto3"; message A { message B { } B b = 1; }', "A.B", "inside another message"),
    ],
)
def test_what_the_text_cannot_say_is_refused(folder: Path, text: str, name: str, words: str) -> None:
    cls = message_class(compiled(text, folder), name)
    with pytest.raises(ConfigurationError, match=words):
        payload_of(cls)


def test_types_of_other_files_are_refused() -> None:
    pool = descriptor_pool.DescriptorPool()
    other = descriptor_pb2.FileDescriptorProto(name="other.proto", syntax="proto3")
    other.message_type.add(name="Guest")
    mine = descriptor_pb2.FileDescriptorProto(name="mine.proto", syntax="proto3", dependency=["other.proto"])
    mine.message_type.add(name="A").field.add(name="g", number=1, type="TYPE_MESSAGE", type_name=".Guest", label=1)
    pool.Add(other)
    pool.Add(mine)
    with pytest.raises(ConfigurationError, match=r"uses \.Guest of another file"):
        payload_of(message_factory.GetMessageClass(pool.FindMessageTypeByName("A")))


def test_a_class_that_only_looks_like_a_message_is_refused() -> None:
    class Odd:
        DESCRIPTOR = 1

    with pytest.raises(ConfigurationError, match="no protobuf message class"):
        payload_of(Odd)


def test_the_frozen_file_reads_back_to_the_same_hash(order: Any, folder: Path) -> None:
    schema = payload_of(order).schema
    data = file_of(schema, place="schemas://orders/order/placed/v1", subject="shop.a", description="Two\nlines.")
    assert data.startswith(b"// schemas://orders/order/placed/v1\n// shop.a\n// Two\n// lines.\n\nsyntax")
    assert schema_in("orders/order/placed/v1.proto", data) == schema
    compiled(data.decode(), folder)


async def test_a_protobuf_event_goes_from_service_to_service(order: Any) -> None:
    service = Service("orders", namespace="shop")
    heard: list[tuple[str, str | None]] = []
    placed: type[object] = service.event("order.placed.v1", key="order_id")(order)

    @service.on(placed)
    async def bill(event: Event[Any]) -> None:
        heard.append((event.data.order_id, event.content_type))

    async with Harness(service) as harness:
        await harness.publish(order(order_id="o1"))
        await harness.settled()
    assert heard == [("o1", "application/protobuf")]
    (entry,) = catalogue_of([service]).events
    assert (entry.format, entry.key) == ("protobuf", "order_id")
