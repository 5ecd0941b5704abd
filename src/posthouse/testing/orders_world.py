"""The world of a play of orders: partners that hear what is said and answer in one of several ways, and the choices of a run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from posthouse.contracts import EventType, event_type_of
from posthouse.errors import ConfigurationError
from posthouse.events import Event

P = TypeVar("P")
W = TypeVar("W")

HEARS = "__posthouse_hears__"

Answer = Callable[[W, P], object]
"""A method of a partner: it is given a fact and returns the facts that it answers with: one, several, or None."""


def hears(fact: type[P], /) -> Callable[[Answer[W, P]], Answer[W, P]]:
    """One way in which a partner may answer a fact. Several methods that hear the same one are alternatives: every run takes
    one of them. They return a fact, several, or None, and may note in the partner's own fields what they did."""

    def note(method: Answer[W, P]) -> Answer[W, P]:
        setattr(method, HEARS, fact)
        return method

    return note


class Heard(msgspec.Struct, frozen=True):
    """The alternatives of one partner for one fact."""

    event_type: EventType[object]
    methods: Sequence[str]


def heard_by(partner: type) -> dict[str, Heard]:
    """What a partner hears, by subject. Raises ConfigurationError when that is nothing."""
    found: dict[str, list[str]] = {}
    types: dict[str, EventType[object]] = {}
    for name in vars(partner):
        fact: type[object] | None = getattr(getattr(partner, name), HEARS, None)
        if fact is not None:
            event_type = event_type_of(fact)
            types[event_type.name] = event_type
            found.setdefault(event_type.name, []).append(name)
    if not found:
        raise ConfigurationError(
            f"{partner.__name__} hears nothing: mark its methods with @hears(Fact) from posthouse.testing"
        )
    return {subject: Heard(types[subject], methods) for subject, methods in found.items()}


class Choices:
    """The choices of one run: those that are given, and from there on one at random each time; without chance, the first."""

    def __init__(self, given: Sequence[int] = (), chance: random.Random | None = None) -> None:
        self.below = 1.0
        """How many runs there may be with the same beginning: the inverse of how likely this one was among them."""
        self._taken: list[tuple[int, Sequence[float]]] = []
        self._given = given
        self._chance = chance

    def among(self, weights: Sequence[float]) -> int:
        """The number of one of so many, the likelier the heavier."""
        if len(weights) == 1:
            return 0
        place = len(self._taken)
        if place < len(self._given):
            found = min(self._given[place], len(weights) - 1)
        else:
            found = 0 if self._chance is None else self._chance.choices(range(len(weights)), weights)[0]
            self.below *= sum(weights) / weights[found]
        self._taken.append((found, weights))
        return found

    @property
    def path(self) -> tuple[int, ...]:
        """The choices, for whoever plays them again."""
        return tuple(found for found, _ in self._taken)

    def siblings(self) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Where other runs turn off, behind what was given, and how likely that was."""
        for place in range(len(self._given), len(self._taken)):
            taken, weights = self._taken[place]
            for other, weight in enumerate(weights):
                if other != taken:
                    yield weight / sum(weights), (*self.path[:place], other)


class World:
    """The partners of one run."""

    def __init__(self, partners: Mapping[type, Mapping[str, Heard]], choices: Choices) -> None:
        self.partners: list[object] = [partner() for partner in partners]
        self._hears = list(partners.values())
        self._choices = choices

    def answers(self, event: Event[bytes]) -> Iterator[tuple[str, Sequence[object]]]:
        """What each partner does about a fact, in words, with the facts that it says."""
        for partner, hears in zip(self.partners, self._hears, strict=True):
            heard = hears.get(event.type)
            if heard is not None:
                method = heard.methods[self._choices.among([1.0] * len(heard.methods))]
                said = getattr(partner, method)(heard.event_type.payload.decode(event.data))
                facts = [] if said is None else said if isinstance(said, list | tuple) else [said]
                yield f"{type(partner).__name__}.{method}", facts
