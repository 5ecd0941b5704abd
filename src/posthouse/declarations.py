"""Declarations: what a service says and hears, and which versions lead to which, as the App and the tools read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import date
from functools import cached_property, partial
from pathlib import Path

from posthouse.clock import SystemClock
from posthouse.contracts import Catalogue, EventType, Flow
from posthouse.contracts.versions import Cast, chain, missing_links
from posthouse.errors import ConfigurationError
from posthouse.frozen import lock_in, retired_in, unfrozen
from posthouse.processes import Aggregate, Projection, SagaBook, SagaType, Schedule, ScheduleBook
from posthouse.receiving import Handler, lifted
from posthouse.receiving.readers import topics_of
from posthouse.seam import SchemaGuard
from posthouse.sending import Tx

Setup = Callable[[Tx], Awaitable[None]]


class Declarations:
    """Everything that one service has declared so far. It grows while modules are imported, and knows nothing that runs."""

    def __init__(self, service: str, namespace: str | None, schemas: Path | None) -> None:
        self.service = service
        self.namespace = namespace
        self.schemas = schemas
        """The folder of frozen schemas."""
        self.catalogue = Catalogue()
        self.consumers: dict[str, dict[str, Handler]] = {}
        """Handlers by consumer and subject; those of older versions that are lifted to theirs included."""
        self.handlers: dict[str, dict[str, Handler]] = {}
        """The same as they were declared."""
        self.flows: dict[str, Flow] = {}
        """Choreographies by their names."""
        self.upcasts: dict[str, Cast] = {}
        self.downcasts: dict[str, Cast] = {}
        self.sagas = SagaBook(service, namespace)
        self.schedules = ScheduleBook(service, namespace)
        self.aggregates: dict[str, Aggregate[object, object]] = {}
        """By name."""
        self.projections: dict[str, Projection] = {}
        """By the name of their consumer."""
        self.setups: list[Setup] = []
        """Run when the service is opened."""

    def add_handler(self, consumer: str, handler: Handler) -> None:
        """Let a consumer run it. Raises ConfigurationError when it runs another one for the same event."""
        handlers = self.handlers.setdefault(consumer, {})
        for event_type in handler.event_types:
            if event_type.name in handlers:
                raise ConfigurationError(
                    f"{event_type.name} is handled by {handlers[event_type.name].name} in the consumer {consumer!r} already: "
                    f"give {handler.name} a consumer of its own, as in on(…, consumer={handler.function.__name__!r})"
                )
            self.catalogue.add(event_type)
            handlers[event_type.name] = handler
        self._lift()

    def add_saga(self, of: SagaType) -> None:
        """Let the consumer of a saga run its handlers, and another one make its calls."""
        for event_type in of.event_types.values():
            self.catalogue.add(event_type)
        self.handlers[of.consumer] = {handler.event_types[0].name: handler for handler in self.sagas.handlers(of.name)}
        for handler in self.sagas.callers(of.name):
            self.refuse_taken(of.caller, "saga")
            self.handlers[of.caller] = {handler.event_types[0].name: handler}
        self._lift()

    def add_schedule(self, schedule: Schedule) -> None:
        """Let the consumer of schedules run it."""
        self.handlers.setdefault(self.schedules.consumer, {})[schedule.event_type.name] = schedule.handler
        self._lift()

    def add_upcast(self, cast: Cast) -> None:
        """Lift an older version for those who handle a newer one."""
        self._add_cast(self.upcasts, cast)
        self._lift()

    def add_downcast(self, cast: Cast) -> None:
        """Publish an older version beside a newer one. Raises ConfigurationError for events of others."""
        foreign = [known.name for known in (cast.source, cast.target) if not self.owns(known)]
        if foreign:
            raise ConfigurationError(f"{self.service!r} cannot publish what it does not own: {', '.join(foreign)}")
        self._add_cast(self.downcasts, cast)

    def refuse_taken(self, consumer: str, kind: str) -> None:
        """Raises ConfigurationError when there is a consumer of that name."""
        if consumer in self.projections:
            raise ConfigurationError(f"the projection {self.projections[consumer].name!r} is declared twice")
        if consumer in self.handlers:
            raise ConfigurationError(f"there is a consumer {consumer} already: give the {kind} another name")

    def owns(self, event_type: EventType[object]) -> bool:
        """Whether an event is this service's own to say."""
        subject = event_type.subject
        return (subject.namespace, subject.service) == (self.namespace, self.service)

    def is_foreign(self, consumer: str, subject: str) -> bool:
        """Whether only another release of this service can have a handler for an event that this consumer has none for."""
        known = self.catalogue.get(subject) is not None
        return consumer == self.schedules.consumer and self.schedules.is_run(subject) and not known

    @property
    def own_events(self) -> list[EventType[object]]:
        """What it may say."""
        return [known for known in self.catalogue if self.owns(known)]

    @property
    def publishable(self) -> list[EventType[object]]:
        """Own events as they are said today: neither retired ones nor older versions that are only lifted."""
        read_only = self.upcasts.keys() - self.published_beside.keys()
        return [known for known in self.own_events if known.name not in read_only and known.name not in self.retired]

    @property
    def saga_types(self) -> Mapping[str, SagaType]:
        """The sagas by name."""
        return self.sagas.types

    @property
    def internal_events(self) -> list[EventType[object]]:
        """What the library says to itself in this service's name: it has topics, and no place in the catalogue."""
        return [*self.sagas.internal_events, *self.schedules.internal_events]

    @property
    def published_beside(self) -> Mapping[str, str]:
        """Subjects of older versions that are published beside a newer one, with the newer one."""
        return {cast.target.name: cast.source.name for cast in self.downcasts.values()}

    @property
    def streamed(self) -> Mapping[str, str]:
        """Events that stand in streams, each with its aggregate; older versions that are lifted to them included."""
        found = {known.name: name for name, aggregate in self.aggregates.items() for known in aggregate.events}
        for old in self.upcasts:
            if old not in found and (steps := chain(self.upcasts, old, found)):
                found[old] = found[steps[-1].target.name]
        return {name: aggregate for name, aggregate in found.items() if name not in self.published_beside}

    @property
    def watched(self) -> Mapping[str, str]:
        """Own subjects whose end is near or thinkable, with their topics: deprecated ones, and those with other versions."""
        own = self.own_events
        facts = [known.subject.unversioned for known in own]
        return {
            known.name: known.topic
            for known in own
            if known.terms.deprecated is not None or facts.count(known.subject.unversioned) > 1
        }

    @property
    def topics(self) -> set[str]:
        """Where its events are, those that it says and those that it reads."""
        read = {topic for handlers in self.consumers.values() for topic in topics_of(handlers)}
        return read | {event_type.topic for event_type in self.catalogue}

    @cached_property
    def retired(self) -> Mapping[str, date]:
        """Subjects that must not be said any more, each with its day."""
        return {} if self.schemas is None else retired_in(self.schemas)

    @cached_property
    def guard(self) -> SchemaGuard:
        """Compares what is read from streams with the frozen schemas."""
        return SchemaGuard(None if self.schemas is None else partial(lock_in, self.schemas), SystemClock().now)

    def problems(self) -> list[str]:
        """What was declared and cannot work, wherever it runs."""
        found = [] if self.schemas is None else unfrozen(self.schemas, self.own_events)
        handled = {name for handlers in self.handlers.values() for name in handlers}
        handled |= {known.name for aggregate in self.aggregates.values() for known in aggregate.events}
        found += missing_links(self.upcasts, handled, list(self.catalogue))
        for projection in self.projections.values():
            found += projection.problems()
            found += [problem for one in self.aggregates.values() for problem in _unheard(projection, one)]
        return found

    def _add_cast(self, casts: dict[str, Cast], cast: Cast) -> None:
        known = casts.setdefault(cast.source.name, cast)
        if known is not cast:
            raise ConfigurationError(
                f"{cast.source.name} is turned into {known.target.name} already: one function begins at each version"
            )
        for event_type in (cast.source, cast.target):
            self.catalogue.add(event_type)

    def _lift(self) -> None:
        """Declarations come in any order: what is lifted to whom is worked out anew with each."""
        self.consumers.update({name: lifted(known, self.upcasts) for name, known in self.handlers.items()})


def _unheard(projection: Projection, aggregate: Aggregate[object, object]) -> list[str]:
    """A read model that keeps what was deleted, until a rebuild leaves it out, would be another one after each rebuild."""
    read = {known.name for known in projection.event_types}
    if aggregate.last is None or aggregate.last.name in read or not read & {known.name for known in aggregate.events}:
        return []
    return [
        f"projection {projection.name!r}: it reads events of {aggregate.name!r} and not {aggregate.last.name}, which is all that "
        "is left of one that was deleted: let a handler take it, and delete its rows"
    ]
