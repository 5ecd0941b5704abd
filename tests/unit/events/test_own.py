"""Events that a store of ours has kept read the same in bulk as one by one."""

from __future__ import annotations

import msgspec
import pytest

from posthouse.contracts.payloads import payload_of
from posthouse.errors import ContractError, DecodeError
from posthouse.events import CODECS, STRUCTURED, Actor, Event, Producer, decode_any
from posthouse.events.codecs import own
from posthouse.events.codecs.own import HEADERS, Kind, OwnReader
from posthouse.events.envelope import Metadata

PLAIN: Event[bytes] = Event(
    id="e1",
    type="rooms.room.listed.v1",
    source="/rooms",
    data=b'{"room_id":"r1","price":12}',
    time="2026-04-22T10:00:00.000001Z",
    tenant="t1",
    key="r1",
    correlation="c1",
    producer=Producer(service="rooms", instance="host-1"),
    schema="schemas://rooms/room/listed/v1#sha256-1",
    extensions={"streamversion": "7"},
)

BYTES = OwnReader({PLAIN.type: Kind(bytes)})

SHAPES = {
    "plain": PLAIN,
    "of no stream": msgspec.structs.replace(PLAIN, extensions={}),
    "in two versions": msgspec.structs.replace(
        PLAIN, extensions={"dualof": "e0", "dualversion": "2", "streamversion": "7"}
    ),
    "in half of two versions": msgspec.structs.replace(PLAIN, extensions={"dualversion": "2"}),
    "of the platform": msgspec.structs.replace(PLAIN, tenant="platform"),
    "without a key": msgspec.structs.replace(PLAIN, key=None),
    "by somebody": msgspec.structs.replace(PLAIN, actor=Actor(kind="user", id="u1"), causation="e0"),
    "by nobody known": msgspec.structs.replace(PLAIN, actor=Actor(kind="", id="")),
    "without a producer": msgspec.structs.replace(PLAIN, producer=None),
    "from a region": msgspec.structs.replace(
        PLAIN, producer=Producer(service="", instance="i", commit="abc", region="eu")
    ),
    "cold": msgspec.structs.replace(PLAIN, metadata=Metadata(retention="cold", residency="eu")),
    "replayed offline": msgspec.structs.replace(PLAIN, metadata=Metadata(offline_replay=True, ai_provenance={"a": 1})),
    "traced": msgspec.structs.replace(
        PLAIN, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate="a=b"
    ),
    "with an intent": msgspec.structs.replace(PLAIN, idempotency_key="i1"),
    "with a number": msgspec.structs.replace(PLAIN, sequence=5, lineage=2),
    "with another extension": msgspec.structs.replace(PLAIN, extensions={"streamversion": "7", "mine": 3}),
    "with a strange partition": msgspec.structs.replace(PLAIN, extensions={"partitionkey": "x"}),
    "of other bytes": msgspec.structs.replace(PLAIN, content_type="application/x-protobuf", data=b"\x00\xff"),
    "of other JSON": msgspec.structs.replace(PLAIN, content_type="application/problem+json"),
    "of JSON that is not called so": msgspec.structs.replace(PLAIN, content_type=None),
    "without data": msgspec.structs.replace(PLAIN, data=b""),
    "without a time": msgspec.structs.replace(PLAIN, time=""),
    "escaped": msgspec.structs.replace(PLAIN, key='r"\u00e9\n', data=b'{"room_id":"\\u00e9\\"","price":1}'),
}


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_reads_as_any_other_reader_reads_it(wire: str, shape: str) -> None:
    encoded = CODECS[wire].encode(SHAPES[shape])
    assert BYTES.event(encoded.headers, encoded.body) == decode_any(encoded.headers, encoded.body)


@pytest.mark.parametrize("shape", SHAPES)
def test_many_read_as_each_of_them_reads_alone(shape: str) -> None:
    """Whatever one of them needs, it and those around it come out the same."""
    events = [PLAIN, SHAPES[shape], msgspec.structs.replace(PLAIN, id="e2", key="r2", extensions={})]
    bodies = [STRUCTURED.encode(event).body for event in events]
    assert BYTES.events(bodies) == [decode_any(HEADERS, body) for body in bodies]


def test_most_are_read_at_one_stroke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(own, "decode_any")  # the long way is closed
    quickly = {"plain", "in two versions", "of the platform", "by somebody", "cold", "traced", "escaped"}
    quickly |= {"without a key", "without a producer", "with an intent", "with a strange partition", "without a time"}
    bodies = [STRUCTURED.encode(SHAPES[name]).body for name in sorted(quickly)]
    assert [event.id for event in BYTES.events(bodies)] == ["e1"] * len(quickly)


def test_line_feeds_inside_of_a_body_part_nothing() -> None:
    spread = msgspec.structs.replace(PLAIN, data=b'{\n"room_id":\n"r1"}\n')
    bodies = [STRUCTURED.encode(event).body for event in (spread, PLAIN)]
    assert [event.data for event in BYTES.events(bodies)] == [b'{\n"room_id":\n"r1"}', PLAIN.data]


class Room(msgspec.Struct):
    room_id: str
    price: int

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError("it costs nothing")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_payload_that_is_read_with_its_envelope_is_the_same(shape: str) -> None:
    """Beside one of another type, which is not."""
    kind = payload_of(Room)
    together = OwnReader({PLAIN.type: Kind(kind.decode, kind.plain), "rooms.room.gone.v1": Kind(bytes)})
    apart = OwnReader({PLAIN.type: Kind(kind.decode), "rooms.room.gone.v1": Kind(bytes)})
    gone = msgspec.structs.replace(PLAIN, type="rooms.room.gone.v1")
    event = SHAPES[shape] if SHAPES[shape].data.startswith(b"{") else PLAIN
    bodies = [STRUCTURED.encode(one).body for one in (PLAIN, gone, event, gone)]
    read = together.events(bodies)
    assert read == apart.events(bodies) == [together.event(HEADERS, body) for body in bodies]
    assert [type(one.data) for one in read] == [Room, bytes, Room, bytes]


@pytest.mark.parametrize("data", [b"{}", b"null", b'{"room_id":"r","price":"x"}', b'{"room_id":"r","price":-1}'])
def test_a_payload_that_is_read_with_its_envelope_is_refused_in_the_same_words(data: bytes) -> None:
    kind = payload_of(Room)
    body = STRUCTURED.encode(msgspec.structs.replace(PLAIN, data=data)).body
    said = []
    for plain in (kind.plain, None):
        with pytest.raises(ContractError, match="not a valid Room") as caught:
            OwnReader({PLAIN.type: Kind(kind.decode, plain)}).events([body])
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_each_type_is_decoded_in_its_own_way() -> None:
    other = msgspec.structs.replace(PLAIN, type="rooms.room.gone.v1", data=b'"x"')
    bodies = [STRUCTURED.encode(event).body for event in (PLAIN, other, PLAIN)]
    reader = OwnReader({PLAIN.type: Kind(len), other.type: Kind(msgspec.json.decode)})
    assert [event.data for event in reader.events(bodies)] == [len(PLAIN.data), "x", len(PLAIN.data)]


def test_what_cannot_be_read_is_refused_as_elsewhere() -> None:
    plain = STRUCTURED.encode(PLAIN).body
    for body in (b"", b"{", b"[]", b'{"specversion":"1.0"}', b'{"id":"a"}\xff', plain + b"\n" + plain):
        with pytest.raises(DecodeError):
            BYTES.event(HEADERS, body)
        with pytest.raises(DecodeError):
            BYTES.events([plain, body, plain])


def test_a_type_that_nobody_asked_for_and_a_payload_that_does_not_fit_are_refused() -> None:
    plain = STRUCTURED.encode(PLAIN)
    with pytest.raises(DecodeError, match=r"'rooms\.room\.listed\.v1' was not asked for"):
        OwnReader({"rooms.room.gone.v1": Kind(bytes)}).events([plain.body])

    def refuse(_: bytes) -> object:
        raise ContractError("not a valid Room")

    with pytest.raises(ContractError, match="not a valid Room"):
        OwnReader({PLAIN.type: Kind(refuse)}).events([plain.body])
