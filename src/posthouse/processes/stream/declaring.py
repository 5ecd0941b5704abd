"""Declaring: an aggregate, checked. Everything that cannot work is said at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from posthouse.contracts import EventType
from posthouse.contracts.versions import Casts
from posthouse.errors import ConfigurationError
from posthouse.processes.stream.aggregate import Aggregate, Begin
from posthouse.processes.stream.conflicts import Conflicts
from posthouse.processes.stream.deciding import Decision, Evolve
from posthouse.processes.stream.reading import Reader
from posthouse.processes.stream.snapshots import Snapshots
from posthouse.receiving.handler import hints_of, name_of
from posthouse.seam import SchemaGuard

S = TypeVar("S")
E = TypeVar("E")


def aggregate_of(
    name: str,
    begin: Begin,
    *,
    initial: Callable[[], S],
    evolve: Evolve[S, E],
    events: Sequence[EventType[object]],
    owns: Callable[[EventType[object]], bool],
    upcasts: Casts,
    guard: SchemaGuard,
    others: Mapping[str, Sequence[EventType[object]]],
    snapshot_every: int | None,
    revision: int,
    conflicts: Conflicts,
    delete: Decision[S, E] | None = None,
) -> Aggregate[S, E]:
    """An aggregate of a service that has `others` already, each with its events, and that `owns` some. Raises
    ConfigurationError with all that cannot work."""
    problems = [*_name_problems(name, others), *_event_problems(events, owns, others)]
    last = None if delete is None else _last(delete, events, problems)
    snapshots = None
    if snapshot_every is not None and snapshot_every < 1:
        problems.append(f"snapshot_every must be at least 1, not {snapshot_every}: leave it out for no snapshots")
    elif snapshot_every is not None:
        try:
            snapshots = Snapshots(name, type(initial()), snapshot_every, revision)
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(*(f"aggregate {name!r}: {problem}" for problem in problems))
    return Aggregate(
        name,
        begin,
        initial=initial,
        evolve=evolve,
        events=events,
        reader=Reader(events, upcasts, guard),
        snapshots=snapshots,
        conflicts=conflicts,
        deletion=delete,
        last=last,
    )


def _last(delete: Decision[S, E], events: Sequence[EventType[object]], problems: list[str]) -> EventType[object] | None:
    """The type of what is said last of one that is deleted: what its function is annotated with."""
    said = hints_of(delete).get("return")
    found = next((known for known in events if known.payload.cls is said), None)
    if found is None:
        names = ", ".join(known.payload.cls.__name__ for known in events)
        problems.append(
            f"delete= says a last fact, by which whoever reads the others hears of it: let {name_of(delete)} be annotated with "
            f"the one event that it returns, one of {names}"
        )
    return found


def _name_problems(name: str, others: Mapping[str, object]) -> list[str]:
    if not name or not name.isprintable():
        return ["its name must be a text that people can read: it is stored with every stream"]
    return ["there is one of that name already: its streams would be mixed up"] if name in others else []


def _event_problems(
    types: Sequence[EventType[object]],
    owns: Callable[[EventType[object]], bool],
    others: Mapping[str, Sequence[EventType[object]]],
) -> list[str]:
    """A stream is published in its order only if its events are in one topic and have its id as their key."""
    if not types:
        return ["it has no events: name the classes in events=(…)"]
    problems = [
        f"{known.name} belongs to another service, which alone may say it" for known in types if not owns(known)
    ]
    problems += [
        f"{known.name} has no key, so nobody could tell which stream it is in: declare it with key=…, the field that holds the "
        "id of the stream"
        for known in types
        if known.key is None
    ]
    topics = sorted({known.topic for known in types})
    if len(topics) > 1:
        problems.append(
            f"its events are in several topics ({', '.join(topics)}), so that consumers could not keep their order: give their "
            "subjects the same aggregate, and the service topics='aggregate'"
        )
    for other, theirs in others.items():
        shared = sorted({known.name for known in types} & {known.name for known in theirs})
        if shared:
            problems.append(f"{', '.join(shared)} belongs to the aggregate {other!r}: a fact is in one stream")
    return problems
