"""The CloudEvents attributes of a fact, as both CloudEvents formats write them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from posthouse.errors import DecodeError, EventError
from posthouse.events.codec import check_metadata, check_sayable, checked
from posthouse.events.envelope import PLATFORM, Actor, Event, Metadata, Producer, Scalar, moment
from posthouse.events.limits import MAX_INTEGER, MAX_LINEAGE, MAX_SEQUENCE, guard
from posthouse.events.trace import is_traceparent, is_tracestate

JSON = "application/json"

_NAME = re.compile(r"[a-z0-9]+")
_JSON_TYPE = re.compile(r"\s*[^/;\s]+/(?:[^/;\s]+\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)
_encode = msgspec.json.Encoder().encode


class Attributes(msgspec.Struct, kw_only=True, gc=False):
    """What is on the wire, typed. An attribute that is null counts as absent."""

    specversion: str
    id: str
    source: str
    type: str
    time: str | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    subject: str | None = None
    tenantid: str | None = None
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
    sequence: str | int | None = None
    lineage: str | int | None = None
    retentionclass: Literal["hot", "warm", "cold"] | None = None
    dataresidency: str | None = None
    offlinereplay: str | bool | None = None
    aiprovenance: str | None = None
    outboxid: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None


NAMES = frozenset(Attributes.__struct_fields__)
MAY_BE_EMPTY = frozenset(("actorkind", "actorid", "producerservice"))
"""Attributes whose empty text says something: there is an actor or a producer, and this of it is not known."""
SAID = {
    "subject": "key", "tenantid": "tenant", "correlationid": "correlation", "causationid": "causation",
    "idempotencykey": "idempotency_key", "dataresidency": "residency",
}  # fmt: skip
"""What users call an attribute that has another name on the wire."""
RESERVED = (NAMES | {"data"}) - {"partitionkey", "sequence"}
"""Names that no extension may have. A foreign partition key, or a sequence that is written otherwise, stays an extension."""


class Written(Attributes, kw_only=True, omit_defaults=True, gc=False):
    """What is put on the wire: every attribute that is not at its default, in a fixed order."""


def attributes_of(event: Event[bytes]) -> Written:
    """The attributes of a fact; its extensions are not among them, a foreign partition key is one. EventError for one that
    no store would keep."""
    check_sayable(event)
    metadata, actor, producer, key = event.metadata, event.actor, event.producer, event.key
    return Written(
        specversion="1.0",
        id=event.id,
        source=event.source,
        type=event.type,
        time=event.time or None,
        datacontenttype=event.content_type,
        dataschema=event.schema,
        subject=key,
        tenantid=None if event.tenant == PLATFORM else event.tenant,
        correlationid=event.correlation,
        causationid=event.causation,
        actorkind=None if actor is None else actor.kind,
        actorid=None if actor is None else actor.id,
        producerservice=None if producer is None else producer.service,
        producerinstance=None if producer is None else producer.instance or None,
        producercommit=None if producer is None else producer.commit or None,
        producerregion=None if producer is None else producer.region or None,
        idempotencykey=event.idempotency_key,
        partitionkey=None if key is None or "partitionkey" in event.extensions else f"{event.tenant}:{key}",
        sequence=None if event.sequence is None or "sequence" in event.extensions else sequence_text(event.sequence),
        lineage=None if event.lineage == 1 else event.lineage,
        retentionclass=None if metadata.retention == "hot" else metadata.retention,
        dataresidency=metadata.residency,
        offlinereplay=metadata.offline_replay or None,
        aiprovenance=None if metadata.ai_provenance is None else _provenance(metadata.ai_provenance),
        outboxid=metadata.outbox_id,
        traceparent=event.traceparent,
        tracestate=event.tracestate,
    )


def _provenance(found: Mapping[str, object]) -> str:
    text = _encode(found)
    try:
        if guard(text) == found:
            return text.decode()
    except DecodeError as error:
        raise EventError(f"the provenance of an event cannot be published, {error}") from None
    raise EventError(f"the provenance of an event cannot be published: {found!r:.200} is not what JSON makes of it")


def check_texts(wire: Written) -> None:
    """Raise EventError for an attribute that is there and empty, which readers refuse."""
    for name in Attributes.__struct_fields__:
        if getattr(wire, name) == "" and name not in MAY_BE_EMPTY:
            raise EventError(f"{SAID.get(name, name)} of an event may not be empty: leave it out")


def check_data(event: Event[bytes]) -> None:
    """Raise EventError for JSON data that every reader would refuse."""
    if event.data and is_json(event.content_type):
        try:
            guard(event.data)
        except DecodeError as error:
            raise EventError(f"the data of {event.type} cannot be published, {error}") from None


def json_of(wire: object, name: str, data: bytes, more: Mapping[str, object] | None = None) -> bytes:
    """A JSON object with the members of `wire`, of `more` and, unless `data` is empty, one that holds it unread."""
    try:
        head = _encode(wire)
        if more:
            head = b"".join((head[:-1], b",", _encode(more)[1:]))
    except UnicodeEncodeError:
        raise EventError("an event's text holds half a surrogate pair, which is no character") from None
    if b"\\" in head and b"\\u0000" in head.replace(b"\\\\", b""):
        raise EventError("an event's text holds a NUL character, which databases and readers refuse")
    check_metadata(len(head))
    return b"".join((head[:-1], b',"', name.encode(), b'":', data, b"}")) if data else head


def event_of(wire: Attributes, known: Mapping[str, object], data: bytes) -> Event[bytes]:
    """The fact behind the attributes; `known` holds them all, those without a field of their own too."""
    if wire.specversion != "1.0":
        raise DecodeError("specversion", f"{wire.specversion[:20]!r}, only 1.0 is read")
    check_required(wire.id, wire.source, wire.type)
    if wire.time:
        check_time(wire.time)
    tenant, key = wire.tenantid or PLATFORM, wire.subject or None
    traced = wire.traceparent is not None and is_traceparent(wire.traceparent)
    sequence = sequence_number(wire.sequence)
    extensions = {name: known[name] for name in known.keys() - NAMES} if not NAMES.issuperset(known) else {}
    if wire.partitionkey is not None and (key is None or wire.partitionkey != f"{tenant}:{key}"):
        extensions["partitionkey"] = wire.partitionkey
    if wire.sequence is not None and (
        sequence is None or not isinstance(wire.sequence, str) or len(wire.sequence) != 20
    ):
        extensions["sequence"] = wire.sequence  # as others write it, so that it leaves as it came
    event = Event(
        id=wire.id,
        type=wire.type,
        source=wire.source,
        data=data,
        time=wire.time or "",
        tenant=tenant,
        key=key,
        sequence=sequence,
        lineage=1 if wire.lineage is None else lineage_number(wire.lineage),
        correlation=wire.correlationid or None,
        causation=wire.causationid or None,
        actor=_actor(wire),
        producer=_producer(wire.producerservice, wire.producerinstance, wire.producercommit, wire.producerregion),
        schema=wire.dataschema or None,
        content_type=wire.datacontenttype or None,
        idempotency_key=wire.idempotencykey or None,
        traceparent=wire.traceparent if traced else None,
        tracestate=wire.tracestate if traced and wire.tracestate and is_tracestate(wire.tracestate) else None,
        metadata=_metadata(wire),
        extensions=read_extensions(extensions) if extensions else {},
    )
    return checked(event)


def _actor(wire: Attributes) -> Actor | None:
    if wire.actorkind is None and wire.actorid is None:
        return None
    return Actor(kind=wire.actorkind or "", id=wire.actorid or "")


@lru_cache(maxsize=64)  # processes write many events each; few, since a text may be as long as an event
def _producer(service: str | None, instance: str | None, commit: str | None, region: str | None) -> Producer | None:
    if service is instance is commit is region is None:
        return None
    return Producer(service=service or "", instance=instance or "", commit=commit or "", region=region or "")


_PLAIN = Metadata()


def _metadata(wire: Attributes) -> Metadata:
    retention, residency, outbox_id = wire.retentionclass, wire.dataresidency, wire.outboxid
    if wire.offlinereplay is wire.aiprovenance is None:
        if retention is residency is outbox_id is None:
            return _PLAIN
        return Metadata(retention=retention or "hot", residency=residency or None, outbox_id=outbox_id or None)
    provenance = None if wire.aiprovenance is None else guard(wire.aiprovenance.encode())
    if not isinstance(provenance, dict | None):
        raise DecodeError("type", "aiprovenance is not the JSON text of an object")
    if isinstance(wire.offlinereplay, str) and wire.offlinereplay not in ("true", "false"):
        raise DecodeError("type", "offlinereplay is neither true nor false")
    return Metadata(
        retention=retention or "hot",
        residency=residency or None,
        offline_replay=wire.offlinereplay in (True, "true"),
        ai_provenance=provenance,
        outbox_id=outbox_id or None,
    )


# Rules that every format shares.


def check_required(id: str, source: str, type: str) -> None:
    """Raise DecodeError when one of them is empty."""
    if not (id and source and type):
        raise DecodeError("missing", "id, source and type of an event may not be empty")


def check_time(text: str) -> None:
    """Raise DecodeError for text that is not RFC 3339."""
    try:
        moment(text)
    except ValueError:
        raise DecodeError("time", f"{text[:40]!r} is not RFC 3339 with a time zone") from None


def is_json(content_type: str | None) -> bool:
    """True for JSON media types, and for None, which CloudEvents reads as JSON."""
    return content_type is None or content_type == JSON or _JSON_TYPE.fullmatch(content_type) is not None


def sequence_text(number: int) -> str:
    """Twenty digits, so that text sorts as numbers do."""
    return f"{number:020d}"


def sequence_number(wire: str | int | None) -> int | None:
    """The number in a `sequence`, or None when a foreign producer put something else there."""
    if isinstance(wire, str):
        wire = int(wire) if len(wire) <= 20 and wire.isascii() and wire.isdigit() else None
    return wire if wire is not None and 0 <= wire <= MAX_SEQUENCE else None


def _number_in(value: Scalar) -> int | None:
    return None if isinstance(value, bool) else sequence_number(value)


def lineage_number(wire: str | int) -> int:
    """An integer written as a number or as digits; DecodeError for anything else, and for more than 31 bits."""
    number = sequence_number(wire)
    if number is None or number > MAX_LINEAGE:
        raise DecodeError("type", f"lineage is not a whole number up to {MAX_LINEAGE}")
    return number


def unbase64(text: str) -> bytes:
    """The bytes in base64 text; DecodeError when it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError("base64", "the data is not base64") from None


def check_extensions(event: Event[bytes]) -> None:
    """Raise EventError for an extension that CloudEvents, or this envelope, has no room for."""
    for name, value in event.extensions.items():
        if not _NAME.fullmatch(name):
            raise EventError(f"extension {name!r}: names are lower-case ASCII letters and digits")
        if name in RESERVED or (name == "sequence" and event.sequence not in (None, _number_in(value))):
            raise EventError(f"extension {name!r}: this name is an attribute of its own, set the event's field")
        if not isinstance(value, str | int):
            raise EventError(f"extension {name!r} holds {type(value).__name__}: text, integers and booleans travel")
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise EventError(f"extension {name!r} does not fit in 64 bits: send it as text")


def read_extensions(found: Mapping[str, Any]) -> dict[str, Scalar]:
    """Extensions from the wire; null is absent, other types and bad names are a DecodeError."""
    for name, value in found.items():
        if not _NAME.fullmatch(name) or name == "data":
            raise DecodeError("extension", f"{name[:40]!r}: names are lower-case ASCII letters and digits")
        if not isinstance(value, str | int | None):
            raise DecodeError("extension", f"{name[:40]!r} is neither text nor integer nor boolean")
    return {name: found[name] for name in sorted(found) if found[name] is not None}


def misfit(error: msgspec.ValidationError) -> DecodeError:
    """What msgspec said about an envelope, with a reason to count."""
    return DecodeError("missing" if "missing required field" in str(error) else "type", str(error))
