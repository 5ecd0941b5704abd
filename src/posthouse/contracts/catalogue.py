"""What may be said: the event types that a service declares or reads."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Generic, Literal, TypeVar

import msgspec

from posthouse.contracts.payload import PayloadType
from posthouse.contracts.payloads import as_payload_class, payload_of
from posthouse.contracts.terms import Terms
from posthouse.errors import ConfigurationError, ContractError, RuleBroken, did_you_mean
from posthouse.events.envelope import Metadata
from posthouse.events.subject import Subject

T = TypeVar("T")

Topics = Literal["aggregate", "subject"]
"""One topic per aggregate keeps all facts of one thing in order; one per subject gives each type a topic of its own."""

_MARK = "__posthouse_event__"


@dataclasses.dataclass(frozen=True)
class EventType(Generic[T]):
    """A subject with the type of its payload. `key` names the payload field that orders it; None means no order.
    `schema` is the URI that travels in the envelope; it ends in the hash of the schema."""

    subject: Subject
    payload: PayloadType[T]
    topic: str
    key: str | None
    terms: Terms
    schema: str
    description: str = ""
    external: bool = False
    """Declared by a reader, as it reads the fact of another service."""
    internal: bool = False
    """What the library says to itself: it is in no catalogue."""
    provenance: str | None = None
    """The payload field that says which model made the fact; None: no model did."""

    @cached_property
    def name(self) -> str:
        """The full subject, as it stands in the envelope."""
        return str(self.subject)

    @cached_property
    def metadata(self) -> Metadata:
        """What travels beside each fact of this type."""
        return Metadata(retention=self.terms.retention, residency=self.terms.residency)

    def metadata_of(self, value: T) -> Metadata:
        """What travels beside one fact."""
        if self.provenance is None:
            return self.metadata
        found = msgspec.to_builtins(getattr(value, self.provenance))
        if not isinstance(found, dict) or not found:
            raise RuleBroken(
                "provenance",
                f"{self.name}: {self.provenance!r} must say which model made it, as an object with fields, not {found!r}",
            )
        return msgspec.structs.replace(self.metadata, ai_provenance=found)

    def key_of(self, value: T) -> str | None:
        """The ordering key of one payload."""
        if self.key is None:
            return None
        found = getattr(value, self.key)
        if not isinstance(found, (str, int)) or found == "":
            raise ContractError(f"{self.name}: the key field {self.key!r} must be a text or a number, not {found!r}")
        return str(found)


def declare(
    cls: type[T],
    subject: Subject,
    *,
    key: str | None,
    topics: Topics,
    terms: Terms | None = None,
    internal: bool = False,
    provenance: str | None = None,
) -> EventType[T]:
    """Make `cls` the payload of `subject`; without terms it is the fact of another service. The class remembers it, so that
    other services can subscribe to the class."""
    description = _docstring(cls)
    made = as_payload_class(cls)
    payload = payload_of(made)
    fields = [*payload.fields, *getattr(made, "__annotations__", {})]
    for base in made.__mro__[1:]:
        fields += getattr(base, "__annotations__", {})
    if key is not None and key not in fields:
        raise ConfigurationError(f"{cls.__name__} has no field {key!r} to order by.{did_you_mean(key, fields)}")
    if provenance is not None and provenance not in fields:
        raise ConfigurationError(
            f"{cls.__name__} has no field {provenance!r} to say its provenance.{did_you_mean(provenance, fields)}"
        )
    event_type = EventType(
        subject=subject,
        payload=payload,
        topic=subject.topic_by_aggregate if topics == "aggregate" else subject.topic_by_subject,
        key=key,
        terms=Terms() if terms is None else terms.checked(str(subject)),
        schema=f"{schema_place(subject)}#{payload.schema.hash}",
        description=description,
        external=terms is None,
        internal=internal,
        provenance=provenance,
    )
    setattr(made, _MARK, event_type)
    return event_type


def schema_place(subject: Subject) -> str:
    """Where the schema of a subject lives: `schemas://orders/order/placed/v1`."""
    place = [subject.service, *([subject.aggregate] if subject.aggregate else []), subject.verb]
    return f"schemas://{'/'.join(place)}/v{subject.version}"


def event_type_of(cls: type[T]) -> EventType[T]:
    """The event type that a class was declared for."""
    found = cls.__dict__.get(_MARK)
    if not isinstance(found, EventType):
        raise ConfigurationError(f"{cls.__name__} is not an event: declare it with @service.event or @service.external")
    return found


def is_event(value: object) -> bool:
    """Whether a value is the payload of some event type."""
    return is_event_class(type(value))


def is_event_class(cls: type) -> bool:
    """Whether a class was declared as the payload of some event type."""
    return isinstance(cls.__dict__.get(_MARK), EventType)


class Catalogue:
    """Every event type of one service, by subject."""

    def __init__(self) -> None:
        self._types: dict[str, EventType[object]] = {}

    def add(self, event_type: EventType[T]) -> None:
        """Refuses a subject that is taken by another class."""
        known = self._types.get(event_type.name)
        if known is not None and known.payload.cls is not event_type.payload.cls:
            raise ConfigurationError(
                f"{event_type.name} is declared twice: {known.payload.cls} and {event_type.payload.cls}"
            )
        self._types[event_type.name] = event_type  # type: ignore[assignment]

    def get(self, name: str) -> EventType[object] | None:
        """The type of a subject, if it is known here."""
        return self._types.get(name)

    def __iter__(self) -> Iterator[EventType[object]]:
        return iter(self._types.values())


def _docstring(cls: type) -> str:
    """What the author wrote about the class; a dataclass without a docstring shows its own signature there."""
    text = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    return "" if text.startswith(f"{cls.__name__}(") else text
