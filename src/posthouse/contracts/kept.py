"""Whether a value comes through its encoding unchanged: said is what the producer holds, heard what readers will."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

import msgspec

from posthouse.contracts.personal import marked_attributes
from posthouse.redaction import HIDDEN

ABSENT = msgspec.UNSET
UNORDERED = (set, frozenset)
ITEMS = (list, tuple, *UNORDERED)
REMEDY = "say what the field declares, and let nothing compute, rename or leave out its value on the way"
WORDS = 120
"""Characters of a value that are shown."""


def changed(said: object, heard: object, same: bool) -> str | None:
    """What readers would hear otherwise than it was said, in words; None when they hear what was said. `same`: both are encoded
    alike. It does not matter whether items are a list, a tuple or a set, in which zone a moment is told, nor whether it is of a
    subclass that has no fields of its own. A class need not compare by value: its fields are looked at then."""
    return None if same and said == heard else _difference(said, heard, "$", same)


def _difference(said: object, heard: object, path: str, same: bool) -> str | None:
    """That they are encoded alike has to do for classes that nobody can look into."""
    pairs: Iterable[tuple[str, object, object]]
    if isinstance(said, Mapping) and isinstance(heard, Mapping):
        keys = dict.fromkeys((*said, *heard))
        pairs = ((f"{path}.{key}", said.get(key, ABSENT), heard.get(key, ABSENT)) for key in keys)
    elif isinstance(said, ITEMS) and isinstance(heard, ITEMS):
        if len(said) != len(heard):
            return _words(path, said, heard)
        if isinstance(heard, UNORDERED):
            left = [one for one in said if one not in heard]
            return next((_words(path, said, heard) for one in left if not _is_among(one, heard, path, same)), None)
        pairs = ((f"{path}[{place}]", *both) for place, both in enumerate(zip(said, heard, strict=True)))
    elif isinstance(said, type(heard)) and (names := _names(said)) and names.keys() == _names(heard).keys():
        for name in names:
            if found := _difference(_value(said, name), _value(heard, name), f"{path}.{name}", same):
                return _words(f"{path}.{name}", HIDDEN, HIDDEN) if name in marked_attributes(type(said)) else found
        return None
    else:
        opaque = same and type(said) is type(heard) and type(said).__eq__ is object.__eq__
        return None if opaque or _equal(said, heard) else _words(path, said, heard)
    return next((found for where, one, other in pairs if (found := _difference(one, other, where, same))), None)


def _is_among(one: object, heard: Iterable[object], path: str, same: bool) -> bool:
    return any(_difference(one, other, path, same) is None for other in heard)


def _names(value: object) -> Mapping[str, None]:
    """The fields of a value; none where its class has none that are known."""
    cls = type(value)
    if isinstance(value, msgspec.Struct):
        return dict.fromkeys(value.__struct_fields__)
    if dataclasses.is_dataclass(cls):
        return dict.fromkeys(field.name for field in dataclasses.fields(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return dict.fromkeys(field.name for field in cls.__attrs_attrs__)
    declared: Mapping[str, object] = getattr(cls, "__pydantic_fields__", {})
    extra: Mapping[str, object] = getattr(value, "__pydantic_extra__", None) or {}
    computed = getattr(cls, "model_computed_fields", ())  # a model that allows extra fields hears them as such
    return dict.fromkeys(name for name in (*declared, *extra) if name not in computed)


def _value(of: object, name: str) -> object:
    """Not by `getattr`: a class may note who looks at it."""
    try:
        return object.__getattribute__(of, name)
    except AttributeError:
        return (getattr(of, "__pydantic_extra__", None) or {}).get(name, ABSENT)


def _equal(said: object, heard: object) -> bool:
    if said is heard or said == heard:
        return True
    if isinstance(said, float | Decimal) and isinstance(heard, float | Decimal):
        return said != said and heard != heard  # no number, on both sides
    if isinstance(said, datetime) and isinstance(heard, datetime):
        return _moment(said) == _moment(heard)
    return False


def _moment(time: datetime) -> object:
    """In the hour that a zone has twice, and in the one that it leaves out, Python calls no two zones equal."""
    offset = time.utcoffset()
    return time if offset is None else time.replace(tzinfo=None) - datetime.min - offset


def _words(path: str, said: object, heard: object) -> str:
    if said is HIDDEN:
        return f"`{path}` is personal and not shown, and readers would hear something else: {REMEDY}"
    one, other = _shown(said), _shown(heard)
    if one == other:
        one, other = f"{one} ({type(said).__name__})", f"{other} ({type(heard).__name__})"
    return f"`{path}` is {one} here, and readers would hear {other}: {REMEDY}"


def _shown(value: object) -> str:
    if value is ABSENT:
        return "absent"
    text = repr(value)
    return text if len(text) <= WORDS else f"{text[: WORDS - 1]}…"
