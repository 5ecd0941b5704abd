"""Own: events that a store of ours has kept, read in bulk. What a codec refuses or repairs was refused or repaired when
they were written, so that none of it is looked for again: a sixth of the time that reading a stranger's takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from posthouse.events.codecs import STRUCTURED, decode_any
from posthouse.events.codecs.attributes import Attributes
from posthouse.events.envelope import PLATFORM, Actor, Event, Metadata, Producer, Scalar

_ABSENT = msgspec.Raw()

JSON = "application/json"
"""The content type of what is read quickly; an Event has it unless it is given another."""


class _Kept(Attributes, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The attributes with the extensions that we write ourselves; with any other it is read the long way."""

    data: msgspec.Raw = _ABSENT
    streamversion: str | None = None
    dualof: str | None = None
    dualversion: str | None = None


_read = msgspec.json.Decoder(_Kept).decode
_content_type = STRUCTURED.content_type


def own_event(headers: Mapping[str, str], body: bytes, decode: Callable[[bytes], object]) -> Event[object]:
    """The event, with its payload as `decode` makes it of the bytes. The same as `decode_any` for whatever a codec of ours
    has written; DecodeError where that raises it."""
    wire = _quickly(headers, body)
    if wire is None:
        event = decode_any(headers, body)
        return event.with_data(decode(event.data))
    if wire.actorkind is wire.causationid is wire.idempotencykey is wire.traceparent is None:
        return Event(  # most are like this, and each argument costs a twentieth of the whole
            id=wire.id,
            type=wire.type,
            source=wire.source,
            data=decode(bytes(wire.data)),
            time=wire.time or "",
            tenant=wire.tenantid or PLATFORM,
            key=wire.subject,
            correlation=wire.correlationid,
            producer=_producer(wire.producerservice, wire.producerinstance, wire.producercommit, wire.producerregion),
            schema=wire.dataschema,
            metadata=_metadata(wire.retentionclass, wire.dataresidency),
            extensions=_extensions(wire),
        )
    return Event(
        id=wire.id,
        type=wire.type,
        source=wire.source,
        data=decode(bytes(wire.data)),
        time=wire.time or "",
        tenant=wire.tenantid or PLATFORM,
        key=wire.subject,
        correlation=wire.correlationid,
        causation=wire.causationid,
        actor=None if wire.actorkind is None else Actor(kind=wire.actorkind, id=wire.actorid or ""),
        producer=_producer(wire.producerservice, wire.producerinstance, wire.producercommit, wire.producerregion),
        schema=wire.dataschema,
        idempotency_key=wire.idempotencykey,
        traceparent=wire.traceparent,
        tracestate=wire.tracestate,
        metadata=_metadata(wire.retentionclass, wire.dataresidency),
        extensions=_extensions(wire),
    )


def _quickly(headers: Mapping[str, str], body: bytes) -> _Kept | None:
    """What is read at one stroke; None for other formats, and for what is seldom said."""
    if headers.get("content-type") != _content_type:
        return None
    try:
        wire = _read(body)
    except msgspec.MsgspecError:
        return None
    usual = wire.sequence is wire.lineage is wire.offlinereplay is wire.aiprovenance is wire.outboxid is None
    if not usual or not wire.data or wire.datacontenttype != JSON:
        return None
    if wire.partitionkey is not None and wire.partitionkey != f"{wire.tenantid or PLATFORM}:{wire.subject}":
        return None
    return wire


def _extensions(wire: _Kept) -> Mapping[str, Scalar]:
    if wire.dualof is None and wire.dualversion is None:
        return {} if wire.streamversion is None else {"streamversion": wire.streamversion}
    found = {"dualof": wire.dualof, "dualversion": wire.dualversion, "streamversion": wire.streamversion}
    return {name: value for name, value in found.items() if value is not None}


@lru_cache(maxsize=1024)
def _producer(service: str | None, instance: str | None, commit: str | None, region: str | None) -> Producer | None:
    """Most events of a page have the same."""
    if service is instance is commit is region is None:
        return None
    return Producer(service=service or "", instance=instance or "", commit=commit or "", region=region or "")


@lru_cache(maxsize=1024)
def _metadata(retention: str | None, residency: str | None) -> Metadata:
    return msgspec.convert({"retention": retention or "hot", "residency": residency}, Metadata)
