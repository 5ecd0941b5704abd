"""Service: the front door. Declares what a service says and hears, and wires the parts that keep the promise."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, date, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from posthouse.broker import Broker, Start, Topology
from posthouse.brokers import open_broker
from posthouse.checks import refusals, warnings
from posthouse.clock import Clock, SystemClock
from posthouse.contracts import (
    Catalogue,
    EventType,
    FirstSight,
    Flow,
    Retention,
    Terms,
    Topics,
    declare,
    event_type_of,
    flow_of,
)
from posthouse.contracts.deprecation import deprecations
from posthouse.contracts.retirement import refusal
from posthouse.contracts.versions import Cast, cast_of, chain, missing_links
from posthouse.errors import ConfigurationError, DecodeError, StoreOutdated, did_you_mean
from posthouse.events import CODECS, METADATA_LIMIT, Actor, Producer, Subject, decode_any
from posthouse.frozen import lock_in, retired_in, unfrozen
from posthouse.processes import (
    Aggregate,
    AggregateBook,
    Conflicts,
    Projection,
    Projections,
    Saga,
    SagaBook,
    SagaDesk,
    SagaType,
    Timers,
)
from posthouse.processes.projection import Terms as ModelTerms
from posthouse.processes.projection import Wiring
from posthouse.processes.stream import Evolve, Home
from posthouse.receiving import (
    Applier,
    Calling,
    Consumer,
    Desk,
    Handler,
    Policy,
    Retrier,
    Uses,
    dead_letter_topic,
    handler_of,
    lifted,
)
from posthouse.runtime import PARTS, Part, Runtime
from posthouse.sending import Block, Cause, Drafter, Outbox, Relay, RelaySettings, Sightings, Tx
from posthouse.store import OutboxRow, RelaySource, Store, Transaction
from posthouse.stores import open_store

log = logging.getLogger("posthouse.service")

T = TypeVar("T")
Old = TypeVar("Old")
New = TypeVar("New")
F = TypeVar("F", bound=Callable[..., object])
S = TypeVar("S", bound=Saga)
State = TypeVar("State")
Fact = TypeVar("Fact")
Setup = Callable[[Tx], Awaitable[None]]

Wire = Literal["structured", "binary", "melmastoon"]

DAY = 86_400.0


class Parts(NamedTuple):
    """What a service runs on: URLs, or objects, or None for the embedded default."""

    store: str | Store | None
    broker: str | Broker | None
    clock: Clock


class Service:
    """One service: a name, a store, a broker, the events it owns and the handlers it runs.

    Without URLs it needs no server: `sqlite:///<name>.db` and `embedded:///posthouse-log.db`, or what the environment
    says in POSTHOUSE_STORE and POSTHOUSE_BROKER. `topics` maps event types to topics: one per `aggregate` keeps all
    facts about one thing in order, one per `subject` gives each type its own. `limit` is the largest event, in bytes,
    that it says or reads; `inbox_retention` the seconds for which unordered events are remembered, `saga_retention`
    those for which a saga that ended is kept, with its history; `start` where a new
    consumer begins. `owner` is the team that answers for its events, `residency` the region that their data must not
    leave; an event may say otherwise. `schemas` is the folder of frozen schemas: what it says must be in there, and what
    it reads is compared with it.
    """

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        store: str | Store | None = None,
        broker: str | Broker | None = None,
        topics: Topics = "aggregate",
        wire: Wire = "structured",
        limit: int = 256 * 1024,
        inbox_retention: float = 30 * DAY,
        saga_retention: float = 90 * DAY,
        start: Start = "earliest",
        in_flight: int = 1000,
        relay: RelaySettings | None = None,
        region: str = "",
        owner: str = "",
        residency: str | None = None,
        schemas: str | Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        if wire not in CODECS:
            raise ConfigurationError(f"there is no wire format {wire!r}.{did_you_mean(wire, CODECS)}")
        codec = CODECS[wire]
        self.name = name
        self.namespace = namespace
        self._parts = Parts(store, broker, clock or SystemClock())
        self.catalogue = Catalogue()
        self.consumers: dict[str, dict[str, Handler]] = {}
        """Handlers by consumer and subject; those of older versions that are lifted to theirs included."""
        self._handlers: dict[str, dict[str, Handler]] = {}
        """The same as they were declared."""
        self.flows: dict[str, Flow] = {}
        """Choreographies that this service declares, by their names."""
        self._upcasts: dict[str, Cast] = {}
        self._downcasts: dict[str, Cast] = {}
        self._sagas = SagaBook(name, namespace, self)
        self._sightings = Sightings()
        self.outbox = Outbox(lambda: self.store, lambda: self._drafter)
        self.owner = owner
        self.in_flight = in_flight
        self.wire = wire
        self._terms = Terms(owner=owner, residency=residency).checked(name)
        self._schemas = None if schemas is None else Path(schemas)
        self._aggregates = AggregateBook(self._home)
        self.projections = Projections(
            name, store=lambda: self.store, wiring=lambda: self._wiring, register=self._add_handler
        )
        """The read models, and an operator's verbs for them."""
        self._topics: Topics = topics
        self._limit = limit
        self.inbox_retention = inbox_retention
        self.saga_retention = saga_retention
        self._start: Start = start
        self._relay_settings = relay or RelaySettings()
        self._setups: list[Setup] = []
        self._store: Store | None = None
        self._broker: Broker | None = None
        self._ready = False
        self._opening = asyncio.Lock()
        self._opener: asyncio.Task[object] | None = None
        """The task that opens, whose set-up functions run in transactions before the service is ready."""
        self._runtime: Runtime | None = None
        producer = Producer(
            service=name,
            instance=f"{socket.gethostname()}-{os.getpid()}",
            commit=os.environ.get("POSTHOUSE_COMMIT", ""),
            region=region,
        )
        source = f"/{namespace}/{name}" if namespace else f"/{name}"
        self._draft_with: Callable[[Clock], Drafter] = lambda clock: Drafter(
            producer, source, codec, clock, limit, self._downcasts
        )
        self._drafter = self._draft_with(self.clock)

    # What the service says and hears.

    def event(
        self,
        subject: str,
        *,
        key: str | None = None,
        retention: Retention = "hot",
        owner: str | None = None,
        residency: str | None = None,
        deprecated: date | None = None,
    ) -> Callable[[type[T]], type[T]]:
        """Declare a fact that this service owns: `order.placed.v1`, relative to its namespace and name.

        `key` names the field whose value orders the facts: all of one key are applied in commit order. The class may
        be a Payload, a dataclass, a msgspec Struct or a pydantic model; a plain annotated class becomes a dataclass.
        Its docstring describes the fact. `owner` and `residency` are the service's unless they are given here;
        `deprecated` is the day from which no new consumer should start.
        """
        full = Subject.relative(subject, service=self.name, namespace=self.namespace)
        if (retired := refusal(str(full), self._retired)) is not None:
            raise ConfigurationError(retired)
        terms = Terms(
            retention=retention,
            owner=self._terms.owner if owner is None else owner,
            residency=self._terms.residency if residency is None else residency,
            deprecated=deprecated,
        )
        return self._declared(full, key, self._topics, terms)

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

    def saga(self, name: str, *, correlate: str, policy: Policy | None = None) -> Callable[[type[S]], type[S]]:
        """Run the decorated class as a process. Its `correlate` field is its id, and the field of that name in the events
        that it takes finds it. It is a consumer of its own; `policy` is for its events and its undos alike."""

        def register(cls: type[S]) -> type[S]:
            if (consumer := f"{self.name}.{name}") in self._handlers:
                raise ConfigurationError(f"there is a consumer {consumer!r} already: give the saga another name")
            declared = self._sagas.declare(cls, name, correlate=correlate, policy=policy or Policy())
            for event_type in declared.event_types.values():
                self.catalogue.add(event_type)
            self._handlers[consumer] = {handler.event_types[0].name: handler for handler in self._sagas.handlers(name)}
            self._lift_handlers()
            return cls

        return register

    def aggregate(
        self,
        name: str,
        *,
        initial: Callable[[], State],
        evolve: Evolve[State, Fact],
        events: Sequence[type[object]],
        snapshot_every: int | None = None,
        revision: int = 1,
        conflicts: Conflicts | None = None,
    ) -> Aggregate[State, Fact]:
        """Declare things whose state is the sum of their facts: own events, in one topic, whose key is the id of the thing.
        `initial` makes the state before the first, `evolve` says what a state becomes by one. Appending is publishing.

        `snapshot_every` so many versions the state is kept, as a cache; raise `revision` when `evolve` comes to see the same
        events otherwise, so that older ones are passed over. `conflicts` says how `execute` tries again.
        """
        return self._aggregates.declare(
            name,
            initial=initial,
            evolve=evolve,
            events=events,
            snapshot_every=snapshot_every,
            revision=revision,
            conflicts=conflicts or Conflicts(),
        )

    def projection(
        self,
        name: str,
        *,
        lag_budget: float = 5.0,
        version: int = 1,
        cross_tenant: bool = False,
        strips: Sequence[str] = (),
        keeps: Sequence[str] = (),
    ) -> Projection:
        """Declare a read model: decorate its handlers with `@….on(Event)` and what makes its tables with `@….setup`.

        It is to be at most `lag_budget` seconds behind. Raise `version` when its handlers or tables change, and rebuild it:
        a process feeds only what was built by its own version. With `cross_tenant` it is for readers of any tenant: every
        field of its events that is marked as personal data must be named in `strips`, or in `keeps`; what is stripped is
        None before a handler sees it.
        """
        terms = ModelTerms(version, lag_budget, cross_tenant, tuple(strips), tuple(keeps))
        if f"{self.name}.{name}" in self._handlers:
            raise ConfigurationError(
                f"there is a consumer {self.name}.{name} already: give the projection another name"
            )
        return self.projections.declare(name, terms)

    def setup(self, function: Setup) -> Setup:
        """Run the decorated function once when the service opens, in a transaction of its own; for your own tables."""
        self._setups.append(function)
        return function

    # What the service does.

    def transaction(
        self, tenant: str, *, correlation: str | None = None, actor: Actor | None = None, traceparent: str | None = None
    ) -> AbstractAsyncContextManager[Tx]:
        """One database transaction: committed when the block ends, with everything that was published in it."""
        cause = Cause(tenant=tenant, correlation=correlation, actor=actor, traceparent=traceparent)
        return Block(self._begin, cause)

    async def _begin(self, cause: Cause) -> tuple[AbstractAsyncContextManager[Transaction], Tx]:
        if not self._ready:
            await self.open()
        store = self.store
        block = store.begin(tenant=cause.tenant)
        return block, Tx(await block.__aenter__(), store, self._drafter, cause, self._parts.clock)

    async def start_saga(self, tx: Tx, saga: Saga) -> bool:
        """Start a saga in this transaction: its `@starts` method runs at once. False, and nothing done, when there is one
        with its id."""
        return await self._sagas.of(saga).start(tx, saga)

    @property
    def sagas(self) -> SagaDesk:
        """The operator's verbs for sagas."""
        return SagaDesk(self._sagas, self)

    @property
    def saga_types(self) -> Mapping[str, SagaType]:
        """The sagas that are declared here, by name."""
        return self._sagas.types

    @property
    def internal_events(self) -> Sequence[EventType[object]]:
        """What the library says to itself in this service's name: it has topics, and no place in the catalogue."""
        return self._sagas.internal_events

    async def run(
        self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None, stop: asyncio.Event | None = None
    ) -> None:
        """Run relay, consumers and timers until `stop` is set; what is in flight is finished. `relay` says where its rows
        come from, in place of the relay's settings."""
        runtime = await self.prepare(relay=relay if "relay" in only else "poll")
        await runtime.run(stop or asyncio.Event(), only)

    @asynccontextmanager
    async def running(self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None) -> AsyncIterator[None]:
        """`run` in the background of a block, as in the lifespan of a web application; then stop and close."""
        stop = asyncio.Event()
        try:
            await self.prepare(relay=relay if "relay" in only else "poll")
            task = asyncio.create_task(self.run(only=only, relay=relay, stop=stop))
            try:
                yield
            finally:
                stop.set()
                await task
        finally:
            await self.aclose()

    async def prepare(self, *, relay: RelaySource | None = None) -> Runtime:
        """Open everything, check that it can keep the promise, make the topics, and build the tasks. `relay`: where its
        rows come from, in place of the relay's settings; the log is refused when it cannot be followed."""
        await self.open()
        if self._runtime is None:
            await self._refuse_what_cannot_work()
        await self.broker.ensure(self.topology())
        if self._runtime is None:
            self._runtime = await self._wire(relay or self._relay_settings.source)
        return self._runtime

    @property
    def clock(self) -> Clock:
        """The clock that everything here follows."""
        return self._parts.clock

    @property
    def today(self) -> date:
        """The day by that clock, in UTC."""
        return datetime.fromtimestamp(self.clock.now(), UTC).date()

    @property
    def store(self) -> Store:
        """The store, opened at first use."""
        if self._store is None:
            given = self._parts.store
            self._store = (
                open_store(self.store_url, clock=self.clock) if given is None or isinstance(given, str) else given
            )
        return self._store

    @property
    def broker(self) -> Broker:
        """The broker, opened at first use."""
        if self._broker is None:
            given = self._parts.broker
            self._broker = (
                open_broker(self.broker_url, clock=self.clock) if given is None or isinstance(given, str) else given
            )
        return self._broker

    @property
    def store_url(self) -> str:
        """Where the store is; the name of its class when the service was given an object."""
        given = self._parts.store or os.environ.get("POSTHOUSE_STORE") or f"sqlite:///{self.name}.db"
        return given if isinstance(given, str) else type(given).__name__

    @property
    def broker_url(self) -> str:
        """Where the broker is; the name on its sheet when the service was given an object."""
        given = self._parts.broker or os.environ.get("POSTHOUSE_BROKER") or "embedded:///posthouse-log.db"
        return given if isinstance(given, str) else given.sheet.name

    @property
    def desk(self) -> Desk:
        """The operator's verbs for held events."""
        return Desk(self.store, self.clock)

    async def open(self) -> None:
        """Bring an embedded store up to date, refuse another one that is not, and run the set-up functions. Idempotent."""
        if self._ready or self._opener is asyncio.current_task():
            return
        async with self._opening:
            if self._ready:
                return
            self._opener = asyncio.current_task()
            try:
                await self._open()
            finally:
                self._opener = None
            self._ready = True

    async def _open(self) -> None:
        pending = await self.store.pending_migrations()
        if pending and not self.store.embedded:
            raise StoreOutdated(f"the store of {self.name} lacks {', '.join(pending)}: run `posthouse db upgrade`")
        if pending:
            await self.store.upgrade()
        self._drafter.limit_to(self.broker.sheet.max_bytes)
        for function in self._setups:
            async with self.transaction("platform") as tx:
                await function(tx)
        await self.projections.open()

    def use(self, parts: Parts) -> Parts:
        """Run on other parts from the next opening on, as tests do; returns those before. Close the service first."""
        before, self._parts = self._parts, parts
        self._forget()
        self._drafter = self._draft_with(parts.clock)
        return before

    async def aclose(self) -> None:
        """Close store and broker. Idempotent; a service that was given URLs can be opened again."""
        if self._broker is not None:
            await self._broker.aclose()
        if self._store is not None:
            await self._store.aclose()
        self._forget()

    def _forget(self) -> None:
        """Open everything anew at the next use, which may be on another event loop."""
        self._store, self._broker, self._runtime, self._ready = None, None, None, False
        self._sightings = Sightings()
        self.projections.forget()
        self._opening = asyncio.Lock()

    def topology(self) -> Topology:
        """The topics this service writes and reads, with their dead letters, and who reads what."""
        groups = {name: sorted(_topics_of(handlers)) for name, handlers in self._standing.items()}
        read = {topic for handlers in self.consumers.values() for topic in _topics_of(handlers)}
        groups |= {name: list(topics) for name, topics in self.projections.groups().items()}
        own = {event_type.topic for event_type in self.catalogue}
        return Topology(topics=sorted(read | own | {dead_letter_topic(topic) for topic in read}), groups=groups)

    # How it is wired.

    def _declared(
        self, subject: Subject, key: str | None, topics: Topics, terms: Terms | None = None
    ) -> Callable[[type[T]], type[T]]:
        def made(cls: type[T]) -> type[T]:
            event_type = declare(cls, subject, key=key, topics=topics, terms=terms)
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

    @property
    def _standing(self) -> Mapping[str, Mapping[str, Handler]]:
        """The consumers whose group is called as they are: all but read models, where each generation has its own."""
        return {name: handlers for name, handlers in self.consumers.items() if not self.projections.has(name)}

    @property
    def _wiring(self) -> Wiring:
        wanted = {known.name: name for name, aggregate in self._aggregates.items() for known in aggregate.events}
        for old in self._upcasts:
            if old not in wanted and (steps := chain(self._upcasts, old, wanted)):
                wanted = {**wanted, old: wanted[steps[-1].target.name]}
        return Wiring(
            store=self.store,
            broker=self.broker,
            clock=self.clock,
            start=self._start,
            in_flight=self.in_flight,
            aggregates={name: found for name, found in wanted.items() if name not in self.published_beside},
            handlers=lambda consumer: self.consumers.get(consumer, {}),
            applier=self._applier,
            transaction=self.transaction,
        )

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
    def aggregates(self) -> Mapping[str, Aggregate[object, object]]:
        """The aggregates that are declared here, by name."""
        return self._aggregates

    @property
    def _home(self) -> Home:
        return Home(
            store=lambda: self.store,
            transaction=self.transaction,
            owns=self._owns,
            upcasts=self._upcasts,
            sight=self._sight(),
        )

    def _sight(self) -> FirstSight:
        return FirstSight(None if self._schemas is None else partial(lock_in, self._schemas), lambda: self.clock.now())

    @property
    def published_beside(self) -> Mapping[str, str]:
        """Subjects of older versions that are published beside a newer one, with the newer one."""
        return {cast.target.name: cast.source.name for cast in self._downcasts.values()}

    async def _refuse_what_cannot_work(self) -> None:
        """Every problem at once, of the store, the broker and the handlers; what only weakens the promise is logged."""
        checks = [*await self.store.checks(today=False), *await self.broker.checks(today=False)]
        problems = [*refusals(checks), *self._unworkable()]
        if problems:
            raise ConfigurationError(*dict.fromkeys(problems))
        past = deprecations(list(self.catalogue), self.today, past=True)
        for warning in dict.fromkeys([*warnings(checks), *past]):
            log.warning("%s: %s", self.name, warning)

    def _unworkable(self) -> list[str]:
        """What was declared and cannot work."""
        problems = [] if self._schemas is None else unfrozen(self._schemas, self._own_events())
        handled = {name for handlers in self._handlers.values() for name in handlers}
        handled |= {event_type.name for event_type in self._aggregates.events}
        problems += missing_links(self._upcasts, handled, list(self.catalogue))
        problems += self.projections.problems()
        redelivery = self.broker.sheet.redelivery_s
        for name, handlers in self.consumers.items():
            for handler in set(handlers.values()):
                problems += [*handler.policy.problems(handler.name), *handler.problems(self.store)]
                horizon = handler.policy.horizon + redelivery
                if self.inbox_retention < horizon:
                    problems.append(
                        f"{handler.name}: an event may come again after {horizon:,.0f} s ({redelivery:,.0f} s by the broker, "
                        f"the rest by its retries), but the inbox remembers only {self.inbox_retention:,.0f} s: raise "
                        "inbox_retention, or shorten the retries or the broker's retention"
                    )
            problems += _order_conflicts(name, handlers)
        return problems

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

    def _note_sent(self, watched: Mapping[str, str], topics: Collection[str], rows: Sequence[OutboxRow]) -> None:
        """Which of the watched versions the broker accepted."""
        for row in rows:
            if row.topic in topics:
                with suppress(DecodeError):
                    name = decode_any(row.headers, row.body).type
                    if name in watched:
                        self._sightings.note("published", self.name, name, self.clock.now())

    async def _wire(self, source: RelaySource) -> Runtime:
        tail = await self.store.tail() if source == "wal" else None
        appliers = [await self._applier(name, handlers, self._start) for name, handlers in self._standing.items()]
        watched = self._watched()
        sent = partial(self._note_sent, watched, frozenset(watched.values())) if watched else None
        return Runtime(
            name=self.name,
            store=self.store,
            broker=self.broker,
            clock=self.clock,
            relay=Relay(self.store, self.broker, self.clock, self._relay_settings, tail, sent),
            timers=Timers(self.store, self.clock),
            consumers=[
                Consumer(a, self.broker, self.clock, start=self._start, in_flight=self.in_flight) for a in appliers
            ],
            retriers=[Retrier(applier, self.clock) for applier in appliers],
            inbox_retention=self.inbox_retention,
            saga_retention=self.saga_retention if self.saga_types else None,
            sightings=self._sightings,
            projections=self.projections.keeper(),
        )

    async def _applier(self, name: str, handlers: Mapping[str, Handler], start: Start) -> Applier:
        topics = _topics_of(handlers)
        progress = await self.broker.progress(name, sorted(topics))
        late = {topic: start != "earliest" or progress[topic].truncated for topic in topics}
        return Applier(
            consumer=name,
            handlers=handlers,
            ordered={topic: all(h.policy.order == "key" for h in _readers(handlers, topic)) for topic in topics},
            adopts={topic: await self.store.inbox.register(name, topic, late[topic]) for topic in topics},
            store=self.store,
            drafter=self._drafter,
            clock=self.clock,
            remembers=self.inbox_retention,
            limit=self._limit + METADATA_LIMIT,
            sightings=self._sightings,
            sight=self._sight(),
        )


def _topics_of(handlers: Mapping[str, Handler]) -> set[str]:
    return {event_type.topic for handler in handlers.values() for event_type in handler.event_types}


def _readers(handlers: Mapping[str, Handler], topic: str) -> list[Handler]:
    return [h for h in handlers.values() if any(event_type.topic == topic for event_type in h.event_types)]


def _order_conflicts(name: str, handlers: Mapping[str, Handler]) -> list[str]:
    return [
        f"consumer {name!r}: its handlers of {topic} do not agree on order: give those without order a consumer of their own"
        for topic in sorted(_topics_of(handlers))
        if len({handler.policy.order for handler in _readers(handlers, topic)}) > 1
    ]
