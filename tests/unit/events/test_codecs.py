from __future__ import annotations

import base64
import json
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings

from melmastoon.envelope import ENVELOPE as MELMASTOON
from posthouse.errors import DecodeError, EventError, EventTooLarge
from posthouse.events import (
    BINARY,
    CODECS,
    PLATFORM,
    STRUCTURED,
    Actor,
    Codec,
    Event,
    Metadata,
    Producer,
    check_size,
    codec_of,
    decode_any,
)

from .strategies import an_event, events

FULL = an_event(
    tenant="t1",
    key="o 1",
    correlation="01HZXW5N5V5V5V5V5V5V5V5V5V",
    causation="cause",
    actor=Actor(kind="user", id="u1"),
    producer=Producer(service="orders", instance="i1", commit="c0ffee", region="me-central1"),
    schema="schemas://orders/order/placed/v1#sha256-9f",
    idempotency_key="orders:order:o1",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    tracestate="congo=t61rcWkgMzE",
    metadata=Metadata(retention="cold", residency="me-central1", offline_replay=True, ai_provenance={"model": "m"}),
    extensions={"colour": "grün", "count": 3, "flag": False},
)
EACH = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@EACH
@settings(max_examples=70, deadline=None)
@given(event=events())
def test_every_event_comes_back_as_it_went(codec: Codec, event: Event[bytes]) -> None:
    headers, body = codec.encode(event)
    assert codec.decode(headers, body) == event
    assert decode_any(headers, body) == event
    assert codec.encode(event) == (headers, body)


@settings(max_examples=40, deadline=None)
@given(event=events())
def test_an_event_survives_a_journey_through_all_formats(event: Event[bytes]) -> None:
    there = event
    for codec in (MELMASTOON, BINARY, STRUCTURED, BINARY, MELMASTOON, STRUCTURED):
        there = codec.decode(*codec.encode(there))
    assert there == event


@EACH
@settings(max_examples=25, deadline=None)
@given(event=events())
def test_a_stamp_equals_having_encoded_the_numbers(codec: Codec, event: Event[bytes]) -> None:
    metadata = msgspec.structs.replace(event.metadata, outbox_id=None)
    bare = msgspec.structs.replace(event, sequence=None, lineage=1, metadata=metadata)
    stamped = codec.decode(*codec.stamp(*codec.encode(bare), 7, 3, 'row "7" %'))
    metadata = msgspec.structs.replace(metadata, outbox_id='row "7" %')
    assert stamped == msgspec.structs.replace(bare, sequence=7, lineage=3, metadata=metadata)
    assert codec.stamp(*codec.encode(bare), None) == codec.encode(bare)


def test_a_stamp_leaves_the_headers_it_was_given_alone() -> None:
    headers: Mapping[str, str] = {"ce-id": "1"}
    assert BINARY.stamp(headers, b"", 7).headers == {"ce-id": "1", "ce-sequence": "00000000000000000007"}
    assert headers == {"ce-id": "1"}


def test_the_structured_form_is_cloudevents_json() -> None:
    headers, body = STRUCTURED.encode(FULL)
    assert headers == {"content-type": "application/cloudevents+json"}
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": FULL.id,
        "source": "shop.orders",
        "type": "shop.orders.order.placed.v1",
        "time": "2026-01-02T03:04:05.678901Z",
        "datacontenttype": "application/json",
        "dataschema": FULL.schema,
        "subject": "o 1",
        "tenantid": "t1",
        "correlationid": FULL.correlation,
        "causationid": "cause",
        "idempotencykey": "orders:order:o1",
        "traceparent": FULL.traceparent,
        "tracestate": "congo=t61rcWkgMzE",
        "dataresidency": "me-central1",
        "partitionkey": "t1:o 1",
        "actorkind": "user",
        "actorid": "u1",
        "producerservice": "orders",
        "producerinstance": "i1",
        "producercommit": "c0ffee",
        "producerregion": "me-central1",
        "retentionclass": "cold",
        "offlinereplay": True,
        "aiprovenance": '{"model":"m"}',
        "colour": "grün",
        "count": 3,
        "flag": False,
        "data": {"order_id": "o1"},
    }


def test_the_binary_form_has_percent_encoded_headers_and_the_bare_payload() -> None:
    event = an_event(tenant="t1", key='50% "off" ü', extensions={"n": 3, "yes": True, "text": "true"})
    headers, body = BINARY.encode(event)
    assert body == event.data
    assert headers == {
        "content-type": "application/json",
        "ce-specversion": "1.0",
        "ce-id": event.id,
        "ce-source": "shop.orders",
        "ce-type": event.type,
        "ce-time": event.time,
        "ce-subject": "50%25%20%22off%22%20%C3%BC",
        "ce-tenantid": "t1",
        "ce-partitionkey": "t1:50%25%20%22off%22%20%C3%BC",
        "ce-n": "3",
        "ce-yes": "true",
        "ce-text": "true",
        "posthouse-scalars": "n yes",
    }


def test_the_melmastoon_form_is_the_envelope_of_the_platform() -> None:
    headers, body = MELMASTOON.stamp(*MELMASTOON.encode(FULL), 12, 1, "01ROW")
    assert headers == {"content-type": "application/vnd.melmastoon.event+json"}
    assert json.loads(body) == {
        "eventId": FULL.id,
        "eventType": "shop.orders.order.placed",
        "eventVersion": 1,
        "schemaUri": FULL.schema,
        "tenantId": "t1",
        "correlationId": FULL.correlation,
        "causationId": "cause",
        "actorId": {"type": "user", "id": "u1"},
        "occurredAt": FULL.time,
        "producedBy": {"service": "orders", "instance": "i1", "commit": "c0ffee", "region": "me-central1"},
        "idempotencyKey": "orders:order:o1",
        "payload": {"order_id": "o1"},
        "metadata": {
            "sequence": 12,
            "outboxId": "01ROW",
            "retentionClass": "cold",
            "dataResidency": "me-central1",
            "fromOfflineReplay": True,
            "aiProvenance": {"model": "m"},
            "orderingKey": "t1:o 1",
            "source": "shop.orders",
            "traceparent": FULL.traceparent,
            "tracestate": "congo=t61rcWkgMzE",
            "colour": "grün",
            "count": 3,
            "flag": False,
        },
    }


def test_the_payload_is_embedded_byte_for_byte() -> None:
    data = b'{"price": 12.50, "n" : 1}'
    assert data in STRUCTURED.encode(an_event(data)).body
    for codec in CODECS.values():
        assert codec.decode(*codec.encode(an_event(data))).data == data


def test_the_sequence_is_twenty_digits_that_sort_as_text() -> None:
    body = json.loads(STRUCTURED.stamp(*STRUCTURED.encode(an_event()), 42).body)
    assert body["sequence"] == "00000000000000000042"
    assert BINARY.encode(an_event(sequence=42)).headers["ce-sequence"] == "00000000000000000042"


def structured(**attributes: object) -> bytes:
    return json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "com.example", **attributes}).encode()


def test_a_foreign_event_needs_only_the_four_required_attributes() -> None:
    event = decode_any({"content-type": "application/cloudevents+json"}, structured())
    assert (event.id, event.source, event.type, event.tenant) == ("1", "/s", "com.example", PLATFORM)
    assert (event.data, event.time, event.content_type, event.extensions) == (b"", "", None, {})
    assert event.occurred_at.timestamp() == 0
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "com.example"}
    assert decode_any(headers, b"") == event


def test_no_data_null_and_empty_text_are_three_things() -> None:
    for codec in CODECS.values():
        for data in (b"", b"null", b'""'):
            assert codec.decode(*codec.encode(an_event(data))).data == data
    assert b'"data"' not in STRUCTURED.encode(an_event(b"")).body
    assert b"payload" not in MELMASTOON.encode(an_event(b"")).body
    assert b'"data":null' in STRUCTURED.encode(an_event(b"null")).body


def test_other_content_types_travel_as_base64() -> None:
    picture = an_event(b"\x00\xff\x89PNG", content_type="image/png")
    wire = json.loads(STRUCTURED.encode(picture).body)
    assert base64.b64decode(wire["data_base64"]) == picture.data
    assert "data" not in wire
    wire = json.loads(MELMASTOON.encode(picture).body)
    assert (wire["metadata"]["payloadEncoding"], base64.b64decode(wire["payload"])) == ("base64", picture.data)
    assert BINARY.encode(picture).body == picture.data


def test_foreign_text_data_is_the_text_itself() -> None:
    assert STRUCTURED.decode({}, structured(datacontenttype="text/plain", data="grüß")).data == "grüß".encode()


def test_foreign_base64_json_is_read_and_guarded() -> None:
    def wire(data: bytes) -> bytes:
        return structured(data_base64=base64.b64encode(data).decode())

    assert STRUCTURED.decode({}, wire(b'{"a": 1}')).data == b'{"a": 1}'
    with pytest.raises(DecodeError, match="duplicate_key"):
        STRUCTURED.decode({}, wire(b'{"a":1,"a":2}'))


def test_data_that_stands_apart_from_the_envelope_is_guarded_too() -> None:
    hostile = b'{"a":1,"a":2}'
    with pytest.raises(DecodeError, match="duplicate_key"):
        BINARY.decode(BINARY.encode(an_event()).headers, hostile)
    wire = json.loads(MELMASTOON.encode(an_event()).body)
    wire["metadata"]["payloadEncoding"], wire["payload"] = "base64", base64.b64encode(hostile).decode()
    with pytest.raises(DecodeError, match="duplicate_key"):
        MELMASTOON.decode({}, json.dumps(wire).encode())


def test_a_foreign_sequence_or_partition_key_stays_an_extension() -> None:
    event = STRUCTURED.decode({}, structured(sequence="A5", partitionkey="p"))
    assert event.sequence is None
    assert event.extensions == {"sequence": "A5", "partitionkey": "p"}
    for codec in (STRUCTURED, BINARY):
        assert codec.decode(*codec.encode(event)) == event
    assert STRUCTURED.decode({}, structured(sequence="5")).sequence == 5
    assert STRUCTURED.decode({}, structured(sequence=5)).sequence == 5


@pytest.mark.parametrize("spelling", ["17", "0017", "00000000000000000017", 17])
def test_a_number_leaves_as_its_producer_wrote_it(spelling: str | int) -> None:
    event = STRUCTURED.decode({}, structured(sequence=spelling))
    assert event.sequence == 17
    assert json.loads(STRUCTURED.encode(event).body)["sequence"] == spelling
    assert BINARY.encode(event).headers["ce-sequence"] == str(spelling)
    for codec in (STRUCTURED, BINARY):
        assert codec.decode(*codec.encode(event)) == event
    through = MELMASTOON.decode(*MELMASTOON.encode(event))
    assert through.sequence == 17
    assert MELMASTOON.decode(*MELMASTOON.encode(through)) == through


def test_a_spelling_of_another_number_is_refused() -> None:
    for codec in (STRUCTURED, BINARY, MELMASTOON):
        with pytest.raises(EventError):
            codec.encode(an_event(sequence=18, extensions={"sequence": "17"}))


def test_null_attributes_count_as_absent() -> None:
    event = STRUCTURED.decode({}, structured(subject=None, tenantid=None, lineage=None, foreign=None))
    assert (event.key, event.tenant, event.lineage, event.extensions) == (None, PLATFORM, 1, {})


def test_members_that_melmastoon_never_named_come_back_in_their_places() -> None:
    wire = {
        "eventId": "1",
        "eventType": "melmastoon.file.uploaded",
        "eventVersion": 2,
        "tenantId": "t1",
        "producedBy": {"service": "file-storage-service", "instance": "i", "commit": "c", "region": "r"},
        "payload": {},
        "fresh": [1.5],
        "metadata": {"retentionClass": "warm", "guestCount": 3, "nested": {"a": None}, "id": "x", "plain": "y"},
    }
    event = MELMASTOON.decode({}, json.dumps(wire).encode())
    assert (event.type, event.source) == ("melmastoon.file.uploaded.v2", "file-storage-service")
    assert event.extensions["plain"] == "y"
    there = STRUCTURED.decode(*STRUCTURED.encode(event))
    assert json.loads(MELMASTOON.encode(there).body) == wire


@pytest.mark.parametrize("text", ["{}", "[]", "no json", '{"metadata":{"plain":"y"}}', '{"eventId":"2"}', '{"a": 1}'])
def test_an_extension_that_only_looks_like_put_away_members_is_left_alone(text: str) -> None:
    event = an_event(extensions={"melmastoonextra": text})
    assert MELMASTOON.decode(*MELMASTOON.encode(event)) == event


def test_an_ordering_key_of_another_tenant_is_refused() -> None:
    wire = json.loads(MELMASTOON.encode(an_event(tenant="t1", key="k")).body)
    wire["metadata"]["orderingKey"] = "t2:k"
    with pytest.raises(DecodeError, match="ordering_key"):
        MELMASTOON.decode({}, json.dumps(wire).encode())


def test_the_codec_is_chosen_by_content_type_then_by_headers_then_by_the_first_byte() -> None:
    assert codec_of({"content-type": "Application/CloudEvents+JSON; charset=utf-8"}, b"") is STRUCTURED
    assert codec_of({"content-type": "application/vnd.melmastoon.event+json"}, b"") is MELMASTOON
    assert codec_of({"content-type": "application/json", "ce-specversion": "1.0"}, b"{}") is BINARY
    assert codec_of({"ce-specversion": "1.0"}, b"{}") is BINARY
    assert codec_of({}, b"{}") is STRUCTURED
    for headers, body in (
        ({"content-type": "application/json"}, b"{}"),
        ({"content-type": "application/cloudevents-batch+json"}, b"[]"),
        ({}, b"[]"),
        ({}, b""),
    ):
        with pytest.raises(DecodeError, match="content_type"):
            codec_of(headers, body)


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("missing", {"id": ""}),
        ("type", {"id": None}),
        ("type", {"id": 5}),
        ("missing", {"source": ""}),
        ("missing", {"type": ""}),
        ("type", {"type": ["x"]}),
        ("specversion", {"specversion": "0.3"}),
        ("type", {"tenantid": 7}),
        ("time", {"time": "yesterday"}),
        ("time", {"time": "2026-01-01T00:00:00"}),
        ("time", {"time": "2026-02-30T00:00:00Z"}),
        ("type", {"lineage": "first"}),
        ("type", {"lineage": -1}),
        ("type", {"retentionclass": "forever"}),
        ("type", {"offlinereplay": "maybe"}),
        ("type", {"aiprovenance": "[1]"}),
        ("duplicate_key", {"aiprovenance": '{"a":1,"a":1}'}),
        ("json", {"aiprovenance": "{"}),
        ("extension", {"bad_name": "x"}),
        ("extension", {"Upper": "x"}),
        ("extension", {"nested": {"a": 1}}),
        ("extension", {"ratio": 1.5}),
        ("data", {"data": 1, "data_base64": "AA=="}),
        ("base64", {"data_base64": "?"}),
        ("data", {"datacontenttype": "text/plain", "data": {"a": 1}}),
    ],
)
def test_a_wrong_attribute_is_refused_with_a_reason(reason: str, change: dict[str, object]) -> None:
    with pytest.raises(DecodeError) as refused:
        STRUCTURED.decode({}, structured(**change))
    assert refused.value.reason == reason


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
def test_a_missing_required_attribute_is_refused(name: str) -> None:
    wire = json.loads(structured())
    del wire[name]
    with pytest.raises(DecodeError) as refused:
        STRUCTURED.decode({}, json.dumps(wire).encode())
    assert refused.value.reason == "missing"
    headers = {f"ce-{key}": value for key, value in wire.items()}
    with pytest.raises(DecodeError) as refused:
        BINARY.decode(headers, b"")
    assert refused.value.reason == "missing"


@pytest.mark.parametrize(
    "change",
    [
        {"eventId": ""},
        {"eventType": ""},
        {"tenantId": ""},
        {"eventVersion": "1"},
        {"eventVersion": -1},
        {"metadata": {"source": ""}},
        {"metadata": None},
        {"metadata": {"source": "s", "payloadEncoding": "base64"}, "payload": {"a": 1}},
        {"metadata": {"source": "s", "payloadEncoding": "rot13"}},
        {"occurredAt": "soon"},
    ],
)
def test_a_wrong_melmastoon_envelope_is_refused(change: dict[str, object]) -> None:
    wire: dict[str, object] = {"eventId": "1", "eventType": "t", "eventVersion": 1, "tenantId": "t1"}
    wire |= {"metadata": {"source": "s"}, **change}
    with pytest.raises(DecodeError):
        MELMASTOON.decode({}, json.dumps(wire).encode())


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"x"', b"{", b""])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    for codec in (STRUCTURED, MELMASTOON):
        with pytest.raises(DecodeError):
            codec.decode({}, body)


@pytest.mark.parametrize(
    ("reason", "value"), [("utf8", "%ff"), ("nul", "%00"), ("surrogate", "\ud800"), ("utf8", "%ED%A0%80")]
)
def test_a_header_that_is_no_text_is_refused(reason: str, value: str) -> None:
    headers = {**BINARY.encode(an_event()).headers, "ce-subject": value}
    with pytest.raises(DecodeError) as refused:
        BINARY.decode(headers, b"{}")
    assert refused.value.reason == reason


def test_a_quoted_header_is_unquoted_and_foreign_headers_are_ignored() -> None:
    headers = {**BINARY.encode(an_event()).headers, "ce-subject": '"a \\"b\\" %C3%BC"', "x-other": "1"}
    event = BINARY.decode(headers, b"{}")
    assert (event.key, event.extensions) == ('a "b" ü', {})


def test_a_header_called_data_is_no_extension() -> None:
    with pytest.raises(DecodeError, match="extension"):
        BINARY.decode({**BINARY.encode(an_event()).headers, "ce-data": "x"}, b"{}")


def test_a_scalars_header_that_lies_is_refused() -> None:
    headers = {**BINARY.encode(an_event(extensions={"n": "x"})).headers, "posthouse-scalars": "n other"}
    with pytest.raises(DecodeError, match="extension"):
        BINARY.decode(headers, b"{}")


@EACH
def test_a_bad_traceparent_is_ignored_and_takes_its_state_along(codec: Codec) -> None:
    event = an_event(traceparent="00-" + "0" * 32 + "-b7ad6b7169203331-01", tracestate="congo=1")
    there = codec.decode(*codec.encode(event))
    assert (there.traceparent, there.tracestate) == (None, None)
    event = an_event(traceparent=FULL.traceparent, tracestate="NO=1")
    there = codec.decode(*codec.encode(event))
    assert (there.traceparent, there.tracestate) == (FULL.traceparent, None)


@EACH
@pytest.mark.parametrize(
    "change",
    [
        {"data": b'{"a":1,"a":2}'},
        {"data": b"{"},
        {"data": b'"\\u0000"'},
        {"data": b'{"n":99999999999999999999}'},
        {"key": ""},
        {"id": ""},
        {"key": "a\x00b"},
        {"tenant": "\ud800"},
        {"extensions": {"bad_name": "x"}},
        {"extensions": {"tenantid": "x"}},
        {"extensions": {"sequence": "A"}, "sequence": 1},
        {"extensions": {"ratio": 1.5}},
        {"extensions": {"big": 2**63}},
    ],
)
def test_what_no_reader_would_take_is_refused_at_publish(codec: Codec, change: dict[str, object]) -> None:
    with pytest.raises(EventError):
        codec.encode(msgspec.structs.replace(an_event(), **change))


@EACH
def test_a_backslash_before_u0000_is_just_text(codec: Codec) -> None:
    event = an_event(key="C:\\u0000")
    assert codec.decode(*codec.encode(event)) == event


@EACH
def test_everything_but_the_data_may_have_four_kibibytes(codec: Codec) -> None:
    codec.encode(an_event(b'"' + b"x" * 100_000 + b'"', extensions={"big": "x" * 3000}))
    with pytest.raises(EventTooLarge, match="without its data"):
        codec.encode(an_event(extensions={"big": "x" * 4000}))


def test_size_counts_headers_and_body_and_the_limit_itself_is_allowed() -> None:
    check_size({"ab": "cd"}, b"x" * 6, 10)
    with pytest.raises(EventTooLarge, match="11 bytes, the limit is 10"):
        check_size({"ab": "cd"}, b"x" * 7, 10)
    check_size({}, b"x" * 256 * 1024)
    with pytest.raises(EventTooLarge):
        check_size({}, b"x" * (256 * 1024 + 1))


@EACH
def test_a_body_above_the_hard_cap_is_not_looked_at(codec: Codec) -> None:
    headers = {**codec.encode(an_event()).headers}
    with pytest.raises(DecodeError, match="too_large"):
        codec.decode(headers, b"x" * (8 * 1024 * 1024 + 1))
