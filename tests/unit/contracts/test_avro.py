"""Payloads in Avro: schema from the class or given, one canonical text, and bytes that other readers understand."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import enum
import io
import json
import sys
import uuid
from typing import Any

import fastavro
import msgspec
import pydantic
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form

from posthouse import Event, Payload, Service
from posthouse.contracts import avro, event_type_of, payload_of
from posthouse.contracts.avro_schema import avro_schema
from posthouse.errors import ConfigurationError, ContractError
from posthouse.governance.folder import read_folder, write_folder
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of
from posthouse.governance.schema_files import file_of, schema_in
from posthouse.testing import Harness

NOON = datetime.datetime(2026, 3, 1, 12, 0, 0, 250, tzinfo=datetime.UTC)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Guest(msgspec.Struct, frozen=True):
    name: str
    friends: tuple[Guest, ...] = ()


@avro
@dataclasses.dataclass(frozen=True)
class Stay:
    id: uuid.UUID
    guest: Guest
    second: Guest | None
    nights: int
    price: decimal.Decimal
    share: float
    paid: bool
    at: datetime.datetime
    day: datetime.date
    hour: datetime.time
    span: datetime.timedelta
    colour: Colour
    level: Level
    raw: bytes
    tags: set[str]
    counts: dict[str, int]
    note: str | None = None
    kind: str | None = "plain"
    rooms: list[int] = dataclasses.field(default_factory=list)


STAY = Stay(
    id=uuid.UUID(int=7),
    guest=Guest("Ada", (Guest("Bob"),)),
    second=None,
    nights=3,
    price=decimal.Decimal("12.50"),
    share=0.25,
    paid=True,
    at=NOON,
    day=NOON.date(),
    hour=NOON.time(),
    span=datetime.timedelta(hours=1, seconds=2),
    colour=Colour.BLUE,
    level=Level.LOW,
    raw=b"\x00\xff",
    tags={"a", "b"},
    counts={"x": 1},
)


def test_a_value_reads_back_as_it_was() -> None:
    payload = payload_of(Stay)
    assert payload.decode(payload.encode(STAY)) == STAY
    assert (payload.content_type, payload.schema.format) == ("application/avro", "avro")


def test_the_bytes_are_the_single_object_encoding_that_others_read() -> None:
    payload = payload_of(Stay)
    data = payload.encode(STAY)
    parsed = fastavro.parse_schema(json.loads(payload.schema.text))
    assert data[:2] == b"\xc3\x01"
    assert data[2:10].hex() == fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO")
    theirs: Any = fastavro.schemaless_reader(io.BytesIO(data[10:]), parsed, None)
    assert (theirs["guest"]["name"], theirs["at"], theirs["colour"]) == ("Ada", NOON, "blue")


def test_a_default_stands_first_in_its_union() -> None:
    fields = {field["name"]: field for field in json.loads(payload_of(Stay).schema.text)["fields"]}
    assert fields["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert fields["kind"] == {"name": "kind", "type": ["string", "null"], "default": "plain"}
    assert fields["rooms"]["default"] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nights": "many"}, "nights"),
        ({"nights": 2**70}, "not a valid Stay"),
        ({"paid": "yes"}, "paid"),
        ({"guest": None}, "guest"),
        ({"at": NOON.replace(tzinfo=None)}, r"\$\.at: Avro needs a time with its zone"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_the_field_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        payload_of(Stay).encode(dataclasses.replace(STAY, **change))


def test_bytes_that_do_not_fit_are_refused_whatever_they_are() -> None:
    payload = payload_of(Stay)
    data = payload.encode(STAY)
    with pytest.raises(ContractError, match="C3 01"):
        payload.decode(b'{"id": 1}')
    with pytest.raises(ContractError, match="not known here"):
        payload.decode(data[:2] + bytes(8) + data[10:])
    with pytest.raises(ContractError, match="1 bytes are left over"):
        payload.decode(data + b"\x00")
    for end in range(10, len(data)):
        with pytest.raises(ContractError):
            payload.decode(data[:end])
    for place in range(10, len(data)):
        broken = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
        with contextlib.suppress(ContractError):
            payload.decode(broken)


@avro
class First(Payload):
    name: str


def test_a_reader_with_another_schema_understands_writers_that_it_learned_of() -> None:
    old, new = payload_of(First), payload_of(msgspec.defstruct("First", [("name", str), ("size", int, 5)]))
    assert new.schema.format == "json", "only marked classes travel as Avro"
    newer = payload_of(avro(msgspec.defstruct("First", [("name", str), ("size", int, 5)])))
    data = old.encode(First(name="a"))
    with pytest.raises(ContractError, match="freeze the producer's schemas"):
        newer.decode(data)
    newer.learn([old.schema.text])
    assert msgspec.to_builtins(newer.decode(data)) == {"name": "a", "size": 5}
    old.learn([newer.schema.text])
    assert old.decode(newer.encode(newer.cls("b", 7))) == First(name="b")


def test_a_schema_may_be_given() -> None:
    schema = {
        "type": "record",
        "name": "Priced",
        "namespace": "shop",
        "doc": "prose",
        "fields": [{"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}],
    }

    for given in (schema, json.dumps(schema)):

        @avro(schema=given)
        @dataclasses.dataclass
        class Priced:
            price: decimal.Decimal

        payload = payload_of(Priced)
        assert payload.decode(payload.encode(Priced(decimal.Decimal("12.50")))).price == decimal.Decimal("12.50")
        assert '"name":"shop.Priced"' in payload.schema.text
        assert "prose" not in payload.schema.text


def test_a_class_that_has_no_avro_schema_is_refused_with_every_reason() -> None:
    @avro
    @dataclasses.dataclass
    class Odd:
        pair: tuple[int, str]
        anything: Any

    with pytest.raises(ConfigurationError) as caught:
        payload_of(Odd)
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["Odd.pair", "Odd.anything"]

    @avro(schema='{"type": "record", "name": "A", "fields": [{"name": "b", "type": "long"}]}')
    @dataclasses.dataclass
    class Other:
        a: int

    with pytest.raises(ConfigurationError) as caught:
        payload_of(Other)
    assert len(caught.value.problems) == 2

    for text, words in [
        ("{", "not JSON"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}', "'B'"),
    ]:

        @avro(schema=text)
        @dataclasses.dataclass
        class Broken:
            a: int

        with pytest.raises(ConfigurationError, match=words):
            payload_of(Broken)

    class Model(pydantic.BaseModel):
        a: int

    with pytest.raises(ConfigurationError, match="@avro is for dataclasses"):
        Service("x").event("a.made.v1")(avro(Model))


SAME = [
    ({"type": "string"}, "string"),
    (
        {"type": "record", "name": "a.B", "fields": [{"name": "c", "type": "int", "doc": "x"}], "doc": "y"},
        {"name": "B", "namespace": "a", "fields": [{"type": {"type": "int"}, "name": "c"}], "type": "record"},
    ),
    (
        {"type": "record", "name": "a.B", "fields": [{"name": "c", "type": ["null", "a.B"]}]},
        {"type": "record", "name": "B", "namespace": "a", "fields": [{"name": "c", "type": ["null", "B"]}]},
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_avro_schema_have_one_hash(one: object, other: object) -> None:
    assert avro_schema(one) == avro_schema(other)


DIFFERENT = [
    ({"type": "long", "logicalType": "timestamp-micros"}, {"type": "long", "logicalType": "timestamp-millis"}),
    (["null", "string"], ["string", "null"]),
    (
        {"type": "record", "name": "B", "fields": [{"name": "c", "type": "int", "default": 1}]},
        {"type": "record", "name": "B", "fields": [{"name": "c", "type": "int", "default": 2}]},
    ),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_a_reader_would_see_differently_has_another_hash(one: object, other: object) -> None:
    assert avro_schema(one).hash != avro_schema(other).hash


def test_the_frozen_file_reads_back_to_the_same_hash() -> None:
    schema = payload_of(Stay).schema
    data = file_of(schema, place="schemas://a", subject="a", description="b")
    assert schema_in("orders/stay/booked/v1.avsc", data) == schema
    with pytest.raises(ConfigurationError, match=r"v1\.avsc: .*'Nobody'"):
        schema_in("orders/stay/booked/v1.avsc", b'"Nobody"')


async def test_an_avro_event_goes_through_services_whose_schemas_differ(tmp_path: Any) -> None:
    producer, consumer = Service("orders", namespace="shop"), Service("billing", schemas=tmp_path)
    heard: list[tuple[str, str | None]] = []

    @producer.event("order.placed.v1", key="order_id")
    @avro
    class Placed:
        order_id: str
        total: int

    @consumer.external("shop.orders.order.placed.v1", key="order_id")
    @avro
    class Seen:
        order_id: str

    @consumer.on(Seen)
    async def bill(event: Event[Any]) -> None:
        heard.append((event.data.order_id, event.content_type))

    write_folder(tmp_path, freeze(catalogue_of([producer, consumer]), read_folder(tmp_path)).files)
    assert (tmp_path / "orders/order/placed/v1.avsc").exists()
    async with Harness(producer, consumer) as harness:
        await harness.publish(Placed(order_id="o1", total=3))  # type: ignore[call-arg]
        await harness.settled()
        assert [held.reason for held in await harness.held(consumer)] == []
    assert heard == [("o1", "application/avro")]
    assert event_type_of(Placed).payload.schema.format == "avro"


def test_a_missing_library_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.delitem(sys.modules, "posthouse.contracts.payloads.avro", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'posthouse\[avro\]'"):
        payload_of(Stay)
