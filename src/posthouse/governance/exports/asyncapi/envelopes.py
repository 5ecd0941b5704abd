"""Envelopes: what is around a payload on the wire, as JSON Schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from posthouse.events import CODECS
from posthouse.governance.document import EventEntry
from posthouse.governance.exports.types import source_of

Schema = dict[str, object]

_TEXT: Schema = {"type": "string"}
_FIRST = ("specversion", "id", "source", "type", "time", "datacontenttype", "dataschema")
_ORDERED = ("subject", "partitionkey", "sequence")


@runtime_checkable
class Described(Protocol):
    """A codec that is no CloudEvents format, and says how its envelope looks."""

    @property
    def correlation(self) -> str:
        """The member of the body that holds the correlation id."""
        ...

    def schema(self, type: str, schema_uri: str, payload: Schema) -> Schema:
        """The body of events of this type, with the schema of its payload inside."""
        ...


def content_type_of(entry: EventEntry) -> str:
    """Of the body: that of the envelope, or of the payload where it travels alone."""
    return CODECS[entry.envelope].content_type or entry.content_type


def headers_of(entry: EventEntry) -> Schema:
    """With `binary` the attributes are here; otherwise they are in the body."""
    content_type: Schema = {"type": "string", "const": content_type_of(entry)}
    if entry.envelope != "binary":
        return _object({"content-type": content_type}, ["content-type"])
    attributes = {
        f"ce-{name}": _as_text(schema) for name, schema in _attributes(entry).items() if name != "datacontenttype"
    }
    required = [f"ce-{name}" for name in _required(entry) if name != "datacontenttype"]
    return _object({"content-type": content_type, **attributes}, ["content-type", *required])


def body_of(entry: EventEntry, payload: Schema) -> Schema:
    """The envelope with the schema of its payload inside."""
    codec = CODECS[entry.envelope]
    if isinstance(codec, Described):
        return codec.schema(entry.subject, entry.schema_uri, payload)
    name = "data" if entry.format == "json" else "data_base64"
    return _object({**_attributes(entry), name: payload}, [*_required(entry), name])


def correlation_of(entry: EventEntry) -> str:
    """Where the correlation id is."""
    if entry.envelope == "binary":
        return "$message.header#/ce-correlationid"
    codec = CODECS[entry.envelope]
    return f"$message.payload#/{codec.correlation if isinstance(codec, Described) else 'correlationid'}"


def _required(entry: EventEntry) -> list[str]:
    return [*_FIRST, *(_ORDERED if entry.key else ())]


def _attributes(entry: EventEntry) -> dict[str, Schema]:
    """CloudEvents 1.0 with the extensions that Posthouse writes."""
    ordering: dict[str, Schema] = {
        "subject": _said(f"The value of {entry.key}."),
        "partitionkey": _said("The ordering key: tenant, colon, subject."),
        "sequence": {"type": "string", "pattern": "^[0-9]{20}$", "description": "The number of the fact in its key."},
        "lineage": {"type": "integer", "description": "Grows when numbers begin anew after a restore; 1 if absent."},
    }
    return {
        "specversion": {"type": "string", "const": "1.0"},
        "id": _TEXT,
        "source": {"type": "string", "const": source_of(entry)},
        "type": {"type": "string", "const": entry.subject},
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": {"type": "string", "const": entry.content_type},
        "dataschema": {"type": "string", "examples": [entry.schema_uri]},
        "tenantid": _said("The tenant; absent for facts of the platform."),
        **(ordering if entry.key else {}),
        **dict.fromkeys(("correlationid", "causationid", "idempotencykey", "actorkind", "actorid"), _TEXT),
        **{f"producer{name}": _TEXT for name in ("service", "instance", "commit", "region")},
        "retentionclass": {"type": "string", "enum": ["hot", "warm", "cold"], "description": "hot if absent."},
        "dataresidency": _said("The region that the data must not leave."),
        "offlinereplay": {"type": "boolean"},
        **dict.fromkeys(("aiprovenance", "outboxid", "traceparent", "tracestate"), _TEXT),
    }


def _object(properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    made: Schema = {"type": "object", "properties": dict(properties)}
    return {**made, "required": list(required)} if required else made


def _said(description: str) -> Schema:
    return {"type": "string", "description": description}


def _as_text(schema: Schema) -> Schema:
    """Headers are text."""
    return schema if schema["type"] == "string" else {**schema, "type": "string"}
