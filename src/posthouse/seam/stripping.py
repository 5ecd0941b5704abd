"""Stripping: personal data leaves an event before a read model of all tenants sees it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from posthouse.contracts import EventType
from posthouse.contracts.personal import personal_fields
from posthouse.errors import did_you_mean
from posthouse.events import Event

ANY = "*"
"""Any item of a list, or any value of a mapping, in a path."""


class Stripper:
    """Takes fields out of payloads: each path (dots reach inside, `*` is any item) becomes None. The actor goes too, who is
    a person. Everything marked as personal data goes that is not kept on purpose."""

    def __init__(self, strips: Collection[str], keeps: Collection[str]) -> None:
        self._strips = tuple(strips)
        self._keeps = frozenset(keeps)
        self._paths: dict[type, tuple[tuple[str, ...], ...]] = {}

    def stripped(self, event: Event[object]) -> Event[object]:
        """The event as the model may see it."""
        data = event.data
        for path in self._paths_of(type(data)):
            data = _without(data, path)
        return msgspec.structs.replace(event, data=data, actor=None)

    def _paths_of(self, cls: type) -> tuple[tuple[str, ...], ...]:
        found = self._paths.get(cls)
        if found is None:
            marked = [path for path in personal_fields(cls) if not is_named(path, self._keeps)]
            found = self._paths[cls] = tuple(tuple(path.split(".")) for path in sorted({*marked, *self._strips}))
        return found


def undecided(event_types: Collection[EventType[object]], strips: Collection[str], keeps: Collection[str]) -> list[str]:
    """A sentence for each field that is marked as personal data and neither stripped nor kept."""
    return [
        f"{known.name}: {path!r} is personal data, and a model of all tenants would see it: name it in strips=, or in "
        "keeps= if it may stay"
        for known in event_types
        for path in sorted(personal_fields(known.payload.cls))
        if not is_named(path, strips) and not is_named(path, keeps)
    ]


def unknown(event_types: Collection[EventType[object]], strips: Collection[str], keeps: Collection[str]) -> list[str]:
    """A sentence for each name in strips and keeps that no event has."""
    fields = {field for known in event_types for field in known.payload.fields}
    return [
        f"{word} names {path!r}, which is no field of the events that it reads.{did_you_mean(_first(path), fields)}"
        for word, paths in (("strips", strips), ("keeps", keeps))
        for path in paths
        if _first(path) not in fields
    ]


def is_named(path: str, names: Collection[str]) -> bool:
    """Whether a path, or something around it, is among the names."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _first(path: str) -> str:
    return path.partition(".")[0]


def _without(value: object, path: Sequence[str]) -> object:
    """The value with the field at the end of the path None, wherever the path leads to."""
    if not path:
        return None
    if isinstance(value, list | tuple | set | frozenset):
        inner = path[1:] if path[0] == ANY else path
        return type(value)(_without(item, inner) for item in value)
    if isinstance(value, Mapping):
        return {name: _without(item, path[1:]) if path[0] in (ANY, name) else item for name, item in value.items()}
    name = _attribute(value, path[0])
    if name is None:
        return value
    return _with(value, name, _without(getattr(value, name), path[1:]))


def _attribute(value: object, travelling: str) -> str | None:
    """The attribute that travels under a name; None when the value has none."""
    if isinstance(value, msgspec.Struct):
        fields = {field.encode_name: field.name for field in msgspec.structs.fields(value)}
        return fields.get(travelling)
    models: Mapping[str, Any] = getattr(type(value), "model_fields", {})
    for name, field in models.items():
        if travelling in (field.serialization_alias, field.alias, name):
            return name
    return travelling if not models and hasattr(value, travelling) else None


def _with(value: object, name: str, inner: object) -> object:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: inner})
    if hasattr(value, "model_copy"):
        return cast("Any", value).model_copy(update={name: inner})
    made = copy.copy(value)
    if hasattr(made, "ClearField") and inner is None:  # a message of Protobuf has no None
        cast("Any", made).ClearField(name)
    elif dataclasses.is_dataclass(made):
        object.__setattr__(made, name, inner)  # also where it is frozen: the copy is nobody's yet
    else:
        setattr(made, name, inner)
    return made
