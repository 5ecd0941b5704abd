"""Melmastoon's own envelope: camelCase JSON, with `metadata` for everything that has no place of its own.

`metadata` comes first, so that a stamp can be spliced in. Beside the members that the platform names it holds
`source` (left out when it is the producing service), `sequence`, `lineage`, `traceparent`, `tracestate`,
`contentType` (left out for application/json), `payloadEncoding` ("base64" for other content types) and extensions by
their names. A type without a version has the version 0. Members that nobody named travel as JSON text in the extension
`melmastoonextra`, so that other formats carry them too.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

import msgspec

from posthouse import Actor, Event
from posthouse.errors import DecodeError, EventError
from posthouse.events.codec import Encoded, check_sayable, checked
from posthouse.events.codecs.attributes import (
    JSON,
    RESERVED,
    check_data,
    check_extensions,
    check_required,
    check_time,
    is_json,
    json_of,
    lineage_number,
    misfit,
    read_extensions,
    sequence_number,
    unbase64,
)
from posthouse.events.envelope import Metadata, Producer, Scalar
from posthouse.events.limits import guard
from posthouse.events.trace import is_traceparent, is_tracestate

EXTRA = "melmastoonextra"

_START = b'{"metadata":{'
_VERSIONED = re.compile(r"(.+)\.v([1-9][0-9]{0,8})", re.DOTALL)
_NAME = re.compile(r"[a-z0-9]+")
_encode = msgspec.json.Encoder().encode


class _Actor(msgspec.Struct):
    type: str = ""
    id: str = ""


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    retention_class: Literal["hot", "warm", "cold"] = "hot"
    data_residency: str | None = None
    from_offline_replay: bool = False
    ai_provenance: dict[str, object] | None = None
    ordering_key: str | None = None
    outbox_id: str | None = None
    source: str | None = None
    sequence: int | str | None = None
    lineage: int = 1
    traceparent: str | None = None
    tracestate: str | None = None
    content_type: str | None = JSON
    payload_encoding: Literal["base64"] | None = None


class _Envelope(msgspec.Struct, rename="camel", kw_only=True):
    event_id: str
    event_type: str
    event_version: int
    tenant_id: str
    schema_uri: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    actor_id: _Actor | None = None
    occurred_at: str | None = None
    produced_by: Producer | None = None
    idempotency_key: str | None = None
    payload: msgspec.Raw = msgspec.Raw()
    metadata: _Metadata = _Metadata()


_decode = msgspec.json.Decoder(_Envelope).decode
_MEMBERS = frozenset(_Envelope.__struct_encode_fields__)
_METADATA = frozenset(_Metadata.__struct_encode_fields__)


class MelmastoonCodec:
    """`application/vnd.melmastoon.event+json`: the EventEnvelope of the hotel platform."""

    name = "melmastoon"
    content_type = "application/vnd.melmastoon.event+json"
    correlation = "correlationId"
    envelope_version = 1

    @property
    def envelope_schema(self) -> bytes:
        """Of every body that this writes, whatever the event."""
        return files("melmastoon").joinpath(f"event_envelope.v{self.envelope_version}.json").read_bytes()

    def encode(self, event: Event[bytes]) -> Encoded:
        check_data(event)
        check_sayable(event)
        wire = _present(
            metadata=_metadata(event),
            eventId=event.id,
            **_versioned(event.type),
            schemaUri=event.schema,
            tenantId=event.tenant,
            correlationId=event.correlation,
            causationId=event.causation,
            actorId=event.actor and {"type": event.actor.kind, "id": event.actor.id},
            occurredAt=event.time or None,
            producedBy=event.producer,
            idempotencyKey=event.idempotency_key,
        )
        _add_extensions(wire, event)
        json = is_json(event.content_type)
        data = event.data if json else b'"' + base64.b64encode(event.data) + b'"'
        return Encoded({"content-type": self.content_type}, json_of(wire, "payload", data))

    def decode(self, headers: Mapping[str, str], body: bytes) -> Event[bytes]:
        known = guard(body)
        try:
            wire = _decode(body)
        except msgspec.ValidationError as error:
            raise misfit(error) from None
        return _event(wire, _extensions(known))

    def stamp(
        self,
        headers: Mapping[str, str],
        body: bytes,
        sequence: int | None,
        lineage: int = 1,
        outbox_id: str | None = None,
    ) -> Encoded:
        stamps = "" if sequence is None else f'"sequence":{sequence},'
        if lineage != 1:
            stamps += f'"lineage":{lineage},'
        if outbox_id is not None:
            stamps += f'"outboxId":{_encode(outbox_id).decode()},'
        return Encoded(dict(headers), _START + stamps.encode() + body[len(_START) :])

    def schema(self, type: str, schema_uri: str, payload: dict[str, object]) -> dict[str, object]:
        """The envelope as a JSON Schema, with that of its payload inside: for exports."""
        text = {"type": "string"}
        named = _versioned(type)
        return {
            "type": "object",
            "properties": {
                "eventId": text,
                "eventType": {"type": "string", "const": named["eventType"]},
                "eventVersion": {"type": "integer", "const": named["eventVersion"]},
                "tenantId": text,
                "schemaUri": {"type": "string", "examples": [schema_uri]},
                "correlationId": text,
                "causationId": text,
                "actorId": {"type": "object", "properties": dict.fromkeys(_Actor.__struct_fields__, text)},
                "occurredAt": {"type": "string", "format": "date-time"},
                "producedBy": {"type": "object", "properties": dict.fromkeys(Producer.__struct_fields__, text)},
                "idempotencyKey": text,
                "payload": payload,
                "metadata": {"type": "object"},
            },
            "required": ["eventId", "eventType", "eventVersion", "tenantId", "payload", "metadata"],
        }


ENVELOPE = MelmastoonCodec()
"""What the entry point `posthouse.envelopes` names."""


def _present(**members: object) -> dict[str, Any]:
    for name, value in members.items():
        if value == "":
            raise EventError(f"{name} of an event may not be empty: leave it out")
    return {name: value for name, value in members.items() if value is not None}


def _versioned(type: str) -> dict[str, object]:
    found = _VERSIONED.fullmatch(type)
    return {"eventType": found[1], "eventVersion": int(found[2])} if found else {"eventType": type, "eventVersion": 0}


def _metadata(event: Event[bytes]) -> dict[str, object]:
    metadata, service = event.metadata, event.producer and event.producer.service
    wire = _present(
        retentionClass=metadata.retention,
        dataResidency=metadata.residency,
        fromOfflineReplay=metadata.offline_replay or None,
        aiProvenance=metadata.ai_provenance,
        orderingKey=event.ordering_key,
        outboxId=metadata.outbox_id,
        source=None if event.source == service else event.source,
        sequence=event.sequence,
        lineage=None if event.lineage == 1 else event.lineage,
        traceparent=event.traceparent,
        tracestate=event.tracestate,
        payloadEncoding=None if is_json(event.content_type) else "base64",
    )
    if event.key == "":
        raise EventError("key of an event may not be empty: leave it out")
    if event.content_type != JSON:
        wire["contentType"] = event.content_type
    return wire


def _add_extensions(wire: dict[str, Any], event: Event[bytes]) -> None:
    if not event.extensions:
        return
    check_extensions(event)
    plain = dict(event.extensions)
    extra = _read_extra(plain.get(EXTRA))
    if extra is not None:
        del plain[EXTRA]
        wire.update(extra[0])
        wire["metadata"].update(extra[1])
    wire["metadata"].update(plain)


def _read_extra(text: Scalar | None) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The members of the envelope and of `metadata` that `_extensions` put away; None when it did not write this."""
    try:
        outer = guard(text.encode()) if isinstance(text, str) else None
    except DecodeError:
        return None
    if not isinstance(outer, dict):
        return None
    inner = outer.pop("metadata", {})
    if not isinstance(inner, dict) or _MEMBERS.intersection(outer):
        return None
    if any(name in _METADATA or _is_extension(name, value) for name, value in inner.items()):
        return None
    return (outer, inner) if _extra_text(outer, inner) == text else None


def _extra_text(outer: dict[str, Any], inner: dict[str, Any]) -> str | None:
    if not (outer or inner):
        return None
    return _encode({**outer, "metadata": inner} if inner else outer).decode()


def _is_extension(name: str, value: object) -> bool:
    return name not in RESERVED and _NAME.fullmatch(name) is not None and isinstance(value, str | int | None)


def _extensions(known: dict[str, Any]) -> dict[str, Any]:
    metadata = known.get("metadata", {})
    unknown = {name: value for name, value in metadata.items() if name not in _METADATA}
    plain = {name: value for name, value in unknown.items() if _is_extension(name, value)}
    inner = {name: value for name, value in unknown.items() if name not in plain}
    extra = _extra_text({name: value for name, value in known.items() if name not in _MEMBERS}, inner)
    if extra is not None:
        if EXTRA in plain:
            raise DecodeError("extension", f"{EXTRA!r} stands beside members that it would hold")
        plain[EXTRA] = extra
    return plain


def _event(wire: _Envelope, extensions: dict[str, Any]) -> Event[bytes]:
    metadata, producer = wire.metadata, wire.produced_by
    source = metadata.source or (producer.service if producer else "")
    check_required(wire.event_id, source, wire.event_type)
    if wire.occurred_at:
        check_time(wire.occurred_at)
    sequence = sequence_number(metadata.sequence)
    if metadata.sequence is not None and metadata.sequence != sequence:
        extensions["sequence"] = metadata.sequence  # as others write it, so that it leaves as it came
    traced = metadata.traceparent is not None and is_traceparent(metadata.traceparent)
    state = metadata.tracestate
    event = Event(
        id=wire.event_id,
        type=f"{wire.event_type}.v{wire.event_version}" if wire.event_version else wire.event_type,
        source=source,
        data=_payload(wire),
        time=wire.occurred_at or "",
        tenant=_tenant(wire),
        key=_key(wire),
        sequence=sequence,
        lineage=lineage_number(metadata.lineage),
        correlation=wire.correlation_id or None,
        causation=wire.causation_id or None,
        actor=None if wire.actor_id is None else Actor(kind=wire.actor_id.type, id=wire.actor_id.id),
        producer=producer,
        schema=wire.schema_uri or None,
        content_type=metadata.content_type or None,
        idempotency_key=wire.idempotency_key or None,
        traceparent=metadata.traceparent if traced else None,
        tracestate=state if traced and state and is_tracestate(state) else None,
        metadata=Metadata(
            retention=metadata.retention_class,
            residency=metadata.data_residency or None,
            offline_replay=metadata.from_offline_replay,
            ai_provenance=metadata.ai_provenance,
            outbox_id=metadata.outbox_id or None,
        ),
        extensions=read_extensions(extensions) if extensions else {},
    )
    return checked(event)


def _tenant(wire: _Envelope) -> str:
    if not wire.tenant_id:
        raise DecodeError("missing", "tenantId of an event may not be empty")
    if wire.event_version < 0:
        raise DecodeError("type", "eventVersion is negative")
    return wire.tenant_id


def _key(wire: _Envelope) -> str | None:
    ordering_key = wire.metadata.ordering_key
    if ordering_key is None:
        return None
    start = f"{wire.tenant_id}:"
    if not ordering_key.startswith(start) or ordering_key == start:
        raise DecodeError("ordering_key", "metadata.orderingKey is not 'tenantId:key' with the envelope's tenant")
    return ordering_key[len(start) :]


def _payload(wire: _Envelope) -> bytes:
    raw = bytes(wire.payload)
    if wire.metadata.payload_encoding is None:
        return raw
    try:
        data = unbase64(msgspec.json.decode(raw or b'""', type=str))
    except msgspec.ValidationError:
        raise DecodeError("data", "payload is not base64 text") from None
    if data and is_json(wire.metadata.content_type):
        guard(data)
    return data
