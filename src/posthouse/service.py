"""Service: the front door. Declares what a service says and hears, and wires the parts that keep the promise."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from posthouse.broker import Broker, Start, Topology
from posthouse.brokers import open_broker
from posthouse.checks import refusals, warnings
from posthouse.clock import Clock, SystemClock
from posthouse.contracts import EventType, Topics
from posthouse.contracts.deprecation import deprecations
from posthouse.contracts.versions import chain, missing_links
from posthouse.declaring import Declarations
from posthouse.errors import ConfigurationError, DecodeError, StoreOutdated, did_you_mean
from posthouse.events import CODECS, METADATA_LIMIT, Actor, Producer, decode_any
from posthouse.frozen import lock_in, unfrozen
from posthouse.processes import (
    Aggregate,
    AggregateBook,
    Conflicts,
    Projection,
    Projections,
    Saga,
    SagaBook,
    SagaInstances,
    SagaType,
    Timers,
)
from posthouse.processes.projection import Terms as ModelTerms
from posthouse.processes.projection import Wiring
from posthouse.processes.stream import Evolve, Home
from posthouse.receiving import Consumer, Executor, Handler, HeldEvents, Policy, Retrier, dead_letter_topic
from posthouse.receiving.readers import is_ordered, problems_of, topics_of
from posthouse.runtime import PARTS, Part, Runtime
from posthouse.seam import EnvelopeBuilder, EventContext, SchemaGuard, VersionUsage
from posthouse.sending import Outbox, Relay, RelaySettings, TransactionScope, Tx, record
from posthouse.store import OutboxRow, Parameters, RelaySource, Store, Transaction
from posthouse.stores import open_store

log = logging.getLogger("posthouse.service")

S = TypeVar("S", bound=Saga)
State = TypeVar("State")
Fact = TypeVar("Fact")
Wire = Literal["structured", "binary", "melmastoon"]

DAY = 86_400.0


class Parts(NamedTuple):
    """What a service runs on: URLs, or objects, or None for the embedded default."""

    store: str | Store | None
    broker: str | Broker | None
    clock: Clock


class Service(Declarations):
    """One service: a name, a store, a broker, the events it owns and the handlers it runs.

    Without URLs it needs no server: `sqlite:///<name>.db` and `embedded:///posthouse-log.db`, or what the environment
    says in POSTHOUSE_STORE and POSTHOUSE_BROKER. `topics` maps event types to topics: one per `aggregate` keeps all
    facts about one thing in order, one per `subject` gives each type its own. `limit` is the largest event, in bytes,
    that it says or reads; `inbox_retention` the seconds for which unordered events are remembered, `saga_retention`
    those for which a saga that ended is kept, with its history; `start` where a new
    consumer begins: with `latest`, each key with the first number that is seen of it. `owner` is the team that answers for its events, `residency` the region that their data must not
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
        super().__init__(name, namespace, topics=topics, owner=owner, residency=residency, schemas=schemas)
        self._parts = Parts(store, broker, clock or SystemClock())
        self._sagas = SagaBook(name, namespace, self)
        self._version_usage = VersionUsage()
        self.outbox = Outbox(lambda: self.store, lambda: self._builder)
        self.in_flight = in_flight
        self.wire = wire
        self._aggregates = AggregateBook(self._home)
        self.projections = Projections(
            name, store=lambda: self.store, wiring=lambda: self._wiring, register=self._add_handler
        )
        """The read models, and an operator's verbs for them."""
        self._limit = limit
        self.inbox_retention = inbox_retention
        self.saga_retention = saga_retention
        self._start: Start = start
        self._relay_settings = relay or RelaySettings()
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
        self._build_with: Callable[[Clock], EnvelopeBuilder] = lambda clock: EnvelopeBuilder(
            producer, source, codec, clock, limit, self._downcasts
        )
        self._builder = self._build_with(self.clock)

    # What takes its time.

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

    # What the service does.

    def transaction(
        self, tenant: str, *, correlation: str | None = None, actor: Actor | None = None, traceparent: str | None = None
    ) -> AbstractAsyncContextManager[Tx]:
        """One database transaction: committed when the block ends, with everything that was published in it."""
        cause = EventContext(tenant=tenant, correlation=correlation, actor=actor, traceparent=traceparent)
        return TransactionScope(self._begin, cause)

    async def record(
        self,
        tenant: str,
        sql: str,
        parameters: Parameters,
        *facts: object,
        correlation: str | None = None,
        actor: Actor | None = None,
        traceparent: str | None = None,
    ) -> bool:
        """Run one INSERT, UPDATE or DELETE of yours and, if it changed a row, say what follows from it, in a transaction of
        their own; whether it did. With one fact on PostgreSQL that is one round trip, where a block takes three."""
        if not facts:
            raise ConfigurationError("there is no fact to record: give one after the parameters, or use a transaction")
        if not self._ready:
            await self.open()
        cause = EventContext(tenant=tenant, correlation=correlation, actor=actor, traceparent=traceparent)
        return await record(self.store, self._begin, self._builder, cause, sql, parameters, facts)

    def joined(
        self,
        theirs: object,
        tenant: str,
        *,
        correlation: str | None = None,
        actor: Actor | None = None,
        traceparent: str | None = None,
    ) -> AbstractAsyncContextManager[Tx]:
        """A Tx on a transaction that you began, on a connection or session that the store can join: to publish, start sagas
        and decide on aggregates there. What was said is written when the block ends; whether it stays is up to you."""
        cause = EventContext(tenant=tenant, correlation=correlation, actor=actor, traceparent=traceparent)
        return TransactionScope(partial(self._join, theirs), cause)

    async def _join(self, theirs: object, cause: EventContext) -> tuple[AbstractAsyncContextManager[object], Tx]:
        if not self._ready:
            await self.open()
        transaction, attending = self.store.join(theirs), AsyncExitStack()
        attending.callback(await transaction.attend())
        return attending, Tx(transaction, self.store, self._builder, cause, self._parts.clock)

    async def _begin(self, cause: EventContext) -> tuple[AbstractAsyncContextManager[Transaction], Tx]:
        if not self._ready:
            await self.open()
        store = self.store
        block = store.begin(tenant=cause.tenant)
        return block, Tx(await block.__aenter__(), store, self._builder, cause, self._parts.clock)

    async def start_saga(self, tx: Tx, saga: Saga) -> bool:
        """Start a saga in this transaction: its `@starts` method runs at once. False, and nothing done, when there is one
        with its id."""
        return await self._sagas.of(saga).start(tx, saga)

    @property
    def sagas(self) -> SagaInstances:
        """The operator's verbs for sagas."""
        return SagaInstances(self._sagas, self)

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
            runtime = await self.prepare(relay=relay if "relay" in only else "poll")
            task = asyncio.create_task(self.run(only=only, relay=relay, stop=stop))
            try:
                if "consumers" in only:
                    await runtime.begun(task)
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
    def desk(self) -> HeldEvents:
        """The operator's verbs for held events."""
        return HeldEvents(self.store)

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
        self._builder.suit(self.broker.sheet)
        for function in self._setups:
            async with self.transaction("platform") as tx:
                await function(tx)
        await self.projections.open()

    def use(self, parts: Parts) -> Parts:
        """Run on other parts from the next opening on, as tests do; returns those before. Close the service first."""
        before, self._parts = self._parts, parts
        self._forget()
        self._builder = self._build_with(parts.clock)
        return before

    async def aclose(self) -> None:
        """Close store and broker. Idempotent; a service that was given URLs can be opened again."""
        try:
            if self._broker is not None:
                await self._broker.aclose()
        finally:
            try:
                if self._store is not None:
                    await self._store.aclose()
            finally:
                self._forget()

    def _forget(self) -> None:
        """Open everything anew at the next use, which may be on another event loop."""
        self._store, self._broker, self._runtime, self._ready = None, None, None, False
        self._version_usage = VersionUsage()
        self.projections.forget()
        self._opening = asyncio.Lock()

    def topology(self) -> Topology:
        """The topics this service writes and reads, with their dead letters, and who reads what."""
        groups = {name: sorted(topics_of(handlers)) for name, handlers in self.groups.items()}
        read = {topic for handlers in self.consumers.values() for topic in topics_of(handlers)}
        own = {event_type.topic for event_type in self.catalogue}
        return Topology(topics=sorted(read | own | {dead_letter_topic(topic) for topic in read}), groups=groups)

    @property
    def groups(self) -> Mapping[str, Mapping[str, Handler]]:
        """Handlers by consumer group and subject: as `consumers`, but of a read model the group of the generation that is
        live, once the store was asked for it."""
        return {**self._standing, **{group: self.consumers[of] for group, of in self.projections.groups().items()}}

    # How it is wired.

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
            executor=self._executor,
            transaction=self.transaction,
        )

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

    def _sight(self) -> SchemaGuard:
        return SchemaGuard(None if self._schemas is None else partial(lock_in, self._schemas), lambda: self.clock.now())

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
            problems += problems_of(name, handlers, self.store, remembers=self.inbox_retention, redelivery=redelivery)
        return problems

    def _note_sent(self, watched: Mapping[str, str], topics: Collection[str], rows: Sequence[OutboxRow]) -> None:
        """Which of the watched versions the broker accepted."""
        for row in rows:
            if row.topic in topics:
                with suppress(DecodeError):
                    name = decode_any(row.headers, row.body).type
                    if name in watched:
                        self._version_usage.note("published", self.name, name, self.clock.now())

    async def _wire(self, source: RelaySource) -> Runtime:
        tail = await self.store.wal_reader() if source == "wal" else None
        executors = [await self._executor(name, handlers, self._start) for name, handlers in self._standing.items()]
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
                Consumer(a, self.broker, self.clock, start=self._start, in_flight=self.in_flight) for a in executors
            ],
            retriers=[Retrier(executor, self.clock) for executor in executors],
            inbox_retention=self.inbox_retention,
            saga_retention=self.saga_retention if self.saga_types else None,
            version_usage=self._version_usage,
            projections=self.projections.keeper(),
        )

    async def _executor(self, name: str, handlers: Mapping[str, Handler], start: Start) -> Executor:
        topics = topics_of(handlers)
        progress = await self.broker.progress(name, sorted(topics))
        late = {topic: start != "earliest" or progress[topic].truncated for topic in topics}
        return Executor(
            consumer=name,
            handlers=handlers,
            ordered={topic: is_ordered(handlers, topic) for topic in topics},
            adopts={topic: await self.store.inbox.register(name, topic, late[topic]) for topic in topics},
            store=self.store,
            builder=self._builder,
            clock=self.clock,
            limit=self._limit + METADATA_LIMIT,
            version_usage=self._version_usage,
            guard=self._sight(),
        )
