"""Deciding: what a decision comes to, and what a state becomes. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from posthouse.contracts import is_event
from posthouse.errors import ConfigurationError

S = TypeVar("S")
E = TypeVar("E")

Evolve = Callable[[S, E], S]
"""What a state becomes by an event."""
Decision = Callable[[S], E | Iterable[E] | None]
"""What happens, given a state: one event, several, or nothing. It may raise, and then nothing happens."""


def decided(decision: Decision[S, E], state: S) -> list[E]:
    """The events that a decision comes to. ConfigurationError for one that is not a plain function."""
    found = decision(state)
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        raise ConfigurationError(
            f"{_name(decision)} is asynchronous: a decision looks at nothing but the state, so that it can be made again; fetch "
            "what it needs before, and give it to a plain function"
        )
    if found is None:
        return []
    if is_event(found) or not isinstance(found, Iterable):
        return [cast("E", found)]
    return list(found)


def folded(evolve: Evolve[S, E], state: S, events: Iterable[E]) -> S:
    """What a state becomes by events, one after the other."""
    for event in events:
        state = evolve(state, event)
    return state


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
