"""Building: the loops that run services, and what each of them works with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from posthouse.broker import Start
from posthouse.clock import Clock
from posthouse.events import METADATA_LIMIT
from posthouse.history.archive.opening import ArchiveMember, group_of, member_of
from posthouse.history.audit.opening import AuditMember, audit_group, auditor_of
from posthouse.history.audit.settings import Audit
from posthouse.opened.ports import Ports
from posthouse.opened.process import process_name, worker_of
from posthouse.opened.retaining import sweep_of
from posthouse.opened.sagas import Sagas
from posthouse.outage import Outages
from posthouse.processes import Projections, Scheduler, Timers
from posthouse.receiving import Consumer, Executor, Handler, Retrier, dead_letter_topic
from posthouse.receiving.executor import ask_nobody
from posthouse.receiving.readers import is_ordered, topics_of
from posthouse.runtime import Runtime
from posthouse.seam import EnvelopeBuilder, SchemaGuard, Seam, VersionUsage
from posthouse.sending import Relay
from posthouse.sending.due import SealedTimers
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.store import RelaySource, Store
from posthouse.store.timers import Append

if TYPE_CHECKING:  # what it needs is an extra, and only who uses it pays for its import
    from posthouse.published import Published
    from posthouse.trust.secrets.vault import Vault


@dataclasses.dataclass(frozen=True)
class Building:
    """Services, and what their loops share."""

    name: str
    services: Sequence[Service]
    ports: Ports
    clock: Clock
    settings: Settings
    seam: Seam
    vault: Vault | None
    builders: Mapping[str, EnvelopeBuilder]
    guards: Mapping[str, SchemaGuard]
    published: Published | None
    outages: Outages
    version_usage: VersionUsage
    sagas: Sagas
    audit: Audit | None = None
    """Where the audit log is; None where there is none."""

    async def runtime(self, source: RelaySource, projections: Projections) -> Runtime:
        """The tasks of all services. `source`: where the relay's rows come from."""
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
            timers=Timers(store, clock, self.outages, _due(store, self.seam, clock)),
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
            sweep=sweep_of(store, settings),
            outbox_retention=settings.outbox_retention,
            outbox_retention_bytes=settings.outbox_retention_bytes,
            action_retention=settings.action_retention,
            saga_retention=settings.saga_retention if any(s.declared.saga_types for s in self.services) else None,
            saga_tombstone_retention=settings.saga_tombstone_retention,
            seam=self.seam,
            worker=worker_of(self.services),
            precedence=self.sagas.precedence(),
            outages=self.outages,
            version_usage=self.version_usage,
            projections=projections.keeper if projections.declared else None,
            archive=self._archive(),
            audit=self._auditor(),
        )

    @property
    def archived(self) -> Mapping[str, Sequence[str]] | None:
        """The group of the archive and what it reads: every topic that the services know. None where there is no archive."""
        if self.ports.archive_url is None:
            return None
        topics = {topic for service in self.services for topic in service.declared.topics}
        return {group_of(self.services[0].name): sorted(topics)}

    def _archive(self) -> ArchiveMember | None:
        place, groups = self.ports.archive, self.archived
        if place is None or groups is None:
            return None
        ((group, topics),) = groups.items()
        return member_of(
            group,
            topics,
            self.ports.broker,
            place,
            self.ports.store.archives,
            self.clock,
            process=process_name(),
            settings=self.settings.archive,
            start=self.settings.start,
            outages=self.outages,
        )

    @property
    def audited(self) -> Mapping[str, Sequence[str]]:
        """The group of the audit log and what it reads: every topic that the services know. Empty where there is no such log."""
        topics = {topic for service in self.services for topic in service.declared.topics}
        return {} if self.audit is None else {audit_group(self.services[0].name): sorted(topics)}

    def _auditor(self) -> AuditMember | None:
        if self.audit is None:
            return None
        ((group, topics),) = self.audited.items()
        broker, start = self.ports.broker, self.settings.start
        return auditor_of(group, topics, broker, self.audit, self.clock, start=start, outages=self.outages)

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
            learn=ask_nobody if self.published is None else self.published.learn,
            seam=seam,
            calls=self.settings.calls_at_once,
            foreign=partial(declared.is_foreign, group),
        )

    def _says(self) -> Mapping[str, str]:
        """Which service the events of a topic come from, as far as one of ours may say them; dead letters from who reads."""
        return {
            **{dead_letter_topic(topic): one.name for one in self.services for topic in one.declared.topics},
            **{of.topic: one.name for one in self.services for of in one.declared.own_events},
            **{of.topic: one.name for one in self.services for of in one.declared.internal_events},
        }


def standing(service: Service) -> Mapping[str, Mapping[str, Handler]]:
    """The consumers whose group is called as they are: all but read models, where each generation has its own."""
    declared = service.declared
    return {name: handlers for name, handlers in declared.consumers.items() if name not in declared.projections}


def _due(store: Store, seam: Seam, clock: Clock) -> Append | None:
    """What puts due timers into the outbox, where the store alone cannot."""
    return None if seam.sealing is None else SealedTimers(store.outbox, seam.sealing, clock).append
