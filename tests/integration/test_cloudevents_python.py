"""The official CloudEvents SDK for Python reads what we write, and we read what it writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings import http
from cloudevents.core.v1.event import CloudEvent

from posthouse.events import BINARY, STRUCTURED, Actor, Codec, Event, decode_any

EVENT: Event[bytes] = Event(
    id="0190b3c0-7b1a-7def-8a3b-0123456789ab",
    type="shop.orders.order.placed.v1",
    source="shop.orders",
    data=b'{"order_id":"o1","note":"gr\xc3\xbc\xc3\x9f"}',
    time="2026-01-02T03:04:05.678901Z",
    tenant="t1",
    key='50% "off" ü',
    sequence=42,
    correlation="01HZXW5N5V5V5V5V5V5V5V5V5V",
    actor=Actor(kind="user", id="u 1"),
    schema="schemas://orders/order/placed/v1#sha256-9f",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    extensions={"colour": "blau"},
)
MODES = pytest.mark.parametrize("codec", [STRUCTURED, BINARY], ids=["structured", "binary"])


def _theirs(codec: Codec, event: Event[bytes]) -> Any:
    headers, body = codec.encode(event)
    return http.from_http_event(http.HTTPMessage(headers=dict(headers), body=body))


def _ours(codec: Codec, event: CloudEvent) -> Event[bytes]:
    message = http.to_structured_event(event) if codec is STRUCTURED else http.to_binary_event(event)
    return decode_any({name.lower(): value for name, value in message.headers.items()}, message.body)


@MODES
def test_the_sdk_reads_our_events(codec: Codec) -> None:
    theirs = _theirs(codec, EVENT)
    assert theirs.get_specversion() == "1.0"
    assert (theirs.get_id(), theirs.get_type(), theirs.get_source()) == (EVENT.id, EVENT.type, EVENT.source)
    assert theirs.get_time() == EVENT.occurred_at
    assert (theirs.get_subject(), theirs.get_dataschema()) == (EVENT.key, EVENT.schema)
    assert theirs.get_datacontenttype() == "application/json"
    assert theirs.get_data() == {"order_id": "o1", "note": "grüß"}
    expected = {
        "tenantid": "t1",
        "partitionkey": 't1:50% "off" ü',
        "sequence": "00000000000000000042",
        "correlationid": EVENT.correlation,
        "actorkind": "user",
        "actorid": "u 1",
        "traceparent": EVENT.traceparent,
        "colour": "blau",
    }
    assert {name: theirs.get_extension(name) for name in expected} == expected


@MODES
def test_the_sdk_reads_our_binary_data(codec: Codec) -> None:
    picture: Event[bytes] = Event(
        id="1", type="shop.file.uploaded.v1", source="s", data=b"\x89PNG\xff", time="", content_type="image/png"
    )
    assert _theirs(codec, picture).get_data() == picture.data


@MODES
@pytest.mark.parametrize("data", [{"order_id": "o1", "note": "grüß", "n": [1, None, 1.5]}, None], ids=["data", "none"])
def test_we_read_the_events_of_the_sdk(codec: Codec, data: dict[str, Any] | None) -> None:
    attributes = {
        "id": "1",
        "source": "/s p a c e/ü",
        "type": "com.example.made",
        "time": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "subject": '50% "off" ü',
        "datacontenttype": "application/json",
        "dataschema": "https://example.org/schema#1",
        "tenantid": "t1",
        "correlationid": "01HZXW5N5V5V5V5V5V5V5V5V5V",
        "foreign": "a b",
    }
    event = _ours(codec, CloudEvent(attributes, data))
    assert (event.id, event.source, event.type) == ("1", "/s p a c e/ü", "com.example.made")
    assert (event.time, event.key) == ("2026-01-02T03:04:05.678901Z", '50% "off" ü')
    assert (event.schema, event.content_type) == ("https://example.org/schema#1", "application/json")
    assert (event.tenant, event.correlation) == ("t1", "01HZXW5N5V5V5V5V5V5V5V5V5V")
    assert event.extensions == {"foreign": "a b"}
    assert event.data == b"" if data is None else _theirs(codec, event).get_data() == data


@MODES
def test_we_read_the_bytes_of_the_sdk(codec: Codec) -> None:
    event = _ours(
        codec,
        CloudEvent({"source": "s", "type": "t", "datacontenttype": "application/octet-stream"}, b"\x00\xff"),
    )
    assert event.data == b"\x00\xff"
