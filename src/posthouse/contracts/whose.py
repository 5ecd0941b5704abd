"""Whose: which field of a payload says whom its personal fields are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from posthouse.contracts.personal import (
    Place,
    fields_under,
    hints_of_fields,
    personal_places,
    travelling_name,
)
from posthouse.errors import did_you_mean


def whose_problems(cls: type, about: str) -> list[str]:
    """Why `about`, and what the marks of a payload class name, cannot say whom it is about; one sentence each."""
    return [*_about_problems(cls, about), *(found for place in personal_places(cls) for found in _mark_problems(place))]


def owner_of(place: Place, about: str) -> str:
    """Where the field travels that says whom a marked field is about; empty where nothing says so."""
    if not place.mark.of:
        return about
    outside, dot, _ = place.path.rpartition(".")
    return f"{outside}{dot}{travelling_name(place.cls, place.mark.of)}"


def outermost(places: Iterable[Place]) -> Iterator[Place]:
    """Those that are not inside of another one, which covers them."""
    covered: list[str] = []
    for place in sorted(places, key=lambda one: one.path.count(".")):
        if not any(place.path.startswith(f"{path}.") for path in covered):
            covered.append(place.path)
            yield place


def _about_problems(cls: type, about: str) -> Iterator[str]:
    if not about:
        return
    at: type | None = cls
    *outside, last = about.split(".")
    for name in outside:
        known = {} if at is None else fields_under(at)
        if name not in known:
            yield f"about={about!r}: there is no field {name!r}.{did_you_mean(name, known)}"
            return
        at = known[name]
    known = {} if at is None else fields_under(at)
    if last not in known:
        yield f"about={about!r}: there is no field {last!r}.{did_you_mean(last, known)}"
    elif about in {place.path for place in personal_places(cls)}:
        yield f"about={about!r} is personal itself: whom it is about stays readable, so name a field with an id that says nothing"


def _mark_problems(place: Place) -> Iterator[str]:
    of, known = place.mark.of, hints_of_fields(place.cls)
    if not of:
        return
    if of not in known:
        yield f"{place.path!r} is of={of!r}, and {place.cls.__name__} has no such field.{did_you_mean(of, known)}"
    elif of in _marked_in(place.cls):
        yield f"{place.path!r} is of={of!r}, which is personal itself: name a field with an id that says nothing"


def _marked_in(cls: type) -> set[str]:
    """The fields of this very class that are marked, as they travel and as code calls them."""
    own = {place.path for place in personal_places(cls) if place.cls is cls}
    return own | {name for name in hints_of_fields(cls) if travelling_name(cls, name) in own}
