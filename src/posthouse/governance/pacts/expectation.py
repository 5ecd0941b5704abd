"""Expectation: what one handler needs of one event, as a schema and as a message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from posthouse.contracts.catalogue import EventType
from posthouse.contracts.normal import canonical
from posthouse.governance.document import Document, Reading


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """`schema` is the JSON Schema that the consumer reads by, with nothing in it that it does not read. `contents` are
    values that it expects to the letter, as a message that need not be whole; UNSET where there are none."""

    consumer: str
    handler: str
    provider: str
    subject: str
    schema: str
    contents: object = msgspec.UNSET

    @property
    def who(self) -> str:
        return f"{self.handler} ({self.consumer})"


def expectations_of(document: Document, known: Mapping[str, EventType[object]]) -> Iterator[Expectation]:
    """What the handlers of some services need, where the payload is JSON. `known` are the event types that they read by."""
    for handler in document.handlers:
        for reading in handler.reads:
            event_type = known.get(reading.subject)
            if event_type is not None and event_type.payload.schema.format == "json":
                yield Expectation(
                    consumer=handler.consumer,
                    handler=handler.name,
                    provider=event_type.subject.service,
                    subject=reading.subject,
                    schema=_read_only(event_type.payload.schema.text, reading),
                )


def _read_only(text: str, reading: Reading) -> str:
    """The schema without the fields that are not read."""
    document = json.loads(text)
    if reading.fields is None or not isinstance(document, dict) or not isinstance(document.get("properties"), dict):
        return text
    return canonical(projected(document, [field.partition(".")[0] for field in reading.fields]))


def projected(document: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    """An object's schema with some of its properties."""
    properties, required = document.get("properties", {}), document.get("required", [])
    left = {name: part for name, part in properties.items() if name in names} if isinstance(properties, dict) else {}
    needed = [name for name in required if name in left] if isinstance(required, list) else []
    others = {name: part for name, part in document.items() if name not in ("properties", "required")}
    return {**others, "properties": left, **({"required": needed} if needed else {})}
