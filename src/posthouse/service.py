"""Service: what a service declares, as a value. What runs it is its host, the App: the methods at the end only hand on to it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date
from functools import partial, wraps
from pathlib import Path
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from posthouse.contracts import Idempotency, Retention, Terms, Topics, declare, event_type_of, events_of, flow_of
from posthouse.contracts.retirement import refusal
from posthouse.contracts.versions import cast_of
from posthouse.declarations import Declarations, Setup
from posthouse.errors import ConfigurationError, EventError, did_you_mean
from posthouse.events import CODECS, DEFAULT_TENANT, UNNAMED, Actor, Event, Subject, Unnamed
from posthouse.events.subject import subject_for, why_no_token
from posthouse.health import Health
from posthouse.host import Host
from posthouse.options import checked
from posthouse.processes import Aggregate, Calendar, Conflicts, Projection, Run, Saga, SagaStart
from posthouse.processes.projection import Terms as ModelTerms
from posthouse.processes.saga.declared import EARLY_WITHIN, OPERATOR
from posthouse.processes.schedule import Missed, Tenants
from posthouse.processes.stream import Decision, Evolve
from posthouse.processes.stream.declaring import aggregate_of
from posthouse.receiving import Calling, HeldEvents, Policy, Uses, consumer_name, handler_of
from posthouse.receiving.typed import HandlerOptions, Handles, OnReplay
from posthouse.runtime import PARTS, Part
from posthouse.seam import EnvelopeBuilder, context_here, tenant_here
from posthouse.sending import Outbox, TransactionScope, Tx
from posthouse.store import Parameters, RelaySource, Store
from posthouse.store.sagas import End

T = TypeVar("T")
S = TypeVar("S", bound=Saga)
Old = TypeVar("Old")
New = TypeVar("New")
State = TypeVar("State")
Fact = TypeVar("Fact")
F = TypeVar("F", bound=Callable[..., object])
Runs = TypeVar("Runs", bound=Callable[[Run, Any], object] | Callable[[Run], object])
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")

Envelope = Literal["structured", "binary"] | str


def _with_parentheses(guess: Callable[[type], str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Say what to write to whoever decorates a class without having called the decorator."""

    def around(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            service, *rest = args
            if len(rest) == 1 and not kwargs and isinstance(rest[0], type):
                written = f"@{service.name}.{method.__name__}({guess(rest[0])})"  # type: ignore[attr-defined]  # a Service
                raise ConfigurationError(f"{written} is how it is written above the class {rest[0].__name__}")
            return method(*args, **kwargs)

        return call

    return around


def _name(function: object) -> str:
    return str(getattr(function, "__name__", "tables"))


class Service:
    """One service: its name, the events that it owns and the handlers that it runs.

    `topics` maps event types to topics: one per `aggregate` keeps all facts about one thing in order, one per `subject` gives
    each type its own. `envelope` is the form of its events on the wire. `owner` is the team that answers for its events,
    `residency` the region that their data must not leave; an event may say otherwise. `schemas` is the folder of frozen
    schemas: what it says must be in there, and what it reads is compared with it. `not_past` lists facts whose verb is no past
    tense, as `verb` or `aggregate.verb`. `default_tenant` is whose everything is that names no tenant; None, for a service of
    many: EventError then. `calendar` says what working time is, for deadlines that count it.
    """

    default_host: ClassVar[Callable[[Service], Host] | None] = None
    """Makes the host of a service that has none: `posthouse.app` says so here when it is imported."""

    @checked
    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        topics: Topics = "aggregate",
        envelope: Envelope = "structured",
        owner: str = "",
        residency: str | None = None,
        schemas: str | Path | None = None,
        not_past: Collection[str] = (),
        default_tenant: str | None = DEFAULT_TENANT,
        calendar: Calendar | None = None,
    ) -> None:
        for word in (name, namespace):
            if word is not None and (wrong := why_no_token(word)):
                raise ConfigurationError(f"the service {name!r}: {word!r} {wrong}")
        if envelope not in CODECS:
            raise ConfigurationError(f"there is no envelope {envelope!r}.{did_you_mean(envelope, CODECS)}")
        self.name = name
        self.namespace = namespace
        self.envelope = envelope
        self.owner = owner
        self.declared = Declarations(name, namespace, None if schemas is None else Path(schemas))
        """What has been declared so far."""
        self.not_past = tuple(not_past)
        self.default_tenant = default_tenant
        self.calendar = calendar
        self._topics: Topics = topics
        self._terms = Terms(owner=owner, residency=residency).checked(name)
        self._host: Host | None = None

    @property
    def host(self) -> Host:
        """The App that was made over this service last; without any, one of its own, with all defaults."""
        if self._host is None:
            if Service.default_host is None:
                raise ConfigurationError(f"nothing can run {self.name!r}: import posthouse, not its modules alone")
            self._host = Service.default_host(self)
        return self._host

    def hosted_by(self, host: Host | None) -> Host | None:
        """Let another App run it from now on, None: one of its own; returns the one before, None when there was none."""
        before, self._host = self._host, host
        return before

    @property
    def source(self) -> str:
        """Who it is in the facts that it says."""
        return f"/{self.namespace}/{self.name}" if self.namespace else f"/{self.name}"

    # What it says and hears.

    @_with_parentheses(lambda given: f"'{subject_for(given.__name__)}'")
    @checked
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
        idempotency: Idempotency = "optional",
        not_past: bool = False,
        about: str = "",
    ) -> Callable[[type[T]], type[T]]:
        """Declare a fact that this service owns: `order.placed.v1`, relative to its namespace and name.

        `key` names the field whose value orders the facts: all of one key are applied in commit order. The class may
        be a Payload, a dataclass, a msgspec Struct or a pydantic model; a plain annotated class becomes a dataclass.
        Its docstring describes the fact. `owner` and `residency` are the service's unless they are given here;
        `deprecated` is the day from which no new consumer should start. `provenance` names the field that says which model
        made the fact: it travels in the envelope too, and consumers hold one that comes without. `cross_tenant`: it is about
        several tenants, or for readers of all; then its topic must be on the list of the rules. `idempotency="required"`
        refuses a fact without an idempotency key; what a handler says of one event has one. `not_past`: it is a fact although
        its verb is no past tense, as `vendor.error`.
        `about` names the field that says whom its personal fields are about, dots reaching inside: under that person's key they
        are kept secret.
        """
        if not_past:
            self.not_past = (*self.not_past, ".".join(subject.split(".")[:-1][-2:]))
        full = Subject.relative(subject, service=self.name, namespace=self.namespace, exceptions=self.not_past)
        if (retired := refusal(str(full), self.declared.retired)) is not None:
            raise ConfigurationError(retired)
        terms = Terms(
            retention=retention,
            owner=self._terms.owner if owner is None else owner,
            residency=self._terms.residency if residency is None else residency,
            deprecated=deprecated,
            cross_tenant=cross_tenant,
            idempotency=idempotency,
        )
        return self._event(full, key, self._topics, terms, provenance, about)

    @_with_parentheses(lambda given: f"'other.{subject_for(given.__name__)}'")
    @checked
    def external(
        self,
        subject: str,
        *,
        key: str | None = None,
        topics: Topics | None = None,
        provenance: bool = False,
    ) -> Callable[[type[T]], type[T]]:
        """Declare a fact of another service, as this one reads it: the full subject, and only the fields it needs. `provenance`:
        a model makes it, so that one whose envelope does not say which is held."""
        return self._event(
            Subject.parse(subject, past=False), key, topics or self._topics, provenance="" if provenance else None
        )

    def _event(
        self,
        subject: Subject,
        key: str | None,
        topics: Topics,
        terms: Terms | None = None,
        provenance: str | None = None,
        about: str = "",
    ) -> Callable[[type[T]], type[T]]:
        def made(cls: type[T]) -> type[T]:
            if not isinstance(cls, type):
                raise ConfigurationError(f"{subject} is declared by a class that has its fields, not by {cls!r:.60}")
            event_type = declare(cls, subject, key=key, topics=topics, terms=terms, provenance=provenance, about=about)
            self.declared.catalogue.add(event_type)
            return event_type.payload.cls

        return made

    @overload
    def on(self, event: type[A], /, **options: Unpack[HandlerOptions]) -> Handles[Event[A]]: ...

    @overload
    def on(self, first: type[A], second: type[B], /, **options: Unpack[HandlerOptions]) -> Handles[Event[A | B]]: ...

    @overload
    def on(
        self, first: type[A], second: type[B], third: type[C], /, **options: Unpack[HandlerOptions]
    ) -> Handles[Event[A | B | C]]: ...

    @overload
    def on(self, *events: type[object], **options: Unpack[HandlerOptions]) -> Callable[[F], F]: ...

    @checked
    def on(
        self,
        *events: object,
        consumer: str | None = None,
        policy: Policy | None = None,
        reads: Sequence[str] | None = None,
        publishes: Sequence[type[object]] = (),
        calling: Calling | None = None,
        replay: OnReplay | None = None,
    ) -> object:
        """Run the decorated function for each of these events, once, in order per key, in one transaction.

        Handlers of one consumer share its place in the topics; a second handler for the same event needs a `consumer`
        of its own. What the function returns is published in the same transaction.

        `calling` is for what no transaction can take back: a vendor's API. It is given the event before the transaction
        begins, and the function gets its answer as a third argument. It may be called again for the same event, after a
        failure or a crash, so it says the same key to the vendor each time; it is not called for a duplicate.

        `replay` is what becomes of it when an operator has events applied once more (`posthouse replay --reprocess`): "apply" runs
        the function, with its call if it has one; "skip" passes over the event; "without_calls" runs it with None as the answer.
        Where nothing is said "apply", and with `calling` the replay is refused: a vendor would be called twice.

        For the catalogue: `reads` names the payload fields that the function looks at, dots reaching inside; without it
        any change of the event may touch it. `publishes` names the events that it publishes through its Tx; those of
        its return annotation are known.
        """
        types = events_of(f"{self.name}.on", events)
        name = self.name if consumer is None else f"{self.name}.{consumer_name(consumer)}"

        def register(function: F) -> F:
            uses = Uses.of(types, reads, publishes, by=self.name)
            self.declared.add_handler(name, handler_of(function, types, policy or Policy(), uses, calling, replay))
            return function

        return register

    @checked
    def upcast(self, old: type[Old], *, to: type[New]) -> Callable[[Callable[[Old], New]], Callable[[Old], New]]:
        """Let handlers of `to` also take `old`, an earlier version of the same fact, as the decorated function lifts it.

        Functions are chained: with one from v1 to v2 and one from v2 to v3, a handler of v3 gets all three. It sees the
        envelope as it came and the payload lifted. A function that raises leaves the event held, as a breach of contract.
        """

        def register(function: Callable[[Old], New]) -> Callable[[Old], New]:
            self.declared.add_upcast(cast_of("upcast", old, to, function))
            return function

        return register

    @checked
    def downcast(self, new: type[New], *, to: type[Old]) -> Callable[[Callable[[New], Old]], Callable[[New], Old]]:
        """Publish each `new` also as `to`, an earlier version of the same fact, as the decorated function makes it.

        Both are written in the same transaction, under the same key. Functions are chained. A consumer that takes several
        versions applies the fact once. Remove the function to publish `new` alone again.
        """

        def register(function: Callable[[New], Old]) -> Callable[[New], Old]:
            self.declared.add_downcast(cast_of("downcast", new, to, function))
            return function

        return register

    @checked
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
        flows = self.declared.flows
        flows[name] = flow_of(name, starts, then, may, description, known=flows)

    @checked
    def setup(self, function: Setup) -> Setup:
        """Run the decorated function once when the service opens, in a transaction of its own; for your own tables."""
        if not inspect.iscoroutinefunction(function) or len(inspect.signature(function).parameters) != 1:
            raise ConfigurationError(
                f"{self.name}.setup takes an async function of a Tx: `async def {_name(function)}(tx: Tx)`"
            )
        self.declared.setups.append(function)
        return function

    # What takes its time.

    @_with_parentheses(lambda given: f"'{given.__name__.lower()}', correlate='order_id'")
    @checked
    def saga(
        self,
        name: str,
        *,
        correlate: str,
        index: Sequence[str] = (),
        again: Sequence[End] = (),
        operator: str = OPERATOR,
        early_within: float = EARLY_WITHIN,
        policy: Policy | None = None,
    ) -> Callable[[type[S]], type[S]]:
        """Run the decorated class as a process. Its `correlate` field is its id, and the field of that name in the events
        that it takes finds it; operators find it by the fields in `index` as well. There is one saga per id for ever; when it
        ended as one of `again`, the same id may begin again, as its next attempt. `operator` is the role of those who decide
        when it rests, partial or with a failed compensation. Events that come too early wait for it `early_within` so many
        seconds, and are dead letters then. It is a consumer of its own; `policy` is
        for its events and its undos alike."""

        def register(cls: type[S]) -> type[S]:
            self.declared.refuse_taken(f"{self.name}.{name}", "saga")
            sagas = self.declared.sagas
            of = sagas.declare(
                cls,
                name,
                correlate=correlate,
                index=index,
                again=again,
                operator=operator,
                early_within=early_within,
                policy=policy or Policy(),
                calendar=self.calendar,
            )
            self.declared.add_saga(of)
            return cls

        return register

    @checked
    def every(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        missed: Missed = "once",
        tenants: Tenants | None = None,
        policy: Policy | None = None,
    ) -> Callable[[Runs], Runs]:
        """Run the decorated function, `(run, tx)`, at the moments of an expression of cron, five fields in the time zone `tz`:
        once for each moment however many processes there are, in a transaction of this service, tried again by `policy`.

        `name` is the function's unless given: under it operators find it. `missed` says what becomes of moments that passed
        while nothing ran: one run for all of them (`once`), one each (`all`), or none for what is more than a minute late
        (`skip`). `tenants` says for whom a moment has a run: a list, or an async function of a Tx that names them when the
        moment has come. Without it, the service's default tenant has it.
        """

        def register(function: Runs) -> Runs:
            whose = tenants
            if whose is None:
                if self.default_tenant is None:
                    raise ConfigurationError(
                        f"{self.name} has many tenants (default_tenant=None): say for whom {self.name}.every({expression!r}) runs, "
                        "with tenants=[…] or an async function of a Tx"
                    )
                whose = (self.default_tenant,)
            schedules = self.declared.schedules
            if not schedules.internal_events:
                self.declared.refuse_taken(schedules.consumer, "other one")
            made = schedules.declare(
                function,
                expression,
                tz=tz,
                name=name,
                missed=missed,
                tenants=whose,
                whose=tenants is not None,
                policy=policy or Policy(),
            )
            self.declared.add_schedule(made)
            return function

        return register

    @checked
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
        delete: Decision[State, Fact] | None = None,
    ) -> Aggregate[State, Fact]:
        """Declare things whose state is the sum of their facts: own events, in one topic, whose key is the id of the thing.
        `initial` makes the state before the first, `evolve` says what a state becomes by one. Appending is publishing.

        `snapshot_every` so many versions the state is kept, as a cache; raise `revision` when `evolve` comes to see the same
        events otherwise, so that older ones are passed over. `conflicts` says how `execute` tries again. `delete` decides what
        is said last of one that is deleted; without it none can be.
        """
        declared = self.declared
        made = aggregate_of(
            name,
            self.transaction,
            initial=initial,
            evolve=evolve,
            events=[event_type_of(cls) for cls in events],
            owns=declared.owns,
            upcasts=declared.upcasts,
            guard=declared.guard,
            others={other: known.events for other, known in declared.aggregates.items()},
            snapshot_every=snapshot_every,
            revision=revision,
            conflicts=conflicts or Conflicts(),
            delete=delete,
        )
        declared.aggregates[name] = cast("Aggregate[object, object]", made)
        return made

    @checked
    def projection(
        self,
        name: str,
        *,
        lag_budget: float = 5.0,
        version: int = 1,
        cross_tenant: bool = False,
        strips: Sequence[str] = (),
        keeps: Sequence[str] = (),
        publishes: Sequence[type[object]] = (),
    ) -> Projection:
        """Declare a read model: decorate its handlers with `@….on(Event)` and what makes its tables with `@….setup`.

        It is to be at most `lag_budget` seconds behind. Raise `version` when its handlers or tables change, and rebuild it:
        a process feeds only what was built by its own version. With `cross_tenant` it is for readers of any tenant: every
        field of its events that is marked as personal data must be named in `strips`, or in `keeps`; what is stripped is
        None before a handler sees it. `publishes` are the events that its handlers say by `model.publish`: once for each event
        that they take, whatever is rebuilt or swapped.
        """
        terms = ModelTerms(version, lag_budget, cross_tenant, tuple(strips), tuple(keeps), tuple(publishes))
        made = Projection(self, name, terms)
        self.declared.refuse_taken(made.consumer, "projection")
        self.declared.projections[made.consumer] = made
        return made

    # Handed on to its host.

    def transaction(
        self,
        tenant: str = UNNAMED,
        *,
        correlation: str | None = None,
        actor: Actor | None = None,
        traceparent: str | None = None,
    ) -> AbstractAsyncContextManager[Tx]:
        """One database transaction: committed when the block ends, with everything that was published in it. What is published
        belongs to `tenant`; leave it out where there is one only: see `default_tenant`. What you do not say of correlation,
        actor and trace is that of the request or the event in hand."""
        context = context_here(self._whose(tenant), correlation=correlation, actor=actor, traceparent=traceparent)
        return TransactionScope(partial(self.host.opened.begin, self.name), context)

    def joined(
        self,
        theirs: object,
        tenant: str = UNNAMED,
        *,
        correlation: str | None = None,
        actor: Actor | None = None,
        traceparent: str | None = None,
    ) -> AbstractAsyncContextManager[Tx]:
        """A Tx on a transaction that you began, on a connection or session that the store can join: to publish, start sagas
        and decide on aggregates there. What was said is written when the block ends; whether it stays is up to you."""
        context = context_here(self._whose(tenant), correlation=correlation, actor=actor, traceparent=traceparent)
        return TransactionScope(partial(self.host.opened.join, self.name, theirs), context)

    async def record(
        self,
        sql: str,
        parameters: Parameters,
        *facts: object,
        tenant: str = UNNAMED,
        correlation: str | None = None,
        actor: Actor | None = None,
        traceparent: str | None = None,
    ) -> bool:
        """Run one INSERT, UPDATE or DELETE of yours and, if it changed a row, say what follows from it, in a transaction of
        their own; whether it did. With one fact on PostgreSQL that is one round trip, where a block takes three."""
        if not facts:
            raise ConfigurationError("there is no fact to record: give one after the parameters, or use a transaction")
        context = context_here(self._whose(tenant), correlation=correlation, actor=actor, traceparent=traceparent)
        return await self.host.opened.record(self.name, context, sql, parameters, facts)

    async def start_saga(self, tx: Tx, saga: Saga) -> SagaStart:
        """Start a saga in this transaction: its `@starts` method runs at once. The answer is true when it was started;
        otherwise nothing was done, and it tells how the one with this id stands: `running`, or `ended` and not to begin
        again."""
        return await self.declared.sagas.of(saga).start(tx, saga)

    @property
    def outbox(self) -> Outbox:
        """Adds events to transactions that are yours. It may be kept: it asks for the host whenever it is used."""
        return Outbox(self._writes, self._whose)

    def _whose(self, tenant: str) -> str:
        """The tenant that was named, else the current one, else the default. Where tenants are kept apart nobody has one by
        default."""
        tenant = tenant_here(tenant)
        if not isinstance(tenant, Unnamed):
            return tenant
        if self.default_tenant is None:
            raise EventError(f"{self.name} has many tenants (default_tenant=None): say whose this is, with tenant=…")
        if self.host.store.isolated:
            raise EventError(
                f"the store of {self.name} keeps tenants apart (isolation=true): say whose this is, with tenant=…"
            )
        return self.default_tenant

    def _writes(self) -> tuple[Store, EnvelopeBuilder]:
        return self.host.opened.writes(self.name)

    @property
    def held(self) -> HeldEvents:
        """The operator's verbs for held events."""
        return self.host.held

    async def run(
        self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None, stop: asyncio.Event | None = None
    ) -> None:
        """`App.run` of its host."""
        await self.host.run(only=only, relay=relay, stop=stop)

    def running(
        self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None
    ) -> AbstractAsyncContextManager[None]:
        """`App.running` of its host: relay, consumers and timers in the background of a block, then everything is closed."""
        return self.host.running(only=only, relay=relay)

    def health(self) -> Health:
        """`App.health` of its host."""
        return self.host.health()

    async def aclose(self) -> None:
        """`App.aclose` of its host."""
        await self.host.aclose()
