"""Versions: one fact in several versions, and the functions that turn one into another. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, TypeVar, cast

from posthouse.contracts.catalogue import EventType, event_type_of
from posthouse.errors import ConfigurationError, ContractError

A = TypeVar("A")
B = TypeVar("B")

Direction = Literal["upcast", "downcast"]


@dataclasses.dataclass(frozen=True)
class Cast:
    """A function from one version of a fact to another. It looks at nothing but its argument."""

    source: EventType[object]
    target: EventType[object]
    function: Callable[[object], object]

    def __call__(self, value: object) -> object:
        """The fact in the other version. Raises ContractError, whatever the function raises."""
        try:
            made = self.function(value)
        except Exception as error:
            raise ContractError(f"{self._words} failed: {type(error).__name__}: {error}") from error
        if not isinstance(made, self.target.payload.cls):
            raise ContractError(f"{self._words} gave a {type(made).__name__}, not a {self.target.payload.cls.__name__}")
        return made

    @property
    def _words(self) -> str:
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"{name}, which makes {self.target.name} of {self.source.name},"


Casts = Mapping[str, Cast]
"""Casts by the subject that they begin at: one for each."""


def cast_of(direction: Direction, source: type[A], target: type[B], function: Callable[[A], B]) -> Cast:
    """A declared cast, checked: versions of one fact, in the right direction. Raises ConfigurationError."""
    old_or_new, other = event_type_of(source), event_type_of(target)
    _refuse_strangers(direction, old_or_new.subject.unversioned, other.subject.unversioned)
    rises = other.subject.version > old_or_new.subject.version
    if rises != (direction == "upcast"):
        raise ConfigurationError(
            f"{direction} goes to {'a later' if direction == 'upcast' else 'an earlier'} version, not from "
            f"{old_or_new.name} to {other.name}: use {'downcast' if direction == 'upcast' else 'upcast'}"
        )
    if direction == "downcast" and (old_or_new.key is None) != (other.key is None):
        raise ConfigurationError(
            f"{old_or_new.name} and {other.name} are published together, but only one of them has a key: readers of the "
            "other would have no order"
        )
    return Cast(
        cast("EventType[object]", old_or_new),
        cast("EventType[object]", other),
        cast("Callable[[object], object]", function),
    )


def chain(casts: Casts, start: str, wanted: Collection[str]) -> Sequence[Cast]:
    """The casts that lead from `start` to the nearest version that is wanted; empty when they end before one."""
    steps: list[Cast] = []
    while start in casts:
        steps.append(casts[start])
        start = steps[-1].target.name
        if start in wanted:
            return tuple(steps)
    return ()


def whole(casts: Casts, start: str) -> Sequence[Cast]:
    """Every cast from `start` on, to the last."""
    steps: list[Cast] = []
    while start in casts:
        steps.append(casts[start])
        start = steps[-1].target.name
    return tuple(steps)


def lift(steps: Sequence[Cast], value: object) -> object:
    """A value through all the casts, one after the other. Raises ContractError."""
    for step in steps:
        value = step(value)
    return value


def missing_links(casts: Casts, handled: Collection[str], declared: Collection[EventType[object]]) -> list[str]:
    """Why old events would not reach a handler, one sentence each: a cast that leads nowhere, and a version that was
    declared for reading while only later ones are lifted."""
    problems = []
    for start in sorted(casts):
        if not chain(casts, start, handled):
            last = whole(casts, start)[-1].target
            problems.append(
                f"{start} is lifted to {last.name}, which no handler takes: declare the upcast from there to a version that "
                "one does, or handle it"
            )
    for event_type in sorted(declared, key=lambda known: known.name):
        later = _lifted_after(casts, event_type, handled)
        if later and event_type.external and event_type.name not in {*casts, *handled}:
            problems.append(
                f"{event_type.name} is declared and neither handled nor lifted, while {later} is lifted: declare the upcast "
                f"from {event_type.name}, or do not declare it"
            )
    return problems


def _lifted_after(casts: Casts, event_type: EventType[object], handled: Collection[str]) -> str | None:
    subject = event_type.subject
    later = [
        step.source
        for step in casts.values()
        if step.source.subject.unversioned == subject.unversioned and step.source.subject.version > subject.version
    ]
    found = [known.name for known in later if chain(casts, known.name, handled)]
    return min(found, default=None)


def _refuse_strangers(direction: Direction, one: str, other: str) -> None:
    if one != other:
        raise ConfigurationError(
            f"{direction} is between versions of one fact: {one} and {other} are two facts, use a handler"
        )
