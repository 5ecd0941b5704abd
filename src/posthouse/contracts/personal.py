"""Personal: a mark on the fields of a payload that say something about a person."""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterator

import msgspec


class Personal(msgspec.Struct, frozen=True):
    """`email: Annotated[str, Personal("contact")]`. `kind` is the class of data, in the words of your privacy officer:
    contact, identity, health, … Schema and bytes are as without it."""

    kind: str


def personal_fields(cls: type) -> frozenset[str]:
    """The marked fields of a payload class as they travel, dots reaching inside, `*` being any item."""
    return frozenset(_marked(cls, "", ()))


def _marked(cls: type, path: str, inside: tuple[type, ...]) -> Iterator[str]:
    names = _travelling_names(cls)
    for name, hint in _hints(cls).items():
        place = f"{path}{names.get(name, name)}"
        if _is_marked(hint):
            yield place
        for inner, many in _classes(hint, False):
            if inner not in inside:
                yield from _marked(inner, f"{place}.{'*.' if many else ''}", (*inside, inner))


def _hints(cls: type) -> dict[str, object]:
    """Resolved annotations; those of a class inside a function may not be found, and then as they are."""
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):
        return dict(getattr(cls, "__annotations__", {}))


def _travelling_names(cls: type) -> dict[str, str]:
    if issubclass(cls, msgspec.Struct):
        return {field.name: field.encode_name for field in msgspec.structs.fields(cls)}
    fields = getattr(cls, "model_fields", {})
    return {name: field.serialization_alias or field.alias or name for name, field in fields.items()}


def _is_marked(hint: object) -> bool:
    if any(isinstance(mark, Personal) for mark in getattr(hint, "__metadata__", ())):
        return True
    return any(_is_marked(inner) for inner in typing.get_args(hint))


def _classes(hint: object, many: bool) -> Iterator[tuple[type, bool]]:
    """The classes with fields inside a hint, and whether there may be many of each."""
    arguments = typing.get_args(hint)
    if isinstance(hint, type) and not arguments and getattr(hint, "__annotations__", None):
        yield hint, many
    origin = typing.get_origin(hint)
    holds_many = isinstance(origin, type) and issubclass(origin, Collection)
    for argument in arguments:
        yield from _classes(argument, many or holds_many)
