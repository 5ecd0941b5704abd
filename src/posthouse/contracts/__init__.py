"""What may be said: event types, their payloads and their schemas."""

from posthouse.contracts.avro import avro
from posthouse.contracts.catalogue import (
    Catalogue,
    EventType,
    Topics,
    declare,
    event_type_for,
    event_type_of,
    events_of,
    is_event,
    is_event_class,
    schema_place,
)
from posthouse.contracts.flow import Flow, flow_of
from posthouse.contracts.payload import Payload, PayloadType
from posthouse.contracts.payloads import payload_of
from posthouse.contracts.schema import Schema, json_schema, schema_hash
from posthouse.contracts.terms import Idempotency, Retention, SchemaFormat, Terms

__all__ = [
    "Catalogue",
    "EventType",
    "Flow",
    "Idempotency",
    "Payload",
    "PayloadType",
    "Retention",
    "Schema",
    "SchemaFormat",
    "Terms",
    "Topics",
    "avro",
    "declare",
    "event_type_for",
    "event_type_of",
    "events_of",
    "flow_of",
    "is_event",
    "is_event_class",
    "json_schema",
    "payload_of",
    "schema_hash",
    "schema_place",
]
