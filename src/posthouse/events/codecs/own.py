"""Own: events that a store of ours has kept, read in bulk. What a codec refuses or repairs was refused or repaired when
they were written, so that none of it is looked for again: a sixth of the time that reading a stranger's takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from posthouse.errors import DecodeError
from posthouse.events.codecs import StructuredCodec, decode_any
from posthouse.events.envelope import PLATFORM, Actor, Event, Metadata, Producer, Scalar
from posthouse.events.limits import UNREADABLE


class Kind(NamedTuple):
    """How payloads of one type are read: `decode` makes them of their bytes. `plain` is their class where msgspec, reading JSON
    as that class, does the same: then payload and envelope are read together."""

    decode: Callable[[bytes], object]
    plain: type | None = None


HEADERS: Mapping[str, str] = {"content-type": StructuredCodec.content_type}
"""Those of bodies that can be read at one stroke."""


SERVICE = "service"
"""The kind of actor that most events have: few of them, so that they are made once."""


class _Kept(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What we write into most events, in the order in which we do, but for the type, which tells what class `data` is. An
    event that has anything else, or no data that is JSON, does not fit and is read the long way."""

    specversion: Literal["1.0"]
    id: str
    source: str
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


class OwnReader:
    """Reads events of some types, each with its payload decoded."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._structs = {
            _struct(name, kind): (name, kind.decode if kind.plain is None else None) for name, kind in kinds.items()
        }
        self._kept: msgspec.json.Decoder[_Kept] = msgspec.json.Decoder(reduce(or_, self._structs))

    def event(self, headers: Mapping[str, str], body: bytes) -> Event[object]:
        """The same as `decode_any` for whatever a codec of ours has written, but for the payload; DecodeError where that
        raises it, and for another type."""
        if headers.get("content-type") == StructuredCodec.content_type:
            with contextlib.suppress(*UNREADABLE):  # one that the long way is for, or that it refuses
                return self._event(self._kept.decode(body))
        return self.typed(decode_any(headers, body))

    def typed(self, event: Event[bytes]) -> Event[object]:
        """An event whose envelope was read, with its payload decoded; DecodeError for another type."""
        if event.type not in self._kinds:
            raise DecodeError("type", f"{event.type[:80]!r} was not asked for")
        return event.with_data(self._kinds[event.type].decode(event.data))

    def events(self, bodies: Sequence[bytes]) -> list[Event[object]]:
        """The events of bodies that all have `HEADERS`, at one stroke unless one of them needs the long way. A hundred or so
        at a time: more do not fit into a processor's cache."""
        try:
            events = [self._event(kept) for kept in self._kept.decode_lines(b"\n".join(bodies))]
        except UNREADABLE:
            events = []
        if len(events) == len(bodies):
            return events
        return [self.event(HEADERS, body) for body in bodies]

    def _event(self, wire: _Kept) -> Event[object]:
        name, decode = self._structs[type(wire)]
        data = wire.data if decode is None else decode(bytes(wire.data))
        tenant, key, version = wire.tenantid, wire.subject, wire.streamversion
        like = _like(
            name, wire.source, wire.dataschema, wire.producerservice, wire.producerinstance, wire.producercommit,
            wire.producerregion, wire.retentionclass, wire.dataresidency, (wire.actorid or "") if wire.actorkind == SERVICE else None,
        )  # fmt: skip
        ours = wire.partitionkey is None or (key is not None and wire.partitionkey == f"{tenant}:{key}")
        plain = wire.causationid is wire.traceparent is None and wire.actorkind in (None, SERVICE)
        if ours and plain and wire.dualof is wire.dualversion is None:
            return replace(  # most are like this, and each argument costs a twentieth of the whole
                like,
                id=wire.id,
                data=data,
                time=wire.time,
                tenant=tenant,
                key=key,
                correlation=wire.correlationid,
                idempotency_key=wire.idempotencykey,
                extensions={} if version is None else {"streamversion": version},
            )
        return replace(
            like,
            id=wire.id,
            data=data,
            time=wire.time,
            tenant=tenant,
            key=key,
            correlation=wire.correlationid,
            causation=wire.causationid,
            actor=None if wire.actorkind is None else Actor(kind=wire.actorkind, id=wire.actorid or ""),
            idempotency_key=wire.idempotencykey,
            traceparent=wire.traceparent,
            tracestate=wire.tracestate,
            extensions=_extensions(wire) if ours else {"partitionkey": wire.partitionkey or "", **_extensions(wire)},
        )


def _struct(name: str, kind: Kind) -> Any:
    """What holds events of one type, which is what tells them apart."""
    fields = [("data", kind.plain or msgspec.Raw)]
    return msgspec.defstruct("Kept", fields, bases=(_Kept,), kw_only=True, gc=False, tag_field="type", tag=name)


@lru_cache(maxsize=1024)
def _like(
    type: str,
    source: str,
    schema: str | None,
    service: str | None,
    instance: str | None,
    commit: str | None,
    region: str | None,
    retention: Literal["hot", "warm", "cold"],
    residency: str | None,
    actor: str | None,
) -> Event[object]:
    """What most events of a page have in common: made once, and its texts are in memory once."""
    producer = Producer(service=service or "", instance=instance or "", commit=commit or "", region=region or "")
    return Event(
        id="",
        type=type,
        source=source,
        data=None,
        time="",
        producer=None if service is instance is commit is region is None else producer,
        schema=schema,
        metadata=Metadata(retention=retention, residency=residency),
        actor=None if actor is None else Actor(kind=SERVICE, id=actor),
    )


def _extensions(wire: _Kept) -> Mapping[str, Scalar]:
    found = {"dualof": wire.dualof, "dualversion": wire.dualversion, "streamversion": wire.streamversion}
    return {name: value for name, value in found.items() if value is not None}
