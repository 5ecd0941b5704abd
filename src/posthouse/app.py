"""App: runs services over a store, a broker and a clock. The one place that knows all parts."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import sys
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

from posthouse.broker import Broker
from posthouse.brokers import check_broker
from posthouse.clock import Clock, SystemClock
from posthouse.errors import ConfigurationError
from posthouse.events import Actor
from posthouse.health import Health
from posthouse.history.archive import ArchiveReader
from posthouse.history.archive.opening import reader_of
from posthouse.history.archive.places import check_place
from posthouse.history.audit.settings import Audit, audit_here
from posthouse.opened import Opened, Ports
from posthouse.operators import OperatorsLog
from posthouse.options import checked, misfit
from posthouse.processes import Projections, SagaInstances, Schedules
from posthouse.receiving import HeldEvents
from posthouse.receiving.held import Guard
from posthouse.runtime import PARTS, Part
from posthouse.seam import Counting, EventContext, Failures, OnFailure, Seam, TenantClass
from posthouse.seam.spans import Spans, TracerProvider, Tracing
from posthouse.sending import TransactionScope, Tx
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.starting import ENTER_WITHIN, open_in_time, prepared, serve
from posthouse.store import CoreStore, GrantVerb, HeldEvent, RelaySource, Store
from posthouse.stores import check_store
from posthouse.trust.rights import Grants, Rights, rights_here
from posthouse.trust.secrets.declaring import Secrets, secrets_of_environment
from posthouse.trust.signatures import Signing, signing_here

T = TypeVar("T")


class App:
    """Services that run together: they share a store, a broker, a relay, a clock, and with them their connections.

    Store and broker are URLs or objects. Without them it is what the environment says in POSTHOUSE_STORE and POSTHOUSE_BROKER,
    and else no server at all: `sqlite:///<name of the first service>.db` and `embedded:///posthouse-log.db`. A store on a server
    with a broker that one host alone sees is refused, unless its URL says `single_host=true`. From its making on it is the host
    of its services: what they hand on, they hand to it. `on_failure`, a function or a coroutine function, is told of each `Failure` after
    it was logged; nothing waits for it, and nothing that it does changes what becomes of the event. `tenant_class` tells of which
    class a tenant is, in one of at most 16 words: the figures tell these apart, never tenants. Spans go to `tracer_provider`,
    of OpenTelemetry's making, and without it to the one that the application has set as its own, if it has. `rights` says who may
    publish, read and replay which topic; without it, what the file says that POSTHOUSE_RIGHTS names, and else it is not asked.
    With `secrets`, or POSTHOUSE_SECRETS_KEYS in the environment, personal fields leave encrypted.
    `signing`: which facts are signed and verified, and by which keys; without it, what the environment says in POSTHOUSE_SIGNING.
    `archive`: where every event is kept, as in `s3://bucket/folder` or `file:///var/lib/archive`; without it, what the environment says in
    POSTHOUSE_ARCHIVE, and else nowhere.
    `audit`: where events are logged so that nobody can touch them unseen; without it, the place that POSTHOUSE_AUDIT names, if it does.
    """

    @checked
    def __init__(
        self,
        *services: Service,
        store: str | CoreStore | None = None,
        broker: str | Broker | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
        seam: Seam | None = None,
        on_failure: OnFailure | None = None,
        tenant_class: TenantClass | None = None,
        tracer_provider: TracerProvider | None = None,
        rights: Rights | None = None,
        secrets: Secrets | None = None,
        signing: Signing | None = None,
        archive: str | None = None,
        audit: Audit | None = None,
    ) -> None:
        if not services:
            raise ConfigurationError("an App needs a service: App(orders, …)")
        if isinstance(store, str):
            check_store(store)
        if isinstance(broker, str):
            check_broker(broker)
        self.services = services
        self.clock: Clock = clock or SystemClock()
        """The clock that everything here follows."""
        self.settings = settings or Settings()
        seam = seam or Seam()
        if tracer_provider is not None or seam.tracing.find is None:
            seam = dataclasses.replace(seam, tracing=Tracing(partial(_spans, tracer_provider)))
        if tenant_class is not None:
            if inspect.iscoroutinefunction(tenant_class):
                raise ConfigurationError(
                    "App: tenant_class is awaited by nobody: give a plain function, tenant to word"
                )
            seam = dataclasses.replace(seam, counting=Counting(tenant_class))
        self._seam = seam if on_failure is None else dataclasses.replace(seam, failures=Failures(on_failure))
        self._rights = rights_here() if rights is None else rights
        self._secrets = secrets or secrets_of_environment()
        if self._secrets is not None and (seam.encrypt is not None or seam.decrypt is not None):
            raise ConfigurationError(
                "App: secrets=… and the seam's own encrypt or decrypt are two steps for one place: leave one out"
            )
        self._given = (store, broker)
        self._archive = archive or os.environ.get("POSTHOUSE_ARCHIVE", "").strip() or None
        if self._archive is not None:
            check_place(self._archive)
        self._signing = signing
        self._audit = audit or audit_here()
        self._opened: Opened | None = None
        for service in services:
            service.hosted_by(self)

    # Where it runs.

    @property
    def opened(self) -> Opened:
        """What there is of it until it is closed: its parts, wired; made at first use, and nothing is connected by that."""
        if self._opened is None or self._opened.over:
            store, broker = self._given
            ports = Ports(
                _place(store, "POSTHOUSE_STORE", f"sqlite:///{self.services[0].name}.db"),
                _place(broker, "POSTHOUSE_BROKER", "embedded:///posthouse-log.db"),
                self.clock,
                "+".join(service.name for service in self.services),
                self._archive,
            )
            self._opened = Opened(
                self.services,
                ports,
                self.clock,
                self.settings,
                self._trusted(self._seam),
                self._rights,
                self._secrets,
                self._audit,
            )
        return self._opened

    def _trusted(self, seam: Seam) -> Seam:
        """The seam with what is asked for beside it; the one that was given stays as it is."""
        if (signing := signing_of(self)) is not None:
            seam = signing.applied(seam, self.clock, "+".join(service.name for service in self.services))
        return seam

    @property
    def store(self) -> Store:
        """The store, opened at first use."""
        return self.opened.ports.store

    @property
    def broker(self) -> Broker:
        """The broker, opened at first use."""
        return self.opened.ports.broker

    @property
    def archive(self) -> ArchiveReader | None:
        """Reads what is archived; None where nothing is."""
        place = self.opened.ports.archive
        return None if place is None else reader_of(place)

    # What it runs.

    async def open(self) -> None:
        """Bring an embedded store up to date, refuse another one that is not, and run the set-up functions. Idempotent."""
        await self.opened.open()

    async def run(
        self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None, stop: asyncio.Event | None = None
    ) -> None:
        """Run relay, consumers and timers until `stop` is set; what is in flight is finished. `relay` says where its rows
        come from, in place of the relay's settings. Store and broker that are away are waited for."""
        _refuse_no_parts(only, relay)
        refuse_without_archive(self, only)
        stop = stop or asyncio.Event()
        for runtime in await prepared([self.opened], relay if "relay" in only else "poll", stop, wait=True):
            await runtime.run(stop, only)

    @asynccontextmanager
    async def running(self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None) -> AsyncIterator[None]:
        """`run` in the background of a block, as in the lifespan of a web application; then stop and close. One block at a
        time, for all its services: ConfigurationError for a second one. The block is entered while the broker is away, and
        what it publishes waits in the outbox; a store that is away is waited for, at most 30 s: StoreUnavailable then."""
        _refuse_no_parts(only, relay)
        refuse_without_archive(self, only)
        opened = self.opened
        if opened.runs:
            raise ConfigurationError(f"{opened.name} runs already: one running() is for all services of an App")
        opened.runs = True
        stop, entered = asyncio.Event(), asyncio.Event()
        try:
            await open_in_time(opened)
            task = asyncio.create_task(serve(opened, relay if "relay" in only else "poll", only, stop, entered))
            entering = asyncio.create_task(entered.wait())
            try:
                await asyncio.wait([task, entering], timeout=ENTER_WITHIN, return_when=asyncio.FIRST_COMPLETED)
                entered.set()
                if task.done():
                    task.result()
                yield
            finally:
                stop.set()
                await task
        finally:
            opened.runs = False
            if not self.opened.runs:  # else somebody closed this one, and runs it anew
                await self.aclose()

    def health(self) -> Health:
        """Whether it may be left alone and may be sent work, and which part waits for what, as it was seen last."""
        return self.opened.health()

    async def aclose(self) -> None:
        """Close store and broker, as the end of the event loop does otherwise. Idempotent; one that was given URLs can be
        opened again, also on another loop."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()
            await self._seam.failures.aclose()

    # What an operator asks.

    @property
    def held(self) -> HeldEvents:
        """The verbs for held events."""
        opened, vault = self.opened, self.opened.vault
        sealed = None if vault is None else vault.edited
        return HeldEvents(self.store, opened.name, opened.personal, self._held_guard(), sealed, opened.seam.seals)

    @property
    def actions(self) -> OperatorsLog:
        """What operators did."""
        return OperatorsLog(self.store, self.opened.name)

    @property
    def grants(self) -> Grants:
        """Who may replay or edit what for a while, and the verbs for that."""
        return Grants(self.store, [service.name for service in self.services], self._rights)

    @property
    def sagas(self) -> SagaInstances:
        """The verbs for sagas."""
        books, grants = [service.declared.sagas for service in self.services], self.grants
        return SagaInstances(books, self.store, self._transaction, grants.saga if grants.needed else None)

    @property
    def schedules(self) -> Schedules:
        """The verbs for schedules."""
        books = [service.declared.schedules for service in self.services]
        return Schedules(books, self.store, self.opened.builders.__getitem__, self.clock)

    @property
    def projections(self) -> Projections:
        """The read models, and the verbs for them."""
        return self.opened.projections

    def _held_guard(self) -> Guard | None:
        grants = self.grants
        return self._spend if grants.needed else None

    async def _spend(self, verb: GrantVerb, held: HeldEvent, by: str) -> None:
        """On a held event, by the service whose consumer holds it."""
        await self.grants.held(verb, held, self._service_of(held.consumer), by)

    def _service_of(self, consumer: str) -> str:
        """Whose consumer it is; of what nobody declares any more, whose name it begins with."""
        declared = (service.name for service in self.services if consumer in service.declared.consumers)
        return next(declared, consumer.partition(".")[0])

    def _transaction(self, service: str, tenant: str, *, actor: Actor | None) -> AbstractAsyncContextManager[Tx]:
        return TransactionScope(partial(self.opened.begin, service), EventContext(tenant=tenant, actor=actor))


def _refuse_no_parts(only: Collection[Part], relay: RelaySource | None) -> None:
    """A part that there is not would be one that does not run, and nobody would know."""
    problems = [misfit("run", "only", only, Collection[Part]), misfit("run", "relay", relay, RelaySource | None)]
    if found := [problem for problem in problems if problem]:
        raise ConfigurationError(*found)


def refuse_without_archive(app: App, only: Collection[Part]) -> None:
    """Raise ConfigurationError where the archive alone is to run, and there is none."""
    if set(only) == {"archive"} and app.opened.ports.archive_url is None:
        raise ConfigurationError(
            f"{app.opened.name} has no archive to write: say where, App(…, archive='s3://bucket/folder') or POSTHOUSE_ARCHIVE"
        )


def _spans(provider: TracerProvider | None) -> Spans | None:
    """Where spans go, if anywhere. Whoever has not imported OpenTelemetry has set no provider, and need not have it."""
    if provider is None and "opentelemetry.trace" not in sys.modules:
        return None
    from posthouse.watch.traces import spans_of  # an adapter, and an extra

    return spans_of(provider)


def _place(given: str | T | None, variable: str, default: str) -> str | T:
    """Where a part is: what was given, what the environment says, the default. An empty word is none of them: whoever meant a
    server would have a file of his own instead."""
    if given is not None:
        return given
    named = os.environ.get(variable)
    if named is not None and not named.strip():
        raise ConfigurationError(f"{variable} is set and empty: name a URL in it, or unset it for {default}")
    return named or default


def app_of(service: Service) -> App:
    """The App that runs a service: see `Service.host`."""
    host = service.host
    if not isinstance(host, App):
        raise ConfigurationError(f"{service.name} is run by {type(host).__name__}, which is no App")
    return host


def rights_of(service: Service) -> Rights | None:
    """Who may publish, read and replay what, as its App says, without opening it; None where that is not asked."""
    return app_of(service)._rights


def signing_of(app: App) -> Signing | None:
    """What is said about signatures, to an App or in the environment; None where nothing is."""
    return app._signing or (signing_here() if app._seam.seals is None else None)


def apps_of(services: Iterable[Service]) -> list[App]:
    """The Apps that run some services, each once."""
    return list({id(app): app for app in map(app_of, services)}.values())


Service.default_host = App
