"""Recording: which fields of their events handlers look at while tests run, as a suggestion for `reads`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from posthouse.contracts import EventType, event_type_of, is_event
from posthouse.events import Event
from posthouse.receiving import Handler
from posthouse.service import Service
from posthouse.testing.watching import Watcher


class Reads:
    """What was seen, by handler and subject."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], set[str]] = {}
        self._handlers: dict[str, Handler] = {}
        self._types: dict[str, EventType[object]] = {}

    def of(self, handler: str, subject: str) -> tuple[str, ...]:
        """The fields that a handler looked at, as `reads` names them: the innermost of each, sorted."""
        seen = self._seen.get((handler, subject), set())
        return tuple(sorted(field for field in seen if not any(other.startswith(f"{field}.") for other in seen)))

    def suggestions(self) -> list[str]:
        """A line for each handler and event that ran, ready to be copied."""
        return [
            f"{handler} on {subject}: reads=[{', '.join(map(_quoted, self.of(handler, subject)))}]"
            for handler, subject in sorted(self._seen)
        ]

    def assert_declared(self) -> None:
        """Handlers that say what they read must look at nothing else. Raises AssertionError with every field that is not said:
        a change of it would not name the handler."""
        problems = [
            f"{handler} looks at {field!r} of {subject}, which its reads do not name"
            for handler, subject in sorted(self._seen)
            for field in self.of(handler, subject)
            if not self._is_declared(handler, subject, field)
        ]
        if problems:
            raise AssertionError("\n".join(problems))

    def watched(self, handler: Handler, event: Event[object]) -> Event[object]:
        """The event with a payload that tells what is looked at. One that cannot tell is left as it is."""
        if not is_event(event.data):
            return event
        event_type: EventType[object] = event_type_of(type(event.data))
        self._handlers[handler.name], self._types[event_type.name] = handler, event_type
        seen = self._seen.setdefault((handler.name, event_type.name), set())
        return event.with_data(Watcher(seen.add).watch(event.data))

    def _is_declared(self, handler: str, subject: str, field: str) -> bool:
        declared = self._handlers[handler].uses.reads_of(self._types[subject])
        if declared is None:
            return True
        return any(f"{field}.".startswith(f"{name}.") or f"{name}.".startswith(f"{field}.") for name in declared)


@contextmanager
def recording(*services: Service) -> Iterator[Reads]:
    """Record what the handlers of services look at, while the block runs: put the Harness inside of it.

    A payload stays an instance of its class, but of a class of its own below it. What is read behind Python's back is not
    seen: a Struct that is encoded, copied or compared as a whole. Payloads of Protobuf are not seen at all.
    """
    reads = Reads()
    before = [
        (service, {name: dict(handlers) for name, handlers in service.declared.consumers.items()})
        for service in services
    ]
    for service, consumers in before:
        for name, handlers in consumers.items():
            service.declared.consumers[name] = _watched(reads, handlers)
    try:
        yield reads
    finally:
        for service, consumers in before:
            service.declared.consumers.update(consumers)


def _watched(reads: Reads, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """A handler of several events stays one handler."""
    made = {id(handler): _watching(reads, handler) for handler in handlers.values()}
    return {subject: made[id(handler)] for subject, handler in handlers.items()}


def _watching(reads: Reads, handler: Handler) -> Handler:
    watched: Callable[[Event[object]], Event[object]] = partial(reads.watched, handler)

    def call(argument: Event[object] | Sequence[Event[object]], *rest: object) -> object:
        given = watched(argument) if isinstance(argument, Event) else [watched(event) for event in argument]
        return handler.function(given, *rest)

    return dataclasses.replace(handler, function=call)


def _quoted(field: str) -> str:
    return f'"{field}"'
