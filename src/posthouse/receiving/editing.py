"""Editing: a new payload for a held event, checked against its contract."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from posthouse.contracts import Catalogue
from posthouse.contracts.boxes import with_placeholders
from posthouse.errors import ConfigurationError, ContractError, did_you_mean
from posthouse.events import Event
from posthouse.events.limits import UNREADABLE


def check_edit(service: str, catalogue: Catalogue, event: Event[bytes], data: bytes) -> None:
    """Raise ContractError unless the payload fits the event's type and leaves the event in its line."""
    event_type = catalogue.get(event.type)
    if event_type is None:
        known = did_you_mean(event.type, (known.name for known in catalogue))
        raise ContractError(f"{service} knows no event {event.type!r}.{known}")
    key = event_type.key_of(event_type.payload.decode(with_placeholders(data)))
    if key != event.key:
        raise ContractError(f"{event_type.key} orders this event and cannot change: it is {event.key!r}, not {key!r}")


def with_fields(catalogue: Catalogue, event: Event[bytes], fields: Mapping[str, object]) -> bytes:
    """The payload with some fields changed, dots reaching inside. Raises ConfigurationError for one that it does not have."""
    try:
        document = msgspec.json.decode(event.data)
    except UNREADABLE as error:
        raise ConfigurationError(
            f"the payload is not JSON, so it has no fields: give the whole payload ({error})"
        ) from error
    event_type = catalogue.get(event.type)
    declared = set() if event_type is None else set(event_type.payload.fields)
    known = declared | (set(document) if isinstance(document, dict) else set())
    for path, value in fields.items():
        first = path.partition(".")[0]
        if first not in known:
            raise ConfigurationError(f"{event.type} has no field {first!r}.{did_you_mean(first, known)}")
        _assign(document, path, value)
    return msgspec.json.encode(document)


def _assign(document: object, path: str, value: object) -> None:
    *parents, name = path.split(".")
    node = document
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise ConfigurationError(f"{path!r} leads to no field: {'.'.join(parents) or 'the payload'} is not an object")
    node[name] = value
