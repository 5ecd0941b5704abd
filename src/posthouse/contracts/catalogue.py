"""What may be said: the event types that a service declares or reads."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Generic, Literal, TypeVar

import msgspec

from posthouse.contracts.payload import PayloadType
from posthouse.contracts.payloads import as_payload_class, payload_of
from posthouse.contracts.personal import shield
from posthouse.contracts.terms import Terms
from posthouse.contracts.whose import whose_problems
from posthouse.errors import ConfigurationError, ContractError, RuleBroken, did_you_mean
from posthouse.events.envelope import Metadata
from posthouse.events.limits import plain
from posthouse.events.subject import Subject

T = TypeVar("T")

Topics = Literal["aggregate", "subject"]
"""One topic per aggregate keeps all facts of one thing in order; one per subject gives each type a topic of its own."""

_MARK = "__posthouse_event__"
_EVENT = re.compile(r"Event\[(?:\w+\.)*(\w+)")


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
    """The payload field that says which model made the fact; empty where its reader leaves that to the envelope; None: no
    model did."""
    about: str = ""
    """The payload field, dots reaching inside, that says whom its personal fields are about; empty where their marks say so."""

    @cached_property
    def name(self) -> str:
        """The full subject, as it stands in the envelope."""
        return str(self.subject)

    @cached_property
    def scope(self) -> str:
        """How the idempotency keys of its facts begin: `service:aggregate:verb`, with `-` where there is no aggregate. All
        versions of one fact share it."""
        subject = self.subject
        return f"{subject.service}:{subject.aggregate or '-'}:{subject.verb}"

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
        if isinstance(found, str) and found:
            return plain(found)
        if not isinstance(found, int) or isinstance(found, bool):
            raise ContractError(
                f"{self.name}: the key field {self.key!r} must be a text or a whole number, not {found!r}"
            )
        return str(int(found))


def declare(
    cls: type[T],
    subject: Subject,
    *,
    key: str | None,
    topics: Topics,
    terms: Terms | None = None,
    internal: bool = False,
    provenance: str | None = None,
    about: str = "",
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
    if provenance and provenance not in fields:
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
        about=about,
    )
    if problems := whose_problems(made, about):
        raise ConfigurationError(*(f"{made.__name__}: {problem}" for problem in problems))
    setattr(made, _MARK, event_type)
    shield(made)
    return event_type


def schema_place(subject: Subject) -> str:
    """Where the schema of a subject lives: `schemas://orders/order/placed/v1`."""
    place = [subject.service, *([subject.aggregate] if subject.aggregate else []), subject.verb]
    return f"schemas://{'/'.join(place)}/v{subject.version}"


def event_type_of(cls: type[T]) -> EventType[T]:
    """The event type that a class was declared for. ConfigurationError, with what was perhaps meant, for anything else."""
    found = getattr(cls, "__dict__", {}).get(_MARK)
    if not isinstance(found, EventType):
        raise ConfigurationError(no_event(cls))
    return found


def event_type_for(payload: T) -> EventType[T]:
    """The event type of a payload. ConfigurationError, with what was perhaps meant, for what is none."""
    found = type(payload).__dict__.get(_MARK)
    if not isinstance(found, EventType):
        raise ConfigurationError(no_payload(payload))
    return found


def no_event(given: object) -> str:
    """Why something is not the class of an event, and what to give instead."""
    if isinstance(given, str):
        return f"{given!r} is a text: give the class of the event, not its name"
    if is_event(given):
        name = type(given).__name__
        return f"{name}(…) is one event: give its class, {name}"
    if isinstance(given, list | tuple | set):
        names = ", ".join(getattr(one, "__name__", "…") for one in given)
        return f"a {type(given).__name__} is not the class of an event: give the classes one by one, ({names})"
    if not isinstance(given, type):
        return f"{_called(given)} is not the class of an event"
    bases = [base.__name__ for base in given.__mro__[1:] if is_event_class(base)]
    if bases:
        return (
            f"{given.__name__} is not an event, {bases[0]} is: declare it too, with @service.event, or give {bases[0]}"
        )
    return f"{given.__name__} is not an event: declare it with @service.event or @service.external"


def no_payload(given: object) -> str:
    """Why something cannot be published, and what to publish instead."""
    if isinstance(given, type) and is_event_class(given):
        return f"{given.__name__} is a class: publish a fact, {given.__name__}(…)"
    if isinstance(given, type):
        return no_event(given)
    if isinstance(given, str | bytes | Mapping | list | tuple | set):
        kind = "text" if isinstance(given, str) else type(given).__name__
        return f"a {kind} is not an event: declare a class with @service.event, and publish one of it"
    if given is None:
        return "None is not an event: publish one, as in tx.publish(OrderPlaced(…))"
    if inspect.iscoroutine(given):
        given.close()
        return f"{given.__name__}(…) was not awaited: publish what it returns, not the call"
    return no_event(type(given))


def events_of(call: str, given: Sequence[object]) -> list[EventType[object]]:
    """The event types of classes; `call` is how they were given, as in `orders.on`. ConfigurationError for anything else."""
    if len(given) == 1 and inspect.isroutine(given[0]):
        function = given[0]
        raise ConfigurationError(
            f"@{call} needs to know its event: write @{call}({_event_of(function)}) above {function.__name__}"
        )
    if not given:
        raise ConfigurationError(f"{call}() names no event: write {call}(OrderPlaced), or several of them")
    found = [(one, getattr(one, "__dict__", {}).get(_MARK)) for one in given]
    if problems := [f"{call}: {no_event(one)}" for one, known in found if not isinstance(known, EventType)]:
        raise ConfigurationError(*problems)
    return [known for _, known in found if known is not None]


def _event_of(function: object) -> str:
    """What a function is annotated with, for a suggestion."""
    annotations = map(str, getattr(function, "__annotations__", {}).values())
    return next((found[1] for text in annotations if (found := _EVENT.search(text))), "OrderPlaced")


def _called(given: object) -> str:
    return f"the function {given.__name__}" if inspect.isroutine(given) else f"{given!r:.60}"


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
