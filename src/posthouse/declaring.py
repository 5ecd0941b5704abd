"""Declarations: what a service says and hears, and which versions lead to which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from posthouse.contracts import (
    Catalogue,
    EventType,
    Flow,
    Retention,
    Terms,
    Topics,
    declare,
    event_type_of,
    flow_of,
)
from posthouse.contracts.retirement import refusal
from posthouse.contracts.versions import Cast, cast_of
from posthouse.errors import ConfigurationError
from posthouse.events import Subject
from posthouse.frozen import retired_in
from posthouse.receiving import Calling, Handler, Policy, Uses, handler_of, lifted
from posthouse.sending import Tx

T = TypeVar("T")
Old = TypeVar("Old")
New = TypeVar("New")
F = TypeVar("F", bound=Callable[..., object])
Setup = Callable[[Tx], Awaitable[None]]


class Declarations:
    """The half of a service that needs no store and no broker: its events, handlers, casts and flows."""

    def __init__(
        self,
        name: str,
        namespace: str | None,
        *,
        topics: Topics,
        owner: str,
        residency: str | None,
        schemas: str | Path | None,
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.owner = owner
        self.catalogue = Catalogue()
        self.consumers: dict[str, dict[str, Handler]] = {}
        """Handlers by consumer and subject; those of older versions that are lifted to theirs included."""
        self._handlers: dict[str, dict[str, Handler]] = {}
        """The same as they were declared."""
        self.flows: dict[str, Flow] = {}
        """Choreographies that this service declares, by their names."""
        self._upcasts: dict[str, Cast] = {}
        self._downcasts: dict[str, Cast] = {}
        self._topics: Topics = topics
        self._terms = Terms(owner=owner, residency=residency).checked(name)
        self._schemas = None if schemas is None else Path(schemas)
        self._setups: list[Setup] = []

    def event(
        self,
        subject: str,
        *,
        key: str | None = None,
        retention: Retention = "hot",
        owner: str | None = None,
        residency: str | None = None,
        deprecated: date | None = None,
        provenance: str | None = None,
        cross_tenant: bool = False,
    ) -> Callable[[type[T]], type[T]]:
        """Declare a fact that this service owns: `order.placed.v1`, relative to its namespace and name.

        `key` names the field whose value orders the facts: all of one key are applied in commit order. The class may
        be a Payload, a dataclass, a msgspec Struct or a pydantic model; a plain annotated class becomes a dataclass.
        Its docstring describes the fact. `owner` and `residency` are the service's unless they are given here;
        `deprecated` is the day from which no new consumer should start. `provenance` names the field that says which model
        made the fact: it travels in the envelope too, and consumers hold one that comes without. `cross_tenant`: it is about
        several tenants, or for readers of all; then its topic must be on the list of the rules.
        """
        full = Subject.relative(subject, service=self.name, namespace=self.namespace)
        if (retired := refusal(str(full), self._retired)) is not None:
            raise ConfigurationError(retired)
        terms = Terms(
            retention=retention,
            owner=self._terms.owner if owner is None else owner,
            residency=self._terms.residency if residency is None else residency,
            deprecated=deprecated,
            cross_tenant=cross_tenant,
        )
        return self._declared(full, key, self._topics, terms, provenance)

    def external(
        self, subject: str, *, key: str | None = None, topics: Topics | None = None
    ) -> Callable[[type[T]], type[T]]:
        """Declare a fact of another service, as this one reads it: the full subject, and only the fields it needs."""
        return self._declared(Subject.parse(subject), key, topics or self._topics)

    def on(
        self,
        *events: type[object],
        consumer: str | None = None,
        policy: Policy | None = None,
        reads: Sequence[str] | None = None,
        publishes: Sequence[type[object]] = (),
        calling: Calling | None = None,
    ) -> Callable[[F], F]:
        """Run the decorated function for each of these events, once, in order per key, in one transaction.

        Handlers of one consumer share its place in the topics; a second handler for the same event needs a `consumer`
        of its own. What the function returns is published in the same transaction.

        `calling` is for what no transaction can take back: a vendor's API. It is given the event before the transaction
        begins, and the function gets its answer as a third argument. It may be called again for the same event, after a
        failure or a crash, so it says the same key to the vendor each time; it is not called for a duplicate.

        For the catalogue: `reads` names the payload fields that the function looks at, dots reaching inside; without it
        any change of the event may touch it. `publishes` names the events that it publishes through its Tx; those of
        its return annotation are known.
        """
        if not events:
            raise ConfigurationError(f"{self.name}.on() needs at least one event class")
        name = self.name if consumer is None else f"{self.name}.{consumer}"

        def register(function: F) -> F:
            types = [event_type_of(cls) for cls in events]
            uses = Uses.of(types, reads, publishes, by=self.name)
            handler = handler_of(function, types, policy or Policy(), uses, calling)
            self._add_handler(name, handler)
            return function

        return register

    def upcast(self, old: type[Old], *, to: type[New]) -> Callable[[Callable[[Old], New]], Callable[[Old], New]]:
        """Let handlers of `to` also take `old`, an earlier version of the same fact, as the decorated function lifts it.

        Functions are chained: with one from v1 to v2 and one from v2 to v3, a handler of v3 gets all three. It sees the
        envelope as it came and the payload lifted. A function that raises leaves the event held, as a breach of contract.
        """

        def register(function: Callable[[Old], New]) -> Callable[[Old], New]:
            self._add_cast(self._upcasts, cast_of("upcast", old, to, function))
            self._lift_handlers()
            return function

        return register

    def downcast(self, new: type[New], *, to: type[Old]) -> Callable[[Callable[[New], Old]], Callable[[New], Old]]:
        """Publish each `new` also as `to`, an earlier version of the same fact, as the decorated function makes it.

        Both are written in the same transaction, under the same key. Functions are chained. A consumer that takes several
        versions applies the fact once. Remove the function to publish `new` alone again.
        """

        def register(function: Callable[[New], Old]) -> Callable[[New], Old]:
            cast = cast_of("downcast", new, to, function)
            foreign = [t.name for t in (cast.source, cast.target) if not self._owns(t)]
            if foreign:
                raise ConfigurationError(f"{self.name!r} cannot publish what it does not own: {', '.join(foreign)}")
            self._add_cast(self._downcasts, cast)
            return function

        return register

    def flow(
        self,
        name: str,
        *,
        starts: type[object],
        then: Sequence[type[object]],
        may: Sequence[type[object]] = (),
        description: str = "",
    ) -> None:
        """Declare a choreography that this service answers for: what has to follow from a fact, and what may, whoever says
        it. Nothing runs because of it: `posthouse flow` draws it from who hears and says what, and `posthouse trace` says
        which of its facts did not come."""
        self.flows[name] = flow_of(name, starts, then, may, description, known=self.flows)

    def setup(self, function: Setup) -> Setup:
        """Run the decorated function once when the service opens, in a transaction of its own; for your own tables."""
        self._setups.append(function)
        return function

    def _declared(
        self,
        subject: Subject,
        key: str | None,
        topics: Topics,
        terms: Terms | None = None,
        provenance: str | None = None,
    ) -> Callable[[type[T]], type[T]]:
        def made(cls: type[T]) -> type[T]:
            event_type = declare(cls, subject, key=key, topics=topics, terms=terms, provenance=provenance)
            self.catalogue.add(event_type)
            return event_type.payload.cls

        return made

    def _add_handler(self, name: str, handler: Handler) -> None:
        handlers = self._handlers.setdefault(name, {})
        for event_type in handler.event_types:
            if event_type.name in handlers:
                raise ConfigurationError(
                    f"{event_type.name} is handled by {handlers[event_type.name].name} in the consumer {name!r} already: "
                    f"give {handler.name} a consumer of its own, as in on(…, consumer={handler.function.__name__!r})"
                )
            self.catalogue.add(event_type)
            handlers[event_type.name] = handler
        self._lift_handlers()

    def _add_cast(self, casts: dict[str, Cast], cast: Cast) -> None:
        known = casts.setdefault(cast.source.name, cast)
        if known is not cast:
            raise ConfigurationError(
                f"{cast.source.name} is turned into {known.target.name} already: one function begins at each version"
            )
        for event_type in (cast.source, cast.target):
            self.catalogue.add(event_type)

    def _lift_handlers(self) -> None:
        """Declarations come in any order: what is lifted to whom is worked out anew with each."""
        self.consumers.update({name: lifted(known, self._upcasts) for name, known in self._handlers.items()})

    @cached_property
    def _retired(self) -> Mapping[str, date]:
        return {} if self._schemas is None else retired_in(self._schemas)

    @property
    def published_beside(self) -> Mapping[str, str]:
        """Subjects of older versions that are published beside a newer one, with the newer one."""
        return {cast.target.name: cast.source.name for cast in self._downcasts.values()}

    def _own_events(self) -> list[EventType[object]]:
        return [known for known in self.catalogue if self._owns(known)]

    def _owns(self, event_type: EventType[object]) -> bool:
        subject = event_type.subject
        return (subject.namespace, subject.service) == (self.namespace, self.name)

    def _watched(self) -> Mapping[str, str]:
        """Own subjects whose end is near or thinkable, with their topics: deprecated ones, and those with other versions."""
        own = self._own_events()
        facts = [known.subject.unversioned for known in own]
        return {
            known.name: known.topic
            for known in own
            if known.terms.deprecated is not None or facts.count(known.subject.unversioned) > 1
        }
