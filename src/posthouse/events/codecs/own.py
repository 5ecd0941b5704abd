"""Own: events that a store of ours has kept, read in bulk. What a codec refuses or repairs was refused or repaired when
they were written, so that none of it is looked for again: a sixth of the time that reading a stranger's takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from posthouse.errors import DecodeError
from posthouse.events.codecs import StructuredCodec, decode_any
from posthouse.events.envelope import PLATFORM, Actor, Event, Metadata, Producer, Scalar

Decodes = Mapping[str, Callable[[bytes], object]]
"""By event type: what makes a payload of its bytes."""

HEADERS: Mapping[str, str] = {"content-type": StructuredCodec.content_type}
"""Those of bodies that can be read at one stroke."""


class _Kept(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What we write into most events, in the order in which we do. An event that has anything else, or no data that is
    JSON, does not fit and is read the long way."""

    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    time: str = ""
    datacontenttype: Literal["application/json"]
    dataschema: str | None = None
    subject: str | None = None
    tenantid: str = PLATFORM
    correlationid: str | None = None
    causationid: str | None = None
    actorkind: str | None = None
    actorid: str | None = None
    producerservice: str | None = None
    producerinstance: str | None = None
    producercommit: str | None = None
    producerregion: str | None = None
    idempotencykey: str | None = None
    partitionkey: str | None = None
    retentionclass: Literal["hot", "warm", "cold"] = "hot"
    dataresidency: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    dualof: str | None = None
    dualversion: str | None = None
    streamversion: str | None = None
    data: msgspec.Raw


_kept = msgspec.json.Decoder(_Kept)


def own_event(headers: Mapping[str, str], body: bytes, decodes: Decodes) -> Event[object]:
    """The event, with its payload decoded as its type says. The same as `decode_any` for whatever a codec of ours has
    written; DecodeError where that raises it, and for a type that is not among them."""
    if headers.get("content-type") == StructuredCodec.content_type:
        try:
            return _event(_kept.decode(body), decodes)
        except (msgspec.MsgspecError, KeyError):
            pass  # one that the long way is for, or that it refuses
    event = decode_any(headers, body)
    if event.type not in decodes:
        raise DecodeError("type", f"{event.type[:80]!r} was not asked for")
    return event.with_data(decodes[event.type](event.data))


def own_events(bodies: Sequence[bytes], decodes: Decodes) -> list[Event[object]]:
    """The events of bodies that all have `HEADERS`: each as `own_event` reads it, but at one stroke, unless one of them
    needs the long way. A few hundred at a time: more do not fit into a processor's cache."""
    try:
        events = [_event(kept, decodes) for kept in _kept.decode_lines(b"\n".join(bodies))]
    except (msgspec.MsgspecError, KeyError):
        events = []
    if len(events) == len(bodies):
        return events
    return [own_event(HEADERS, body, decodes) for body in bodies]


def _event(wire: _Kept, decodes: Decodes) -> Event[object]:
    data, tenant, key = decodes[wire.type](bytes(wire.data)), wire.tenantid, wire.subject
    ours = wire.partitionkey is None or (key is not None and wire.partitionkey == f"{tenant}:{key}")
    producer = _producer(wire.producerservice, wire.producerinstance, wire.producercommit, wire.producerregion)
    if ours and wire.actorkind is wire.causationid is wire.idempotencykey is wire.traceparent is wire.dualof is None:
        return Event(  # most are like this, and each argument costs a twentieth of the whole
            id=wire.id,
            type=wire.type,
            source=wire.source,
            data=data,
            time=wire.time,
            tenant=tenant,
            key=key,
            correlation=wire.correlationid,
            producer=producer,
            schema=wire.dataschema,
            metadata=_metadata(wire.retentionclass, wire.dataresidency),
            extensions={} if wire.streamversion is None else {"streamversion": wire.streamversion},
        )
    return Event(
        id=wire.id,
        type=wire.type,
        source=wire.source,
        data=data,
        time=wire.time,
        tenant=tenant,
        key=key,
        correlation=wire.correlationid,
        causation=wire.causationid,
        actor=None if wire.actorkind is None else Actor(kind=wire.actorkind, id=wire.actorid or ""),
        producer=producer,
        schema=wire.dataschema,
        idempotency_key=wire.idempotencykey,
        traceparent=wire.traceparent,
        tracestate=wire.tracestate,
        metadata=_metadata(wire.retentionclass, wire.dataresidency),
        extensions=_extensions(wire) if ours else {"partitionkey": wire.partitionkey or "", **_extensions(wire)},
    )


def _extensions(wire: _Kept) -> Mapping[str, Scalar]:
    found = {"dualof": wire.dualof, "dualversion": wire.dualversion, "streamversion": wire.streamversion}
    return {name: value for name, value in found.items() if value is not None}


@lru_cache(maxsize=1024)
def _producer(service: str | None, instance: str | None, commit: str | None, region: str | None) -> Producer | None:
    """Most events of a page have the same."""
    if service is instance is commit is region is None:
        return None
    return Producer(service=service or "", instance=instance or "", commit=commit or "", region=region or "")


@lru_cache(maxsize=1024)
def _metadata(retention: Literal["hot", "warm", "cold"], residency: str | None) -> Metadata:
    return Metadata(retention=retention, residency=residency)
