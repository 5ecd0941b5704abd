"""Watching: values that tell which of their fields are looked at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

_WHOLE = frozenset(("__dict__", "model_dump", "model_dump_json", "model_copy"))
"""Attributes that give away every field at once."""

Note = Callable[[str], None]


class Watcher:
    """Makes values that call `note` with the path of each field that is looked at: `guest.name`, by the names that travel."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._classes: dict[tuple[type, str], type] = {}

    def watch(self, value: object, prefix: str = "") -> object:
        """The same value as an instance of a class below its own; what has no fields is returned as it is."""
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(self.watch(item, prefix) for item in value)
        fields = _fields(type(value))
        if not fields:
            return value
        known = self._classes.get((type(value), prefix))
        if known is None:
            known = self._classes[type(value), prefix] = self._below(type(value), fields, prefix)
        return _rebuilt(value, known, fields)

    def _below(self, cls: type, fields: Mapping[str, str], prefix: str) -> type:
        watcher = self
        inherited = cast("Callable[[object, str], object]", cls.__getattribute__)

        def look(self: object, name: str) -> object:
            found = inherited(self, name)
            if name in fields:
                path = f"{prefix}{fields[name]}"
                watcher._note(path)
                return watcher.watch(found, f"{path}.")
            if name in _WHOLE:
                for travels in fields.values():
                    watcher._note(f"{prefix}{travels}")
            return found

        marks = {name: mark for name, mark in vars(cls).items() if name.startswith("__posthouse_")}
        body = {"__getattribute__": look, "__module__": cls.__module__, "__qualname__": cls.__qualname__, **marks}
        return type(cls)(cls.__name__, (cls,), body)


def _fields(cls: type) -> Mapping[str, str]:
    """The names by which fields travel, by those of the attributes; empty for a class of another kind."""
    if issubclass(cls, msgspec.Struct):
        return {field.name: field.encode_name for field in msgspec.structs.fields(cls)}
    if dataclasses.is_dataclass(cls):
        return {field.name: field.name for field in dataclasses.fields(cls)}
    models = getattr(cls, "model_fields", None)
    if isinstance(models, Mapping):
        return {name: field.serialization_alias or field.alias or name for name, field in models.items()}
    return {}


def _rebuilt(value: object, cls: Any, fields: Mapping[str, str]) -> object:
    """The same fields in an instance of the other class."""
    contents = {name: getattr(value, name) for name in fields}
    if isinstance(value, msgspec.Struct):
        return cls(**contents)
    if dataclasses.is_dataclass(value):
        made = object.__new__(cls)
        for name, part in contents.items():
            object.__setattr__(made, name, part)
        return made
    return cls.model_construct(**contents)
