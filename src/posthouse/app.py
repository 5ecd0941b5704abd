"""App: runs services over a store, a broker and a clock. The one place that knows all parts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from posthouse.broker import Broker, Topology
from posthouse.clock import Clock, SystemClock
from posthouse.errors import ConfigurationError
from posthouse.events import Actor
from posthouse.opened import Opened, Ports
from posthouse.processes import Projections, SagaInstances
from posthouse.receiving import Handler, HeldEvents
from posthouse.runtime import PARTS, Part, Runtime
from posthouse.seam import EnvelopeBuilder, EventContext, Seam
from posthouse.sending import TransactionScope, Tx, record
from posthouse.sending.transaction import Begun
from posthouse.service import Service
from posthouse.settings import Settings
from posthouse.store import CoreStore, Parameters, RelaySource, Store


class App:
    """Services that run together: they share a store, a broker, a relay, a clock, and with them their connections.

    Store and broker are URLs or objects. Without them it is what the environment says in POSTHOUSE_STORE and POSTHOUSE_BROKER,
    and else no server at all: `sqlite:///<name of the first service>.db` and `embedded:///posthouse-log.db`. From its making on
    it is the host of its services: what they hand on, they hand to it.
    """

    def __init__(
        self,
        *services: Service,
        store: str | CoreStore | None = None,
        broker: str | Broker | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
        seam: Seam | None = None,
    ) -> None:
        if not services:
            raise ConfigurationError("an App needs a service: App(orders, …)")
        self.services = services
        self.clock: Clock = clock or SystemClock()
        """The clock that everything here follows."""
        self.settings = settings or Settings()
        self.seam = seam or Seam()
        """What is done, measured and refused wherever an event crosses from one world into another."""
        self._given = (store, broker)
        self._opened: Opened | None = None
        self.runs = False
        """Whether somebody is in a block of `running`, and closes everything at its end."""
        for service in services:
            service.hosted_by(self)

    @property
    def name(self) -> str:
        """Its services."""
        return ", ".join(service.name for service in self.services)

    # Where it runs.

    @property
    def store(self) -> Store:
        """The store, opened at first use."""
        return self._used().ports.store

    @property
    def broker(self) -> Broker:
        """The broker, opened at first use."""
        return self._used().ports.broker

    @property
    def store_url(self) -> str:
        """Where the store is; the name of its class when an object was given."""
        place = self._store()
        return place if isinstance(place, str) else type(place).__name__

    @property
    def broker_url(self) -> str:
        """Where the broker is; the name on its sheet when an object was given."""
        place = self._broker()
        return place if isinstance(place, str) else place.sheet.name

    def _store(self) -> str | CoreStore:
        return self._given[0] or os.environ.get("POSTHOUSE_STORE") or f"sqlite:///{self.services[0].name}.db"

    def _broker(self) -> str | Broker:
        return self._given[1] or os.environ.get("POSTHOUSE_BROKER") or "embedded:///posthouse-log.db"

    def _used(self) -> Opened:
        if self._opened is None:
            ports = Ports(self._store(), self._broker(), self.clock)
            self._opened = Opened(self.services, ports, self.clock, self.settings, self.seam)
        return self._opened

    # What it runs.

    async def open(self) -> None:
        """Bring an embedded store up to date, refuse another one that is not, and run the set-up functions. Idempotent."""
        await self._used().open()

    async def look(self) -> None:
        """Open it to look at only: the tables are in place, and the set-up functions are not run."""
        await self._used().bring_up()
        await self.projections.learn()

    async def prepare(self, *, relay: RelaySource | None = None) -> Runtime:
        """Open everything, check that it can keep the promise, make the topics, and build the tasks. `relay`: where its
        rows come from, in place of the relay's settings; the log is refused when it cannot be followed."""
        await self.open()
        return await self._used().prepare(relay or self.settings.relay.source)

    async def run(
        self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None, stop: asyncio.Event | None = None
    ) -> None:
        """Run relay, consumers and timers until `stop` is set; what is in flight is finished. `relay` says where its rows
        come from, in place of the relay's settings."""
        runtime = await self.prepare(relay=relay if "relay" in only else "poll")
        await runtime.run(stop or asyncio.Event(), only)

    @asynccontextmanager
    async def running(self, *, only: Collection[Part] = PARTS, relay: RelaySource | None = None) -> AsyncIterator[None]:
        """`run` in the background of a block, as in the lifespan of a web application; then stop and close. One block at a
        time, for all its services: ConfigurationError for a second one."""
        if self.runs:
            raise ConfigurationError(f"{self.name} runs already: one running() is for all services of an App")
        self.runs = True
        stop = asyncio.Event()
        try:
            runtime = await self.prepare(relay=relay if "relay" in only else "poll")
            task = asyncio.create_task(runtime.run(stop, only))
            try:
                if "consumers" in only:
                    await runtime.begun(task)
                yield
            finally:
                stop.set()
                await task
        finally:
            try:
                await self.aclose()
            finally:
                self.runs = False

    async def aclose(self) -> None:
        """Close store and broker. Idempotent; one that was given URLs can be opened again, also on another event loop."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.ports.aclose()

    # What an operator asks.

    @property
    def held(self) -> HeldEvents:
        """The verbs for held events."""
        return HeldEvents(self.store)

    @property
    def sagas(self) -> SagaInstances:
        """The verbs for sagas."""
        return SagaInstances([service.declared.sagas for service in self.services], self.store, self._transaction)

    @property
    def projections(self) -> Projections:
        """The read models, and the verbs for them."""
        return self._used().projections

    def topology(self) -> Topology:
        """The topics that are written and read, with their dead letters, and who reads what."""
        return self._used().topology()

    def groups(self, service: Service) -> Mapping[str, Mapping[str, Handler]]:
        """Handlers of a service by consumer group and subject; of a read model the group of the generation that is live, once
        the store was asked for it."""
        return self._used().groups(service)

    def _transaction(self, service: str, tenant: str, *, actor: Actor | None) -> AbstractAsyncContextManager[Tx]:
        found = next(known for known in self.services if known.name == service)
        return TransactionScope(partial(self.begin, found), EventContext(tenant=tenant, actor=actor))

    # What its services hand on.

    def begin(self, service: Service, context: EventContext) -> Awaitable[Begun]:
        """A transaction of the store, and a Tx for a service; everything is opened before."""
        return self._used().begin(service, context)

    def join(self, service: Service, theirs: object, context: EventContext) -> Awaitable[Begun]:
        """A Tx for a service on a transaction that somebody else began; everything is opened before."""
        return self._used().join(service, theirs, context)

    async def record(
        self, service: Service, context: EventContext, sql: str, parameters: Parameters, facts: Sequence[object]
    ) -> bool:
        """One statement and the facts that follow from it: see `Service.record`."""
        await self.open()
        builder = self._used().builders[service.name]
        return await record(self.store, partial(self.begin, service), builder, context, sql, parameters, facts)

    def writes(self, service: Service) -> tuple[Store, EnvelopeBuilder]:
        """Where facts of a service are stored, and what writes their envelopes."""
        return self.store, self._used().builders[service.name]


def app_of(service: Service) -> App:
    """The App that runs a service: see `Service.host`."""
    host = service.host
    if not isinstance(host, App):
        raise ConfigurationError(f"{service.name} is run by {type(host).__name__}, which is no App")
    return host


def apps_of(services: Iterable[Service]) -> list[App]:
    """The Apps that run some services, each once."""
    return list({id(app): app for app in map(app_of, services)}.values())


Service.default_host = App
