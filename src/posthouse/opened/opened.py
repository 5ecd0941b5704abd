"""Opened: the services of an App on their store and their broker, until they are closed."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from posthouse.broker import Topology
from posthouse.checks import refusals, warnings
from posthouse.clock import Clock, day_of
from posthouse.contracts import EventType
from posthouse.contracts.deprecation import deprecations
from posthouse.contracts.personal import personal_fields
from posthouse.errors import ConfigurationError, SecretsUnavailable, StoreOutdated
from posthouse.health import Health, PartHealth
from posthouse.history.archive.opening import forgets_too_soon
from posthouse.history.audit.settings import Audit
from posthouse.local.loops import close_with_loop
from posthouse.opened.building import Building, standing
from posthouse.opened.ports import Ports
from posthouse.opened.refusing import beyond, clashes, problems_here, reading_problems
from posthouse.opened.retaining import ages_of
from posthouse.opened.sagas import Sagas
from posthouse.opened.writing import builder_of, guard_of, published_of, vault_of
from posthouse.outage import Outages, Waiting
from posthouse.processes import Projections
from posthouse.processes.projection import Wiring
from posthouse.receiving import Consumer, Handler, dead_letter_topic
from posthouse.receiving.readers import topics_of
from posthouse.redaction import redacted
from posthouse.runtime import Runtime
from posthouse.seam import EnvelopeBuilder, EventContext, Seam, VersionUsage
from posthouse.sending import TransactionScope, Tx, record
from posthouse.sending.transaction import Begun
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.store import Parameters, RelaySource, Store, Transaction
from posthouse.trust.rights import Keeper, Party, Rights
from posthouse.trust.secrets.declaring import Secrets

if TYPE_CHECKING:  # what it needs is an extra, and only who uses it pays for its import
    from posthouse.trust.secrets.vault import Vault

log = logging.getLogger("posthouse.app")


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
        audit: Audit | None = None,
    ) -> None:
        self.services = services
        self.given_seam = seam
        """As it was given, without the steps that are added here."""
        self.secrets = secrets
        self.vault: Vault | None = None
        if secrets is not None:
            self.vault = vault = vault_of(secrets, "+".join(one.name for one in services), self.event_type)
            vault.keyring.settle = self._settle_erasures
            seam = dataclasses.replace(
                seam, encrypt=vault.encrypt, decrypt=vault.decrypt, gather=vault.gather, conceal=vault.conceal
            )
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
        fetches = bool(settings.contracts)
        self.guards = {service.name: guard_of(service, clock, fetches=fetches) for service in services}
        self.published = published_of(settings, clock, seam, self.guards.values())
        self.sagas = Sagas(services, ports, clock, settings)
        """What the store keeps of them, and who runs them."""
        self.building = Building(
            name=self.name,
            services=services,
            ports=ports,
            clock=clock,
            settings=settings,
            seam=seam,
            vault=self.vault,
            builders=self.builders,
            guards=self.guards,
            published=self.published,
            outages=self.outages,
            version_usage=self.version_usage,
            sagas=self.sagas,
            audit=audit,
        )
        """Makes its loops."""
        self.projections = Projections(
            Wiring(
                services={service.name: service.declared for service in services},
                ports=ports,
                clock=clock,
                start=settings.start,
                in_flight=settings.in_flight,
                seam=seam,
                outages=self.outages,
                executor=self.building.executor,
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
                await self._begin_secrets()
                for service in self.services:
                    await self._set_up(service)
                await self.projections.open()
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
            await self.vault.begin(self.ports.store)
            await self.vault.keyring.look()
        except SecretsUnavailable as error:
            log.warning("%s: %s: what needs its keys waits for it", self.name, error)
        self.vault.keyring.watch()

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
    def audit_overdue(self) -> Mapping[str, float]:
        """How late the audit log is that is written here, in seconds, by what is late; empty where there is none."""
        return {} if self._runtime is None or self._runtime.audit is None else self._runtime.audit.overdue()

    @property
    def archived_events(self) -> int | None:
        """How many are in the archive because of this process; None where it has none to write."""
        archive = None if self._runtime is None else self._runtime.archive
        return None if archive is None else archive.written

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
            await self.ports.broker.ensure(self.whole_topology())
            if self._runtime is None:
                self._runtime = await self.building.runtime(source or self.settings.relay.source, self.projections)
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
        ages = ages_of(self.services, self.settings)
        return Topology(topics=sorted(topics | dead), groups=groups, retention=ages)

    def whole_topology(self) -> Topology:
        """The same with the groups of the archive and of the audit log, which are nobody's consumers."""
        topology = self.topology()
        groups = {**topology.groups, **(self.building.archived or {}), **self.building.audited}
        return msgspec.structs.replace(topology, groups=groups)

    def groups(self, service: Service) -> Mapping[str, Mapping[str, Handler]]:
        """Handlers of a service by consumer group and subject: of a read model the group of the generation that is live, once
        the store was asked for it."""
        consumers = service.declared.consumers
        models = {group: consumers[of] for group, of in self.projections.groups().items() if of in consumers}
        return {**standing(service), **models}

    async def _refuse_what_cannot_work(self) -> None:
        """Every problem at once, of the store, the broker and the handlers; what only weakens the promise is logged."""
        checks = [*await self.ports.store.checks(today=False), *await self.ports.broker.checks(today=False)]
        checks += await self.sagas.checks()
        archived, settings = self.building.archived or {}, self.settings
        if problems := [
            *refusals(checks),
            *(
                forgets_too_soon(settings.archive, settings.outbox_retention, self.ports.broker.sheet)
                if archived
                else ()
            ),
            *reading_problems(self.services, {**archived, **self.building.audited}, self.keeper),
            *(
                found
                for service in self.services
                for found in problems_here(service, self.ports, self.settings, self.seam, self.keeper)
            ),
        ]:
            raise ConfigurationError(*dict.fromkeys(problems))
        today = day_of(self.clock.now())
        for service in self.services:
            past = deprecations(list(service.declared.catalogue), today, past=True)
            for warning in dict.fromkeys([*warnings(checks), *past]):
                log.warning("%s: %s", service.name, warning)


def _joined_ended(tx: Tx, kind: object, error: BaseException | None, trace: object) -> None:
    tx.ended("written" if error is None else "rolled back", error)


def _part(name: str, begun: bool, waiting: Waiting | None) -> PartHealth:
    if waiting is not None:
        return PartHealth(name=name, state="waiting", since=waiting.since, reason=waiting.reason)
    return PartHealth(name=name, state="ready" if begun else "starting")
