"""Opened: what exists from the first use of an App until it is closed: connections, and the parts that work over them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec.structs import replace

from posthouse.broker import Broker, Capabilities, Start, Topology
from posthouse.brokers import check_broker, is_for_one_host, open_broker
from posthouse.checks import Check, refusals, warnings
from posthouse.clock import Clock, day_of
from posthouse.contracts import EventType
from posthouse.contracts.deprecation import deprecations
from posthouse.contracts.personal import personal_fields
from posthouse.errors import ConfigurationError, SecretsUnavailable, StoreOutdated
from posthouse.events import CODECS, METADATA_LIMIT, Producer
from posthouse.frozen import lock_in
from posthouse.health import Health, PartHealth
from posthouse.heartbeat import SILENT
from posthouse.local.checkout import checked_out
from posthouse.local.loops import close_with_loop
from posthouse.local.naming import named
from posthouse.local.sharing import Shares, Sharing
from posthouse.outage import Outages, Waiting
from posthouse.processes import Projections, SagaType, Scheduler, Timers
from posthouse.processes.projection import Wiring
from posthouse.processes.saga.comparing import compare_stored
from posthouse.processes.saga.precedence import Precedence, alive, appear, later, order_of
from posthouse.receiving import Consumer, Executor, Handler, Retrier, dead_letter_topic
from posthouse.receiving.readers import is_ordered, problems_of, topics_of
from posthouse.redaction import redacted
from posthouse.runtime import Runtime
from posthouse.seam import EnvelopeBuilder, EventContext, SchemaGuard, Seam, VersionUsage
from posthouse.sending import Relay, TransactionScope, Tx, record
from posthouse.sending.due import SealedTimers
from posthouse.sending.transaction import Begun
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.store import CoreStore, Parameters, RelaySource, Store, Transaction, Worker, has_process_tables
from posthouse.store.timers import Append
from posthouse.stores import check_store, open_store
from posthouse.trust.rights import Keeper, Party, Rights
from posthouse.trust.secrets.declaring import Secrets

if TYPE_CHECKING:  # what it needs is an extra, and only who uses it pays for its import
    from posthouse.trust.secrets.vault import Vault

log = logging.getLogger("posthouse.app")

T = TypeVar("T")

ALONE = (
    "the store is on a server, and the broker is {}, which one host alone sees: each host would write to a log of its own, "
    "and consumers on another host would never see its events"
)
TOGETHER = (
    'name one that every host reaches: broker="postgresql://…", for which the server of the store will do, or any other, '
    "or say it in POSTHOUSE_BROKER; if all processes will always run on this one host, say so: {}{}single_host=true"
)


class Ports:
    """A store and a broker, by URL or as they are. Each is opened at first use; those that were given by URL share what they
    can."""

    def __init__(self, store: str | CoreStore, broker: str | Broker, clock: Clock, name: str = "") -> None:
        self._name = name
        self._store = store
        self._broker = broker
        self._clock = clock
        self._sharing = Sharing()
        if isinstance(store, str):
            check_store(store)
        if isinstance(broker, str):
            check_broker(broker)

    @cached_property
    def store(self) -> Store:
        """Where it has the core alone, services that need more are refused when the App is opened."""
        if not isinstance(self._store, str):
            return cast("Store", self._store)
        with named(self._name):
            return self._shared(open_store(self._store, clock=self._clock))

    @cached_property
    def broker(self) -> Broker:
        if not isinstance(self._broker, str):
            return self._broker
        with named(self._name):
            return self._shared(open_broker(self._broker, clock=self._clock))

    @property
    def store_url(self) -> str:
        """Where the store is; the name of its class when an object was given."""
        return self._store if isinstance(self._store, str) else type(self._store).__name__

    @property
    def broker_url(self) -> str:
        """Where the broker is; the name on its sheet when an object was given."""
        return self._broker if isinstance(self._broker, str) else self._broker.sheet.name

    @cached_property
    def reach(self) -> Check:
        """Whether all who use the store reach the broker. A broker that was given as an object was asked for by name."""
        place = self._broker
        if not isinstance(place, str) or not is_for_one_host(place) or self.store.embedded:
            return Check(name="reach", found="every host that uses the store reaches the broker")
        mark = "&" if "?" in place else "?"
        return Check(name="reach", found=ALONE.format(place), judgement="fail", fix=TOGETHER.format(place, mark))

    def _shared(self, port: T) -> T:
        if isinstance(port, Shares):
            port.share(self._sharing)
        return port

    async def aclose(self) -> None:
        """Close what was opened, both in any case."""
        async with AsyncExitStack() as closing:
            for name in ("store", "broker"):
                if name in vars(self):
                    closing.push_async_callback(vars(self)[name].aclose)


class Opened:
    """The services of an App on their store and their broker."""

    def __init__(
        self,
        services: Sequence[Service],
        ports: Ports,
        clock: Clock,
        settings: Settings,
        seam: Seam,
        rights: Rights | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self.services = services
        self.given_seam = seam
        """As it was given, without the steps that are added here."""
        self.secrets = secrets
        self.vault: Vault | None = None
        if secrets is not None:
            self.vault = vault = vault_of(secrets, "+".join(one.name for one in services), self.event_type)
            vault.keyring.settle = self._settle_erasures
            seam = dataclasses.replace(seam, encrypt=vault.encrypt, decrypt=vault.decrypt, conceal=vault.conceal)
        self.name = ", ".join(service.name for service in services)
        self.runs = False
        """Whether somebody is in a block of `App.running`, and closes everything at its end."""
        self.ports = ports
        self.clock = clock
        self.settings = settings
        self.rights = rights
        """Who may publish, read and replay what."""
        self.keeper = None if rights is None else Keeper(rights, [Party(one.name, one.namespace) for one in services])
        """Keeps the rights; None: whoever declares something may do it."""
        if self.keeper is not None:
            seam = dataclasses.replace(seam, rights=self.keeper.check_publish)
        self.seam = seam
        self.outages = Outages(
            clock, f"the database ({redacted(ports.store_url)})", f"the broker ({redacted(ports.broker_url)})"
        )
        self.version_usage = VersionUsage()
        self.builders = {
            service.name: builder_of(service, clock, settings, seam, lambda: ports.broker.sheet) for service in services
        }
        self.guards = {service.name: guard_of(service, clock) for service in services}
        self.projections = Projections(
            Wiring(
                services={service.name: service.declared for service in services},
                ports=ports,
                clock=clock,
                start=settings.start,
                in_flight=settings.in_flight,
                seam=seam,
                outages=self.outages,
                executor=self.executor,
                speaks=self._speaks,
            )
        )
        self.ready = False
        self.over = False
        """Its event loop has ended, and its connections with it: the App makes another one."""
        self._opening = asyncio.Lock()
        self._opener: asyncio.Task[object] | None = None
        """The task that opens, whose set-up functions run in transactions before all is ready."""
        self._runtime: Runtime | None = None
        self.problem = ""
        """Why it cannot run, as it was found after the block was entered that it runs in."""

    # Opening.

    async def open(self) -> None:
        """Once: tables, then the set-up functions, then the first generations of projections."""
        if self.ready or self._opener is asyncio.current_task():
            return
        async with self._opening:
            if self.ready:
                return
            problems = [*clashes(self.services), *beyond(self.services, self.ports.store)]
            if problems := [*problems, *refusals([self.ports.reach])]:
                raise ConfigurationError(*problems)
            if not self.ports.store.embedded:
                close_with_loop(self)
            self._opener = asyncio.current_task()
            try:
                await self.bring_up()
                self.ports.broker  # noqa: B018  # one that cannot be made is told of here
                for service in self.services:
                    await self._set_up(service)
                await self.projections.open()
                await self._begin_secrets()
            finally:
                self._opener = None
            self.ready = True

    async def at_loop_end(self) -> None:
        """Close what nobody closed: a script may simply end."""
        self.over = True
        await self.aclose()

    async def aclose(self) -> None:
        """Close what was opened."""
        if self.vault is not None:
            await self.vault.aclose()
        await self.ports.aclose()

    async def look(self) -> None:
        """Open it to look at only: nothing is made, and the set-up functions are not run. Raises StoreOutdated where there is
        nothing to look at."""
        await self.ports.store.present()
        await self.projections.learn()

    def _target(self) -> str:
        """What to call this on a command line: the module that holds one of its services, else the URL of its store."""
        for name, module in list(sys.modules.items()):
            for word, value in list(getattr(module, "__dict__", {}).items()):
                if any(value is service for service in self.services) and name != "__main__":
                    return f"{name}:{word}"
        return redacted(self.ports.store_url)

    async def bring_up(self) -> None:
        """Bring an embedded store up to date, and refuse another one that is not."""
        pending = await self.ports.store.pending_migrations()
        if pending and not self.ports.store.embedded:
            raise StoreOutdated(
                f"the store of {self.name} lacks {', '.join(pending)}: run `posthouse db upgrade {self._target()}`"
            )
        if pending:
            await self.ports.store.upgrade()

    async def _set_up(self, service: Service) -> None:
        for function in service.declared.setups:
            async with TransactionScope(partial(self.begin, service.name), EventContext(tenant="platform")) as tx:
                await function(tx)

    async def _begin_secrets(self) -> None:
        """A key store that is away keeps nobody from starting: what needs its keys waits for it."""
        if self.vault is None:
            return
        declared = [one.declared for one in self.services]
        if problems := [
            found for one in declared for found in self.vault.problems(one.publishable, one.downcasts.values())
        ]:
            raise ConfigurationError(*problems)
        try:
            await self.vault.store.present()
            await self._settle_erasures()
        except SecretsUnavailable as error:
            log.warning("%s: %s: what needs its keys waits for it", self.name, error)

    async def _settle_erasures(self) -> None:
        if self.vault is not None:
            await self.vault.settle(self.ports.store)

    def event_type(self, name: str) -> EventType[object] | None:
        """The type of a subject, if one of the services knows it."""
        found = (service.declared.catalogue.get(name) for service in self.services)
        return next((known for known in found if known is not None), None)

    def personal(self, subject: str) -> Sequence[str]:
        """The fields of an event's payload that say something about a person."""
        known = [found for service in self.services if (found := service.declared.catalogue.get(subject)) is not None]
        return sorted(personal_fields(known[0].payload.cls)) if known else ()

    # Transactions.

    async def begin(self, service: str, context: EventContext) -> Begun:
        """A transaction of the store, and a Tx for a service; everything is opened before."""
        if not self.ready:
            await self.open()
        self.seam.tracing.look()
        store = self.ports.store
        block = self.seam.transaction(service, store.begin(tenant=context.tenant))
        return block, Tx(await block.__aenter__(), store, self.builders[service], context, self.clock)

    def _speaks(self, service: str, transaction: Transaction, context: EventContext) -> Tx:
        """A Tx for a service on a transaction of the store."""
        return Tx(transaction, self.ports.store, self.builders[service], context, self.clock)

    async def join(self, service: str, theirs: object, context: EventContext) -> Begun:
        """A Tx for a service on a transaction that somebody else began; everything is opened before."""
        if not self.ready:
            await self.open()
        self.seam.tracing.look()
        store = self.ports.store
        transaction, attending = store.join(theirs), AsyncExitStack()
        attending.callback(await transaction.attend())
        tx = Tx(transaction, store, self.builders[service], context, self.clock)
        attending.push(partial(_joined_ended, tx))
        return attending, tx

    async def record(
        self, service: str, context: EventContext, sql: str, parameters: Parameters, facts: Sequence[object]
    ) -> bool:
        """One statement and the facts that follow from it: see `Service.record`."""
        await self.open()
        self.seam.tracing.look()
        begin, builder = partial(self.begin, service), self.builders[service]
        return await record(self.ports.store, begin, builder, context, sql, parameters, facts)

    def writes(self, service: str) -> tuple[Store, EnvelopeBuilder]:
        """Where facts of a service are stored, and what writes their envelopes. ConfigurationError where consumers would never
        see them: see `Ports.reach`."""
        if problems := refusals([self.ports.reach]):
            raise ConfigurationError(*problems)
        self.seam.tracing.look()
        return self.ports.store, self.builders[service]

    # What runs.

    @property
    def consumers(self) -> list[Consumer]:
        """Those that run here."""
        return [] if self._runtime is None else self._runtime.all_consumers

    @property
    def idle(self) -> bool:
        """Whether none of its loops runs here, nor is about to: it may publish all the same."""
        return self._runtime is None and not self.runs and not self.outages.waiting(self.outages.store)

    def health(self) -> Health:
        """See `App.health`."""
        runtime, outages = self._runtime, self.outages
        store, broker = outages.waiting(outages.store), outages.waiting(outages.broker)
        waiting = {**store, **broker}
        silences = [] if runtime is None else [one.silence for one in runtime.heartbeats]
        away = next((one for one in (*store.values(), *silences) if one is not None), None)
        loops = list(dict.fromkeys([*(() if runtime is None else runtime.loops), *waiting]))
        parts = [
            _part("store", self.ready, away),
            PartHealth(name="broker", state="unused")
            if self.idle and not broker
            else _part("broker", runtime is not None, next(iter(broker.values()), None)),
            *(_part(name, True, waiting.get(name)) for name in loops),
        ]
        stuck = 0 if runtime is None else len(runtime.left_behind)
        problem = self.problem or (f"{stuck} of its loops hang and do not end" if stuck else "")
        return Health(live=not problem, ready=self.ready and away is None, parts=parts, problem=problem)

    async def prepare(self, source: RelaySource | None = None) -> Runtime:
        """Open everything, check that it can keep the promise, make the topics, and build the tasks, once. `source`: where
        the relay's rows come from, in place of its settings; the log is refused when it cannot be followed."""
        await self.open()
        self.seam.tracing.look()
        async with self._opening:  # two of them would be two members of each group, and one of them idle
            if self._runtime is None:
                await self._refuse_what_cannot_work()
            await self.ports.broker.ensure(self.topology())
            if self._runtime is None:
                self._runtime = await self._built(source or self.settings.relay.source)
            return self._runtime

    def topology(self) -> Topology:
        """The topics that are written and read, with their dead letters, and who reads what."""
        topics = {topic for service in self.services for topic in service.declared.topics}
        handled = [handlers for service in self.services for handlers in service.declared.consumers.values()]
        dead = {dead_letter_topic(topic) for handlers in handled for topic in topics_of(handlers)}
        groups = {
            name: sorted(topics_of(handlers))
            for service in self.services
            for name, handlers in self.groups(service).items()
        }
        return Topology(topics=sorted(topics | dead), groups=groups)

    def _says(self) -> Mapping[str, str]:
        """Which service the events of a topic come from, as far as one of ours may say them; dead letters from who reads."""
        return {
            **{dead_letter_topic(topic): one.name for one in self.services for topic in one.declared.topics},
            **{of.topic: one.name for one in self.services for of in one.declared.own_events},
            **{of.topic: one.name for one in self.services for of in one.declared.internal_events},
        }

    def groups(self, service: Service) -> Mapping[str, Mapping[str, Handler]]:
        """Handlers of a service by consumer group and subject: of a read model the group of the generation that is live, once
        the store was asked for it."""
        consumers = service.declared.consumers
        models = {group: consumers[of] for group, of in self.projections.groups().items() if of in consumers}
        return {**standing(service), **models}

    async def _refuse_what_cannot_work(self) -> None:
        """Every problem at once, of the store, the broker and the handlers; what only weakens the promise is logged."""
        checks = [*await self.ports.store.checks(today=False), *await self.ports.broker.checks(today=False)]
        checks += await self._saga_checks()
        problems = [*refusals(checks), *(found for service in self.services for found in self._problems(service))]
        if problems:
            raise ConfigurationError(*dict.fromkeys(problems))
        today = day_of(self.clock.now())
        for service in self.services:
            past = deprecations(list(service.declared.catalogue), today, past=True)
            for warning in dict.fromkeys([*warnings(checks), *past]):
                log.warning("%s: %s", service.name, warning)

    async def _saga_checks(self) -> list[Check]:
        """Whether the sagas that are stored can go on; what the operator lets pass is a warning."""
        store = self.ports.store
        if not has_process_tables(store):
            return []
        if releases := {of.consumer: of.release for of in self._saga_types()}:
            await appear(store, releases, self.clock.now())
        found = [*(await compare_stored(store, self._declared_sagas())).checks(), *await self._same_sagas()]
        left = await self._left_to_others()
        return [
            replace(one, judgement="warn")
            if one.judgement == "fail"
            and (self.settings.saga_misfits == "start" or one.name.removeprefix("saga ") in left)
            else one
            for one in found
        ]

    async def _same_sagas(self) -> list[Check]:
        """Sagas of other services that are kept in this store under the name of one of ours: they would be taken for ours."""
        others = {of for one in await self.ports.store.workers.read() for of in one.releases} - {
            of.consumer for of in self._saga_types()
        }
        names = {service.name for service in self.services}
        theirs = {saga: service for service, _, saga in (of.partition(".") for of in others) if service not in names}
        return [
            Check(
                name=f"saga {of.name}",
                found=f"the service {theirs[of.name]} has sagas of this name in the same store",
                judgement="fail",
                fix="rename one, or give each service a store of its own; if the service was renamed, start it with saga_misfits='start'",
            )
            for of in self._saga_types()
            if of.name in theirs
        ]

    async def _left_to_others(self) -> set[str]:
        """The sagas that a later release runs at the moment: this one stands aside."""
        store = self.ports.store
        others = [one for one in await store.workers.read() if alive(one, SILENT)]
        order = await order_of(store)
        return {of.name for of in self._saga_types() if later(of.consumer, of.release, others, order)}

    def _precedence(self) -> Precedence | None:
        releases = {of.consumer: of.release for of in self._saga_types()}
        if not releases:
            return None
        return Precedence(self.ports.store, self.clock, releases, self._cannot_go_on, SILENT)

    async def _cannot_go_on(self, consumer: str) -> Sequence[str]:
        """Why the stored sagas of a consumer could not go on here; nothing where the operator lets that pass."""
        if self.settings.saga_misfits == "start":
            return ()
        compared = await compare_stored(self.ports.store, self._declared_sagas())
        saga = next(of.name for of in self._saga_types() if of.consumer == consumer)
        return refusals(check for check in compared.checks() if check.name == f"saga {saga}")

    def _declared_sagas(self) -> Mapping[str, Mapping[str, SagaType]]:
        return {service.name: service.declared.saga_types for service in self.services}

    def _saga_types(self) -> list[SagaType]:
        return [of for service in self.services for of in service.declared.saga_types.values()]

    def _problems(self, service: Service) -> list[str]:
        """What was declared and cannot work here."""
        problems = service.declared.problems()
        for event_type in service.declared.publishable:
            region, residency = self.ports.broker.sheet.region, residency_of(self.settings)
            problems += self.seam.rules.problems(event_type, region, residency)
        if self.ports.store.isolated:
            problems += [
                f"the store of {service.name} keeps tenants apart (isolation=true): say for whom the schedule {schedule.name} runs, "
                "with tenants=[…] or an async function of a Tx"
                for schedule in service.declared.schedules
                if not schedule.whose
            ]
        remembers, redelivery = self.settings.inbox_retention, self.ports.broker.sheet.redelivery_s
        for name, handlers in service.declared.consumers.items():
            if self.keeper is not None:
                problems += self.keeper.read_problems(service.name, name, topics_of(handlers))
            problems += problems_of(name, handlers, self.ports.store, remembers=remembers, redelivery=redelivery)
        return problems

    async def _built(self, source: RelaySource) -> Runtime:
        store, broker, clock, settings = self.ports.store, self.ports.broker, self.clock, self.settings
        tail = await store.wal_reader() if source == "wal" else None
        executors = [
            await self.executor(service.name, name, handlers, settings.start)
            for service in self.services
            for name, handlers in standing(service).items()
        ]
        schedules = [schedule for service in self.services for schedule in service.declared.schedules]
        watched = {name: topic for service in self.services for name, topic in service.declared.watched.items()}
        sent = partial(self.version_usage.note_sent, watched, clock.now) if watched else None
        return Runtime(
            services=[service.name for service in self.services],
            store=store,
            broker=broker,
            clock=clock,
            relay=Relay(
                store,
                broker,
                clock,
                settings.relay,
                tail,
                sent,
                self.seam,
                self.name,
                self.outages,
                self._says(),
                process_name(),
            ),
            timers=Timers(store, clock, self.outages, _due(store, self.seam)),
            schedules=Scheduler(schedules, store, self.builders, clock, self.outages) if schedules else None,
            consumers=[
                Consumer(
                    executor,
                    broker,
                    clock,
                    start=settings.start,
                    in_flight=settings.in_flight,
                    outages=self.outages,
                )
                for executor in executors
            ],
            retriers=[Retrier(executor, clock, self.outages) for executor in executors],
            inbox_retention=settings.inbox_retention,
            outbox_retention=settings.outbox_retention,
            outbox_retention_bytes=settings.outbox_retention_bytes,
            action_retention=settings.action_retention,
            saga_retention=settings.saga_retention if any(s.declared.saga_types for s in self.services) else None,
            saga_tombstone_retention=settings.saga_tombstone_retention,
            seam=self.seam,
            worker=worker_of(self.services),
            precedence=self._precedence(),
            outages=self.outages,
            version_usage=self.version_usage,
            projections=self.projections.keeper if self.projections.declared else None,
        )

    async def executor(self, service: str, group: str, handlers: Mapping[str, Handler], start: Start) -> Executor:
        """What runs the handlers of a consumer group of a service."""
        topics, store = topics_of(handlers), self.ports.store
        progress = await self.ports.broker.progress(group, sorted(topics))
        late = {topic: start != "earliest" or progress[topic].truncated for topic in topics}
        declared = next(one.declared for one in self.services if one.name == service)
        seam = self.seam
        if self.vault is not None and any(group in (of.consumer, of.caller) for of in declared.saga_types.values()):
            seam = dataclasses.replace(seam, decrypt=self.vault.carry)
        return Executor(
            consumer=group,
            handlers=handlers,
            ordered={topic: is_ordered(handlers, topic) for topic in topics},
            adopts={topic: await store.inbox.register(group, topic, late[topic]) for topic in topics},
            store=store,
            builder=self.builders[service],
            clock=self.clock,
            limit=self.settings.limit + METADATA_LIMIT,
            version_usage=self.version_usage,
            guard=self.guards[service],
            seam=seam,
            calls=self.settings.calls_at_once,
            foreign=partial(declared.is_foreign, group),
        )


def vault_of(secrets: Secrets, name: str, find: Callable[[str], EventType[object] | None]) -> Vault:
    """What encrypts personal fields. ConfigurationError where its library is not there."""
    try:
        from posthouse.trust.secrets.vault import Vault  # an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"App(secrets=…) needs the package {error.name}: pip install 'posthouse[secrets]'"
        ) from error
    return Vault(secrets, name, find)


def _joined_ended(tx: Tx, kind: object, error: BaseException | None, trace: object) -> None:
    tx.ended("written" if error is None else "rolled back", error)


def _part(name: str, begun: bool, waiting: Waiting | None) -> PartHealth:
    if waiting is not None:
        return PartHealth(name=name, state="waiting", since=waiting.since, reason=waiting.reason)
    return PartHealth(name=name, state="ready" if begun else "starting")


def standing(service: Service) -> Mapping[str, Mapping[str, Handler]]:
    """The consumers whose group is called as they are: all but read models, where each generation has its own."""
    declared = service.declared
    return {name: handlers for name, handlers in declared.consumers.items() if name not in declared.projections}


def clashes(services: Sequence[Service]) -> list[str]:
    """What keeps services from sharing a store: names under which something is stored."""
    named = Counter(("service", service.name) for service in services)
    for declared in (service.declared for service in services):
        named.update(("saga", name) for name in declared.saga_types)
        named.update(("aggregate", name) for name in declared.aggregates)
        named.update(("projection", projection.name) for projection in declared.projections.values())
    return [
        f"{count} of the services of one App have the {kind} {name!r}: rename one, or give each an App with a store of its own"
        for (kind, name), count in named.items()
        if count > 1
    ]


def beyond(services: Sequence[Service], store: CoreStore) -> list[str]:
    """What services declare that this store has no tables for."""
    if has_process_tables(store):
        return []
    return [
        f"{service.name} declares the {kind} {name!r}, and {type(store).__name__} has the core of a store alone, without tables "
        "for sagas, schedules, aggregates and projections: use another store, such as sqlite:/// or postgresql://"
        for service in services
        for kind, names in (
            ("saga", service.declared.saga_types),
            ("schedule", [schedule.name for schedule in service.declared.schedules]),
            ("aggregate", service.declared.aggregates),
            ("projection", service.declared.projections),
        )
        for name in names
    ]


def _due(store: Store, seam: Seam) -> Append | None:
    """What puts due timers into the outbox, where the store alone cannot."""
    return None if seam.sealing is None else SealedTimers(store.outbox, seam.sealing).append


def builder_of(
    service: Service,
    clock: Clock,
    settings: Settings,
    seam: Seam | None = None,
    sheet: Callable[[], Capabilities] | None = None,
) -> EnvelopeBuilder:
    """Writes the envelopes of a service, as they suit the broker of that sheet."""
    producer = Producer(
        service=service.name,
        instance=process_name(),
        commit=commit_of(service),
        region=settings.region or os.environ.get("POSTHOUSE_REGION", ""),
    )
    source = f"/{service.namespace}/{service.name}" if service.namespace else f"/{service.name}"
    codec = CODECS[service.envelope]
    casts, residency = service.declared.downcasts, residency_of(settings)
    return EnvelopeBuilder(producer, source, codec, clock, settings.limit, casts, seam, sheet, residency)


def residency_of(settings: Settings) -> str | None:
    """Where facts belong whose owner does not say."""
    return settings.residency or os.environ.get("POSTHOUSE_RESIDENCY", "").strip() or None


def commit_of(service: Service) -> str:
    """The commit that a service was made from: as whoever built it says, or what is checked out where its code lies."""
    if (said := os.environ.get("POSTHOUSE_COMMIT", "")) or not (known := list(service.declared.catalogue)):
        return said
    module = sys.modules.get(known[0].payload.cls.__module__)
    place = getattr(module, "__file__", None)
    return "" if place is None else checked_out(Path(place).parent)


def process_name() -> str:
    """This process, among those of all machines."""
    return f"{socket.gethostname()}-{os.getpid()}"


def worker_of(services: Sequence[Service]) -> Worker:
    """This process, as one that runs them; it stands aside until it has looked who else runs their sagas."""
    sagas = [of for service in services for of in service.declared.saga_types.values()]
    return Worker(
        id="",
        services=[service.name for service in services],
        name=process_name(),
        host=socket.gethostname(),
        pid=os.getpid(),
        version=_version(),
        commit=commit_of(services[0]) if services else os.environ.get("POSTHOUSE_COMMIT", ""),
        consumers=sorted(name for service in services for name in service.declared.consumers),
        releases={of.consumer: of.release for of in sagas},
        aside={of.consumer: "waits" for of in sagas},
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and only who runs needs it

    try:
        return version("posthouse")
    except PackageNotFoundError:  # frozen into an executable without it
        return "unknown"


def guard_of(service: Service, clock: Clock) -> SchemaGuard:
    """Compares what a service reads with its frozen schemas."""
    schemas = service.declared.schemas
    return SchemaGuard(None if schemas is None else partial(lock_in, schemas), clock.now)
