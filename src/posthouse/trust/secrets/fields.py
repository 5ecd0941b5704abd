"""Fields: which fields of an event are secret, and why those of a class cannot be kept so."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator

import msgspec

from posthouse.contracts import EventType
from posthouse.contracts.payload import JSON
from posthouse.contracts.personal import (
    Place,
    all_places,
    classes_inside,
    classes_of_fields,
    hints_of_fields,
    personal_places,
)
from posthouse.contracts.whose import outermost, owner_of


class Secret(msgspec.Struct, frozen=True):
    """One secret field. `beside`: the field of the same object that says whom it is about; else `root`, from the payload down.
    `text`: a placeholder that is text fits in its place; else None does."""

    kind: str
    text: bool
    beside: str = ""
    root: tuple[str, ...] = ()


class Fields(msgspec.Struct):
    """What is secret in an object, by field; `*` is any item. `secret`: this very place."""

    secret: Secret | None = None
    inner: dict[str, Fields] = {}


def secret_fields(event_type: EventType[object]) -> Fields | None:
    """What is secret in the payload of an event; None where nothing is."""
    root = Fields()
    for place in outermost(personal_places(event_type.payload.cls)):
        node = root
        for name in place.path.split("."):
            node = node.inner.setdefault(name, Fields())
        node.secret = _secret(place, event_type.about)
    return root if root.inner else None


def problems_of(event_type: EventType[object]) -> Iterator[str]:
    """Why the personal fields of an event that is published cannot be kept secret, one sentence each."""
    cls, name = event_type.payload.cls, event_type.name
    if unresolved := [one.__name__ for one in classes_inside(cls) if _is_unresolved(one)]:
        yield (
            f"{name}: the annotations of {', '.join(unresolved)} cannot be resolved, so that nobody knows which fields are "
            "personal: declare the class, and what it names, at the level of the module"
        )
    places = list(outermost(personal_places(cls)))
    if not places:
        return
    if event_type.payload.content_type != JSON:
        yield (
            f"{name} has personal fields ({', '.join(place.path for place in places)}) and travels as "
            f"{event_type.payload.content_type}, whose types have no room for what is encrypted: declare it as JSON, a dataclass, "
            "a Struct or a pydantic model"
        )
        return
    for one in classes_inside(cls):
        if (shape := _shape_without_names(one)) and personal_places(one):
            yield f"{name}: {one.__name__} travels {shape}, so that its personal fields have no names there: let it be an object"
        elif _holds_itself(one) and personal_places(one):
            yield f"{name}: {one.__name__} holds itself, so that its personal fields may lie at any depth: mark the outer field instead"
    for place in places:
        if not owner_of(place, event_type.about):
            yield (
                f"{name}: {place.path!r} is personal, and nothing says whom it is about: event(…, about='the_field_with_his_id'), or "
                f"Personal({place.mark.kind!r}, of='the_field_beside_it')"
            )
        if not (_is_plain_text(place.hint) or _takes_none(place.hint)):
            yield (
                f"{name}: {place.path!r} is personal and no plain text, so that nothing could stand there for those who may not see "
                "it: let it be … | None"
            )


def problems_of_cast(newer: EventType[object], older: EventType[object]) -> Iterator[str]:
    """Why what is secret in an event would lie open in the older version that is published beside it, one sentence each."""
    there, secret = (
        all_places(older.payload.cls),
        [place.path for place in outermost(personal_places(older.payload.cls))],
    )
    for place in outermost(personal_places(newer.payload.cls)):
        covered = any(place.path == one or place.path.startswith(f"{one}.") for one in secret)
        if place.path in there and not covered:
            yield (
                f"{older.name}: {place.path!r} is personal in {newer.name} and not here, so that the older version, which is "
                f"published beside it, would say it openly: mark it here too, Personal({place.mark.kind!r})"
            )


def _secret(place: Place, about: str) -> Secret:
    text, owner = _is_plain_text(place.hint), owner_of(place, about)
    if not place.mark.of:
        return Secret(place.mark.kind, text, root=tuple(about.split(".")) if about else ())
    return Secret(place.mark.kind, text, beside=owner.rpartition(".")[2])


def _is_plain_text(hint: object) -> bool:
    """Whether any text is a value of it, also together with None."""
    plain = _bare(hint)
    return str in _members(plain)


def _takes_none(hint: object) -> bool:
    return type(None) in _members(_bare(hint))


def _members(hint: object) -> tuple[object, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(_bare(one) for one in typing.get_args(hint))
    return (hint,)


def _bare(hint: object) -> object:
    """Without names and marks; what is bounded by more than a mark stays as it is, and is no plain text."""
    while True:
        named = getattr(hint, "__value__", None) or getattr(hint, "__supertype__", None)
        if named is not None:
            hint = named
        elif typing.get_origin(hint) is typing.Annotated and not any(map(_bounds, hint.__metadata__)):  # type: ignore[attr-defined]
            hint = typing.get_args(hint)[0]
        else:
            return hint


def _bounds(mark: object) -> bool:
    """Whether an annotation may refuse a text: all that is neither a mark nor words."""
    return not (type(mark).__module__.startswith("posthouse.") or isinstance(mark, str))


def _is_unresolved(cls: type) -> bool:
    return any(isinstance(hint, str) and "Personal" in hint for hint in hints_of_fields(cls).values())


def _shape_without_names(cls: type) -> str:
    if issubclass(cls, tuple) or (issubclass(cls, msgspec.Struct) and cls.__struct_config__.array_like):
        return "as an array"
    return "as its one value" if getattr(cls, "__pydantic_root_model__", False) else ""


def _holds_itself(cls: type) -> bool:
    return cls in _reached(cls, (cls,))


def _reached(cls: type, seen: tuple[type, ...]) -> Iterator[type]:
    for inner in classes_of_fields(cls):
        yield inner
        if inner not in seen:
            yield from _reached(inner, (*seen, inner))
