"""Personal: a mark on the fields of a payload that say something about a person. What is marked is not shown: not by the `repr` of
a payload, not in log lines."""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterator
from functools import lru_cache

import msgspec

from posthouse.redaction import HIDDEN


class Personal(msgspec.Struct, frozen=True):
    """`email: Annotated[str, Personal("contact")]`. `kind` is the class of data, in the words of your privacy officer:
    contact, identity, health, … Schema and bytes are as without it; `repr` and `str` of the payload hide the field. `of` names the
    field beside it that says whose it is, where that is not what `event(…, about=…)` says."""

    kind: str
    of: str = ""


class Place(msgspec.Struct, frozen=True):
    """A marked field: where it travels, dots reaching inside and `*` being any item; its mark; its annotation; and its class."""

    path: str
    mark: Personal
    hint: object
    cls: type


def personal_fields(cls: type) -> frozenset[str]:
    """The marked fields of a payload class as they travel, dots reaching inside, `*` being any item."""
    return _known(cls)[0]


def marked_attributes(cls: type) -> frozenset[str]:
    """The fields of this very class that are marked, as code calls them."""
    return _known(cls)[1]


def personal_places(cls: type) -> tuple[Place, ...]:
    """All marked fields of a payload class, those that hold others before these."""
    return tuple(_marked(cls, "", ()))


def all_places(cls: type) -> frozenset[str]:
    """Where all fields of a payload class travel, marked or not, named as `personal_fields` names them."""
    return frozenset(_every(cls, "", ()))


def classes_inside(cls: type) -> Iterator[type]:
    """The class itself and all classes with fields inside of it."""
    yield from _with_inner(cls, ())


def travelling_name(cls: type, name: str) -> str | None:
    """The name under which a field of a class travels; None when it has no such field."""
    return _travelling_names(cls).get(name, name) if name in _hints(cls) else None


def fields_under(cls: type) -> dict[str, type | None]:
    """The fields of a class as they travel, each with the one class of its value, if there is one alone."""
    found: dict[str, type | None] = {}
    for name, hint in _hints(cls).items():
        inner = [one for one, many in _classes(hint, False) if not many]
        found[_travelling_names(cls).get(name, name)] = inner[0] if len(inner) == 1 else None
    return found


def classes_of_fields(cls: type) -> Iterator[type]:
    """The classes with fields that the fields of a class hold."""
    for hint in _hints(cls).values():
        yield from (inner for inner, _ in _classes(hint, False))


def hints_of_fields(cls: type) -> dict[str, object]:
    """The annotations of a class with fields."""
    return _hints(cls)


@lru_cache(4096)
def _known(cls: typing.Any) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Asked for with every line of a log: marked fields, those of this very class, names of all fields inside of it."""
    own = (name for name, hint in _hints(cls).items() if _is_marked(hint))
    names = (name for one in _with_inner(cls, ()) for name in (*_hints(one), *_travelling_names(one).values()))
    return frozenset(place.path for place in personal_places(cls)), frozenset(own), frozenset(names)


def shield(cls: type) -> None:
    """Let `repr` and `str` of a payload class, and of those inside of it, hide what is marked."""
    for one in _with_inner(cls, ()):
        if not marked_attributes(one):
            continue
        if hasattr(one, "__repr_args__"):  # pydantic makes all its texts of these
            one.__repr_args__ = _hidden_args(one.__repr_args__)
        else:
            one.__repr__ = one.__str__ = _masked  # type: ignore[assignment]
            if hasattr(one, "__rich_repr__"):
                one.__rich_repr__ = _shown_fields


def personal_values(cls: type, plain: object) -> list[object]:
    """What the marked fields of a payload say: `plain` is the payload with dictionaries for its classes."""
    names = _known(cls)[2]
    return [value for path in personal_fields(cls) for value in _leaves(plain, path.split("."), names)]


def _leaves(value: object, path: list[str], names: frozenset[str]) -> Iterator[object]:
    """Values in a place of a payload, and all that is inside of it; keys too, which are no names of fields."""
    if isinstance(value, dict):
        inner = value.values() if not path or path[0] == "*" else [value[path[0]]] if path[0] in value else ()
        for one in inner:
            yield from _leaves(one, path[1:], names)
        if not path:
            yield from (key for key in value if key not in names)
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _leaves(one, path[1:] if path[:1] == ["*"] else path, names)
    elif not path and value is not None and not isinstance(value, bool):
        yield value


def _shown_fields(self: object) -> Iterator[tuple[str, object]]:
    hidden = marked_attributes(type(self))
    for name in _hints(type(self)):
        if hasattr(self, name):
            yield name, HIDDEN if name in hidden else getattr(self, name)


def _masked(self: object) -> str:
    hidden = marked_attributes(type(self))
    fields = (f"{name}={HIDDEN if name in hidden else repr(value)}" for name, value in _shown_fields(self))
    return f"{type(self).__name__}({', '.join(fields)})"


def _hidden_args(shown: typing.Any) -> typing.Any:
    def args(self: object) -> Iterator[tuple[str | None, object]]:
        hidden = marked_attributes(type(self))
        for name, value in shown(self):
            yield name, HIDDEN if name in hidden else value

    return args


def _with_inner(cls: type, inside: tuple[type, ...]) -> Iterator[type]:
    yield cls
    for hint in _hints(cls).values():
        for inner, _ in _classes(hint, False):
            if inner not in (*inside, cls):
                yield from _with_inner(inner, (*inside, cls))


def _marked(cls: type, path: str, inside: tuple[type, ...]) -> Iterator[Place]:
    names = _travelling_names(cls)
    for name, hint in _hints(cls).items():
        place = f"{path}{names.get(name, name)}"
        if (mark := _mark_of(hint)) is not None:
            yield Place(place, mark, hint, cls)
        for inner, many in _classes(hint, False):
            if inner not in inside:
                yield from _marked(inner, f"{place}.{'*.' if many else ''}", (*inside, inner))


def _every(cls: type, path: str, inside: tuple[type, ...]) -> Iterator[str]:
    names = _travelling_names(cls)
    for name, hint in _hints(cls).items():
        place = f"{path}{names.get(name, name)}"
        yield place
        for inner, many in _classes(hint, False):
            if inner not in inside:
                yield from _every(inner, f"{place}.{'*.' if many else ''}", (*inside, inner))


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
    return _mark_of(hint) is not None


def _mark_of(hint: object) -> Personal | None:
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, Personal):
            return mark
    return next((found for inner in _inside(hint) if (found := _mark_of(inner)) is not None), None)


def _inside(hint: object) -> tuple[object, ...]:
    """What a hint is made of; of an alias what it stands for."""
    named = getattr(hint, "__value__", None) or getattr(hint, "__supertype__", None)
    return typing.get_args(hint) if named is None else (named,)


def _classes(hint: object, many: bool) -> Iterator[tuple[type, bool]]:
    """The classes with fields inside a hint, and whether there may be many of each."""
    arguments = _inside(hint)
    if isinstance(hint, type) and not arguments and getattr(hint, "__annotations__", None):
        yield hint, many
    origin = typing.get_origin(hint)
    holds_many = isinstance(origin, type) and issubclass(origin, Collection)
    for argument in arguments:
        yield from _classes(argument, many or holds_many)
