"""Uses: which fields a handler reads and which events it publishes, as far as its author said. For the catalogue alone."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence

import msgspec

from posthouse.contracts import EventType, event_type_of, is_event_class
from posthouse.errors import ConfigurationError, did_you_mean


class Uses(msgspec.Struct, frozen=True, kw_only=True):
    """`reads` is None when nobody said: any field may be read."""

    reads: tuple[str, ...] | None = None
    publishes: tuple[EventType[object], ...] = ()

    @classmethod
    def of(
        cls,
        read: Sequence[EventType[object]],
        fields: Sequence[str] | None,
        publishes: Sequence[type[object]],
        *,
        by: str,
    ) -> Uses:
        """What was declared, checked: fields that the events have, and events that the service `by` owns."""
        said = [event_type_of(event) for event in publishes]
        problems = [
            f"{event_type.name} belongs to the service {event_type.subject.service!r}: {by!r} cannot publish it"
            for event_type in said
            if event_type.subject.service != by
        ]
        if isinstance(fields, str):
            problems.append(f"reads is a list of field names, not the text {fields!r}: write reads=[{fields!r}]")
        elif fields is not None:
            problems += _unknown(read, fields)
        if problems:
            raise ConfigurationError(*problems)
        return cls(reads=None if fields is None else tuple(sorted(set(fields))), publishes=tuple(said))

    def reads_of(self, event_type: EventType[object]) -> tuple[str, ...] | None:
        """The fields that are read of one of the handler's events: those of its fields that were declared as read."""
        if self.reads is None:
            return None
        return tuple(field for field in self.reads if _first(field) in event_type.payload.fields)

    def with_result(self, annotation: object) -> Uses:
        """Together with the events that a return annotation names."""
        found: list[EventType[object]] = [event_type_of(cls) for cls in _classes(annotation) if is_event_class(cls)]
        new = {event_type.name: event_type for event_type in [*self.publishes, *found]}
        return msgspec.structs.replace(self, publishes=tuple(new.values()))


def _unknown(read: Sequence[EventType[object]], fields: Sequence[str]) -> list[str]:
    known = {field for event_type in read for field in event_type.payload.fields}
    names = ", ".join(event_type.name for event_type in read)
    return [
        f"reads names {field!r}, which is no field of {names}.{did_you_mean(_first(field), known)}"
        for field in fields
        if _first(field) not in known
    ]


def _first(field: str) -> str:
    return field.partition(".")[0]


def _classes(annotation: object) -> Iterator[type]:
    """Every class inside an annotation: `list[A | B] | None` names A and B."""
    arguments = typing.get_args(annotation)
    if isinstance(annotation, type) and not arguments:
        yield annotation
    for argument in arguments:
        yield from _classes(argument)
