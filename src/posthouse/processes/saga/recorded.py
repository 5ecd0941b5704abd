"""Recorded: what came into a turn and what went out of it, as the history keeps them, and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime

import msgspec

from posthouse.contracts import EventType
from posthouse.errors import ConfigurationError
from posthouse.events import Event, timestamp
from posthouse.processes.saga.declared import SagaType
from posthouse.seam import Seam
from posthouse.seam.outward import event_in
from posthouse.store import OutboxRow
from posthouse.store.sagas import Done, SagaInput, Said


def input_of(event_type: EventType[object], event: Event[object]) -> SagaInput:
    """An event that came."""
    return SagaInput(
        kind="event",
        type=event_type.name,
        event_id=event.id,
        data=_raw(event_type.payload.encode(event.data), event_type.payload.content_type),
        source=event.source,
        time=event.time,
        key=event.key,
        correlation=event.correlation,
        causation=event.causation,
    )


def event_of(of: SagaType, given: SagaInput, tenant: str, at: float) -> Event[object]:
    """The event that came, read with the class as it is now. Raises ConfigurationError when the saga does not take it any
    more, ContractError when it does not fit."""
    event_type = of.event_types.get(given.type)
    if event_type is None:
        raise ConfigurationError(f"{of.cls.__name__} takes no {given.type} any more")
    payload = event_type.payload.decode(_bytes(event_type, given.data))
    return Event(
        id=given.event_id,
        type=given.type,
        source=given.source or f"/{event_type.subject.service}",
        data=payload,
        time=given.time or timestamp(at),
        tenant=tenant,
        key=given.key if given.key is not None else event_type.key_of(payload),
        correlation=given.correlation,
        causation=given.causation,
    )


def said_in(row: OutboxRow, wait: float | datetime, undoes: Mapping[str, Done], seam: Seam) -> Said:
    """An event that was published, `after` so many seconds; by its id, what it was to undo."""
    event = event_in(row)
    if seam.conceal is not None:
        event = seam.conceal(event)
    after, at = (0.0, wait) if isinstance(wait, datetime) else (wait, None)
    data = _raw(event.data, event.content_type)
    return Said(type=event.type, event_id=event.id, data=data, after=after, at=at, undoes=undoes.get(event.id))


def _is_json(content_type: str | None) -> bool:
    return (content_type or "application/json").partition(";")[0].endswith("json")


def _raw(data: bytes, content_type: str | None) -> msgspec.Raw:
    """JSON as it is, anything else as base64 text."""
    return msgspec.Raw(
        data or b"null" if _is_json(content_type) else msgspec.json.encode(base64.b64encode(data).decode())
    )


def _bytes(event_type: EventType[object], data: msgspec.Raw) -> bytes:
    if _is_json(event_type.payload.content_type):
        return bytes(data)
    return base64.b64decode(msgspec.json.decode(bytes(data), type=str))
