"""What may be said: event types, their payloads and their schemas."""

from posthouse.contracts.catalogue import Catalogue, EventType, Retention, Topics, declare, event_type_of, is_event
from posthouse.contracts.payload import Payload, PayloadType, payload_of, schema_hash

__all__ = [
    "Catalogue",
    "EventType",
    "Payload",
    "PayloadType",
    "Retention",
    "Topics",
    "declare",
    "event_type_of",
    "is_event",
    "payload_of",
    "schema_hash",
]
