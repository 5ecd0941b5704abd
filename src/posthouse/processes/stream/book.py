"""Book: the aggregates that a service has declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from posthouse.contracts import EventType
from posthouse.processes.stream.aggregate import Aggregate, Home
from posthouse.processes.stream.conflicts import Conflicts
from posthouse.processes.stream.deciding import Evolve
from posthouse.processes.stream.declaring import aggregate_of

S = TypeVar("S")
E = TypeVar("E")


class AggregateBook(Mapping[str, Aggregate[object, object]]):
    """Aggregates by name."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._aggregates: dict[str, Aggregate[object, object]] = {}

    def __getitem__(self, name: str) -> Aggregate[object, object]:
        return self._aggregates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._aggregates)

    def __len__(self) -> int:
        return len(self._aggregates)

    @property
    def events(self) -> Sequence[EventType[object]]:
        """The events of all of them."""
        return [event_type for aggregate in self.values() for event_type in aggregate.events]

    def declare(
        self,
        name: str,
        *,
        initial: Callable[[], S],
        evolve: Evolve[S, E],
        events: Sequence[type[object]],
        snapshot_every: int | None,
        revision: int,
        conflicts: Conflicts,
    ) -> Aggregate[S, E]:
        """Add one. Raises ConfigurationError, with all that cannot work."""
        made = aggregate_of(
            name,
            self._home,
            initial=initial,
            evolve=evolve,
            events=events,
            others={other: known.events for other, known in self._aggregates.items()},
            snapshot_every=snapshot_every,
            revision=revision,
            conflicts=conflicts,
        )
        self._aggregates[name] = cast("Aggregate[object, object]", made)
        return made
