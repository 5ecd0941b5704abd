"""CloudEvents 1.0, structured: one JSON object with attributes and data."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from posthouse.errors import DecodeError
from posthouse.events.codec import Encoded
from posthouse.events.codecs.attributes import (
    Attributes,
    attributes_of,
    check_data,
    check_extensions,
    check_texts,
    event_of,
    is_json,
    json_of,
    misfit,
    sequence_text,
    unbase64,
)
from posthouse.events.envelope import Event
from posthouse.events.limits import guard

_encode = msgspec.json.Encoder().encode
_ABSENT = msgspec.Raw()


class _Body(Attributes, kw_only=True):
    data: msgspec.Raw = _ABSENT
    data_base64: str | None = None


_decode = msgspec.json.Decoder(_Body).decode
_decode_text = msgspec.json.Decoder(str).decode


class StructuredCodec:
    """`application/cloudevents+json`. The default: one body that every CloudEvents reader understands."""

    name = "structured"
    content_type = "application/cloudevents+json"

    def encode(self, event: Event[bytes]) -> Encoded:
        check_data(event)
        check_extensions(event)
        name, data = "data", event.data
        if not is_json(event.content_type):
            name, data = "data_base64", b'"' + base64.b64encode(event.data) + b'"'
        wire = attributes_of(event)
        body = json_of(wire, name, data, event.extensions)
        if b':""' in body[: len(body) - len(data)]:
            check_texts(wire)
        return Encoded({"content-type": self.content_type}, body)

    def decode(self, headers: Mapping[str, str], body: bytes) -> Event[bytes]:
        known = guard(body)
        try:
            wire = _decode(body)
        except msgspec.ValidationError as error:
            raise misfit(error) from None
        known.pop("data", None)
        known.pop("data_base64", None)
        return event_of(wire, known, _data(wire))

    def stamp(
        self,
        headers: Mapping[str, str],
        body: bytes,
        sequence: int | None,
        lineage: int = 1,
        outbox_id: str | None = None,
    ) -> Encoded:
        if sequence is not None and lineage == 1 and outbox_id is not None and outbox_id.isdecimal():  # by far the most
            stamped = b'{"sequence":"%020d","outboxid":"%b",' % (sequence, outbox_id.encode())
            return Encoded(headers, body.replace(b"{", stamped, 1))  # copies the body once
        stamps = "" if sequence is None else f'"sequence":"{sequence_text(sequence)}",'
        if lineage != 1:
            stamps += f'"lineage":{lineage},'
        if outbox_id is not None:
            stamps += f'"outboxid":{_encode(outbox_id).decode()},'
        return Encoded(headers, b"{" + stamps.encode() + body[1:])


def _data(wire: _Body) -> bytes:
    raw = bytes(wire.data)
    if wire.data_base64 is not None:
        if raw:
            raise DecodeError("data", "both data and data_base64 are given")
        data = unbase64(wire.data_base64)
        if data and is_json(wire.datacontenttype):
            guard(data)
        return data
    if not raw or is_json(wire.datacontenttype):
        return raw
    try:
        return b"" if raw == b"null" else _decode_text(raw).encode()
    except msgspec.ValidationError:
        raise DecodeError("data", f"data of type {wire.datacontenttype} is neither text nor base64") from None
