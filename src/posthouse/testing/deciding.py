"""Deciding: given what has happened, when a decision is made, then this happens. No store, no broker, no clock.

deciding(folios).given(FolioOpened(…)).when(lambda folio: charge(folio, 1200)).then(ChargePosted(…))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from posthouse.contracts import event_type_for
from posthouse.errors import PosthouseError
from posthouse.processes.stream import Aggregate, Decision, decided, folded

S = TypeVar("S")
E = TypeVar("E")


def deciding(aggregate: Aggregate[S, E]) -> Decider[S, E]:
    """Try the decisions of an aggregate out."""
    return Decider(aggregate)


class Decider(Generic[S, E]):
    """Where a specification begins."""

    def __init__(self, aggregate: Aggregate[S, E]) -> None:
        self._aggregate = aggregate

    def given(self, *events: E) -> Given[S, E]:
        """What has happened so far; nothing at all, without arguments."""
        return Given(self._aggregate, tuple(events))


class Given(Generic[S, E]):
    """A thing with a history."""

    def __init__(self, aggregate: Aggregate[S, E], events: Sequence[E]) -> None:
        _check(aggregate, events, "was given")
        self._aggregate = aggregate
        self._events = events
        self.state = folded(aggregate.evolve, aggregate.initial(), events)
        """What its history comes to."""

    def when(self, decision: Decision[S, E]) -> Then[S, E]:
        """Make a decision. What it raises is kept for `then`."""
        try:
            events = decided(decision, self.state)
        except Exception as error:
            return Then(self._aggregate, self, error)
        _check(self._aggregate, events, "was decided")
        return Then(self._aggregate, self, events)


class Then(Generic[S, E]):
    """What came of a decision."""

    def __init__(self, aggregate: Aggregate[S, E], given: Given[S, E], outcome: Sequence[E] | Exception) -> None:
        self._aggregate = aggregate
        self._given = given
        self._outcome = outcome

    def then(self, *expected: E | type[Exception] | Exception) -> Given[S, E]:
        """AssertionError unless exactly these events happened, in this order; none, without arguments. Or, with one class of
        errors, unless the decision raised one of it; with an error, unless one of its class and with its words. Returns the
        thing as it is afterwards, to go on from there."""
        wanted = expected[0] if len(expected) == 1 else None
        if isinstance(wanted, Exception) or (isinstance(wanted, type) and issubclass(wanted, Exception)):
            return self._raised(wanted)
        if isinstance(self._outcome, Exception):
            raise AssertionError(f"expected {_listed(expected)}, and the decision raised {self._outcome!r}") from (
                self._outcome
            )
        if list(self._outcome) != list(expected):
            raise AssertionError(f"expected {_listed(expected)}, and what happened is {_listed(self._outcome)}")
        return Given(self._aggregate, (*self._given._events, *self._outcome))

    def _raised(self, wanted: Exception | type[Exception]) -> Given[S, E]:
        found = self._outcome
        if not isinstance(found, Exception):
            raise AssertionError(f"expected {wanted!r}, and nothing was raised: what happened is {_listed(found)}")
        kind = wanted if isinstance(wanted, type) else type(wanted)
        if not isinstance(found, kind) or (isinstance(wanted, Exception) and str(wanted) != str(found)):
            raise AssertionError(f"expected {wanted!r}, and the decision raised {found!r}") from found
        return self._given


def _check(aggregate: Aggregate[S, E], events: Sequence[E], what: str) -> None:
    """Events are those of the aggregate, of one thing, and travel as they are: what only a store would find out is found out
    here too."""
    known = {event_type.name: event_type for event_type in aggregate.events}
    keys = set()
    for event in events:
        event_type = known.get(event_type_for(event).name)
        if event_type is None:
            raise AssertionError(f"{event!r} {what}, which is none of the events of {aggregate.name!r}")
        try:
            if event_type.payload.decode(event_type.payload.encode(event)) != event:
                raise AssertionError(f"{event!r} {what}, and it reads back as another one")
            keys.add(event_type.key_of(event))
        except PosthouseError as error:
            raise AssertionError(f"{event!r} {what}, and cannot be said: {error}") from error
    if len(keys) > 1:
        raise AssertionError(f"events of several things ({', '.join(map(repr, sorted(map(str, keys))))}) {what}")


def _listed(events: Sequence[object]) -> str:
    return ", ".join(map(repr, events)) or "nothing"
