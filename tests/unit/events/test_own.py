"""Events that a store of ours has kept read the same in bulk as one by one."""

from __future__ import annotations

import msgspec
import pytest

from posthouse.errors import DecodeError
from posthouse.events import CODECS, STRUCTURED, Actor, Event, Producer, decode_any
from posthouse.events.codecs import own
from posthouse.events.codecs.own import own_event
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

SHAPES = {
    "plain": PLAIN,
    "of no stream": msgspec.structs.replace(PLAIN, extensions={}),
    "in two versions": msgspec.structs.replace(
        PLAIN, extensions={"dualof": "e0", "dualversion": "2", "streamversion": "7"}
    ),
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
    "without data": msgspec.structs.replace(PLAIN, data=b""),
    "without a time": msgspec.structs.replace(PLAIN, time=""),
    "escaped": msgspec.structs.replace(PLAIN, key='r"\u00e9\n', data=b'{"room_id":"\\u00e9\\"","price":1}'),
}


@pytest.mark.parametrize("wire", CODECS)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_reads_as_any_other_reader_reads_it(wire: str, shape: str) -> None:
    encoded = CODECS[wire].encode(SHAPES[shape])
    assert own_event(encoded.headers, encoded.body, bytes) == decode_any(encoded.headers, encoded.body)


def test_most_are_read_at_one_stroke() -> None:
    quickly = {name for name, event in SHAPES.items() if own._quickly(*STRUCTURED.encode(event)) is not None}
    assert quickly >= {"plain", "in two versions", "of the platform", "by somebody", "cold", "traced", "escaped"}


def test_what_cannot_be_read_is_refused_as_elsewhere() -> None:
    for body in (b"", b"{", b"[]", b'{"specversion":"1.0"}', b'{"id":"a"}\xff'):
        with pytest.raises(DecodeError):
            own_event({"content-type": "application/cloudevents+json"}, body, bytes)
