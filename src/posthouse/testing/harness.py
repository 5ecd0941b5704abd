"""Harness: services on a clock that the test moves, over a broker in memory. Nothing sleeps; without a store of yours nothing needs a server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from posthouse.app import App, app_of, apps_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock, new_id
from posthouse.contracts import event_type_for, event_type_of
from posthouse.errors import ConfigurationError, PosthouseError
from posthouse.events import STRUCTURED, Event, Producer, decode_any
from posthouse.options import checked
from posthouse.runtime import Runtime
from posthouse.seam import Counting, EnvelopeBuilder, EventContext, Seam
from posthouse.seam.failures import Failures
from posthouse.seam.frames import frame_of
from posthouse.seam.inward import open_data
from posthouse.seam.spans import Tracing
from posthouse.seam.timing import Timing
from posthouse.service import Service
from posthouse.store import HeldEvent, HeldFilter, Store
from posthouse.trust.secrets import Secrets
from posthouse.watch.status import Status, status

T = TypeVar("T")

IN_MEMORY = "sqlite://"
STALLED = 0.25
"""Real seconds after which what does not move is taken to wait for the clock, or for the test."""
HELD_UP = 0.05
"""Real seconds after which whoever was in the way of something that is due has probably gone."""

_NO_TIMING, _NO_FAILURES = Timing(), Failures()
_NO_COUNTING = Counting()
_NO_TRACING = Tracing()
_USER_TABLES = {
    True: """SELECT name, '"' || name || '"' FROM sqlite_master
        WHERE type = 'table' AND name NOT GLOB 'posthouse_*' AND name NOT GLOB 'sqlite_*'""",
    False: """SELECT c.relname::text, format('%I.%I', n.nspname, c.relname)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_'
            AND n.nspname NOT IN ('information_schema', 'posthouse_baseline')
            AND to_regclass(format('%I.migration', n.nspname)) IS NULL""",
}
"""Of an embedded store, and of one on a server."""


class Unsettled(PosthouseError):
    """Something kept moving, or never moved: the message holds the figures."""


class Harness:
    """Runs services together: `async with Harness(orders, billing) as h`. Each gets a store of its own in memory; all
    share one broker in memory and one clock. Afterwards the services are as they were. Secrets are kept as their Apps say, under
    keys of the harness's own, that are gone with it: a test never touches the keys of persons.

    `store` is the URL of a PostgreSQL database that was made for tests, as the fixture `posthouse_store` gives it: then all
    services share it, as those of one App do, and handlers may take whatever they take in production.

    `schedules=False` leaves out what runs again and again: a test of something else need not go through every moment of it.
    """

    @checked
    def __init__(self, *services: Service, store: str = IN_MEMORY, schedules: bool = True) -> None:
        if not services:
            raise ConfigurationError("a Harness needs a service: Harness(orders, …)")
        self.services = services
        self._store = store
        self._schedules = schedules
        self.clock = ManualClock()
        self.broker = MemoryBroker(clock=self.clock)
        self._before: list[App] = []
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._runtimes: list[Runtime] = []
        self._numbers: Counter[tuple[str, str, str]] = Counter()
        self._keys: TemporaryDirectory[str] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._host()
        except BaseException:
            await self._restore()
            raise
        self._tasks = [asyncio.create_task(runtime.run(self._stop)) for runtime in self._runtimes]
        for runtime, task in zip(self._runtimes, self._tasks, strict=True):
            await runtime.begun(task)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self._restore()

    async def _host(self) -> None:
        """A store in memory is a service's own; services that have a store on a server in common share an App."""
        together: dict[str, list[Service]] = {}
        for service in self.services:
            url = self.store_of(service)
            together.setdefault(f"{url} {service.name}" if url == IN_MEMORY else url, []).append(service)
        apps = [app_of(service) for service in self.services]
        alike = [_works_as(services) for services in together.values()]
        self._before = apps
        for services, first in zip(together.values(), alike, strict=True):
            App(
                *services,
                store=await self._opened(self.store_of(services[0])),
                broker=self.broker,
                clock=self.clock,
                settings=first.settings,
                seam=first.opened.given_seam,
                rights=first.opened.rights,
                secrets=self._under_own_keys(first.opened.secrets),
            )
        for app in apps_of(self.services):
            self._runtimes.append(self.runs_as(await app.opened.prepare()))

    def _under_own_keys(self, secrets: Secrets | None) -> Secrets | None:
        if secrets is None:
            return None
        if self._keys is None:
            self._keys = TemporaryDirectory(prefix="posthouse-keys-")
        folder = self._keys.name
        return dataclasses.replace(secrets, keys=f"sqlite:///{folder}/keys.db", master=f"file:{folder}/master.key")

    async def _opened(self, url: str) -> str | Store:
        if url != self._store or url == IN_MEMORY:
            return url
        from posthouse.testing.scratch_store import open_scratch  # which needs asyncpg

        return await open_scratch(url, self.clock)

    async def _restore(self) -> None:
        for app in apps_of(self.services) if self._before else ():
            await app.aclose()
        for service, before in zip(self.services, self._before, strict=False):
            service.hosted_by(before)
        if self._keys is not None:
            self._keys.cleanup()

    def runs_as(self, runtime: Runtime) -> Runtime:
        """What is run of an App; for a harness that leaves out more."""
        return runtime if self._schedules else dataclasses.replace(runtime, schedules=None)

    def store_of(self, service: Service) -> str:
        """The URL of a service's store; for a harness that has them elsewhere."""
        return self._store

    async def publish(
        self,
        payload: object,
        *,
        tenant: str = "t1",
        correlation: str | None = None,
        causation: str | None = None,
        idempotency_key: str | None = None,
    ) -> str:
        """Say a fact as its owner would; returns its id. The owner may be a service that is not in this harness. `causation` is
        the id of the event that led to it. Where its contract asks for an idempotency key, it is given one of its own if you
        name none.

        Without `tenant` it is of `t1`, which is not the default tenant of a service: where you leave tenants out, and so start
        a saga for `default`, say tenant="default", or the saga will not hear of it."""
        event_type = event_type_for(payload)
        if idempotency_key is None and event_type.terms.idempotency == "required":
            idempotency_key = f"{event_type.scope}:{new_id()}"
        for service in self.services:
            if (service.name, service.namespace) == (event_type.subject.service, event_type.subject.namespace):
                async with service.transaction(tenant, correlation=correlation) as tx:
                    tx.context = msgspec.structs.replace(tx.context, causation=causation)
                    return tx.publish(payload, idempotency_key=idempotency_key)
        producer = Producer(service=event_type.subject.service)
        namespace = event_type.subject.namespace
        source = f"/{namespace}/{producer.service}" if namespace else f"/{producer.service}"
        builder = EnvelopeBuilder(producer, source, STRUCTURED, self.clock, 256 * 1024)
        context = EventContext(tenant=tenant, correlation=correlation, causation=causation)
        row = builder.build_one(payload, context, idempotency_key=idempotency_key)
        if row.key is not None:
            line = (row.topic, row.tenant, row.key)
            self._numbers[line] += 1
            row = msgspec.structs.replace(row, sequence=self._numbers[line])
        await self.broker.publish([frame_of(row)])
        return row.event_id

    async def settled(self, timeout: float = 10.0) -> Status:
        """Wait until everything that was said has been applied or held, as far as the clock allows: retries and timers
        of the future stay where they are. `timeout` is in real seconds."""
        figures, settled = await self._stood(timeout, timeout)
        if figures is None or not settled:
            seen = figures or "no figures, because a transaction is open all the time"
            raise Unsettled(f"still moving after {timeout:g} s: {seen}")
        return figures

    async def advance(self, seconds: float) -> Status:
        """Let so many seconds pass, as they would: the clock goes from each retry, timer and moment of a schedule that becomes due to the next, and what
        is due is dealt with at its time. Then wait until everything has settled."""
        until = self.clock.now() + seconds
        await self._stood(STALLED)
        while due := [moment for moment in await self._moments() if self.clock.now() < moment <= until]:
            self.clock.move_to(min(due))
            await self._stood(STALLED)
        self.clock.move_to(until)
        return await self.settled()

    async def published(self, event: type[T]) -> list[Event[T]]:
        """The facts of one type that reached the broker, in order; one that was sent twice is one fact. What is secret in them is
        shown as the handlers of the service see it whose facts they are, or else of the first."""
        event_type = event_type_of(event)
        frames = (stored.frame for stored in self.broker.log.topics.get(event_type.topic, []))
        events = (decode_any(frame.headers, frame.body) for frame in frames)
        facts = {e.id: e for e in events if e.type == event_type.name}
        opened = [await self.opened(e) for e in facts.values()]
        return [e.with_data(event_type.payload.decode(e.data)) for e in opened]

    async def opened(self, event: Event[bytes]) -> Event[bytes]:
        """An event as the handlers of the service see it whose fact it is, or else of the first: what is secret is decrypted, or a
        placeholder."""
        known = ((one, {fact.name for fact in one.declared.own_events}) for one in self.services)
        owner = next((one for one, names in known if event.type in names), self.services[0])
        return await open_data(app_of(owner).opened.seam, event)

    async def held(self, service: Service) -> list[HeldEvent]:
        """What the consumers of a service hold."""
        return [event async for event in service.held.find(HeldFilter()) if self._is_of(service, event.consumer)]

    async def assert_replay_safe(self) -> None:
        """The replay contract: hand every frame that was published to every consumer a second time; tables, held events
        and what was published must be as before."""
        await self.settled()
        before = await self.everything()
        for stored in [list(log) for log in self.broker.log.topics.values()]:
            await self.broker.publish([one.frame for one in stored])
        await self.settled()
        after = await self.everything()
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if changed:
            raise AssertionError(f"a second delivery changed {', '.join(changed)}")

    async def everything(self) -> dict[str, object]:
        """Rows of the users' own tables, committed events and held ones, per service."""
        found: dict[str, object] = {}
        for app in apps_of(self.services):
            async with app.store.begin() as tx:
                for name, quoted in await tx.execute(_USER_TABLES[app.store.embedded]):
                    found[f"{app.opened.name}.{name}"] = sorted(map(repr, await tx.execute(f"SELECT * FROM {quoted}")))
            counts = await app.store.counts()
            found[f"what {app.opened.name} published"] = counts.committed
            found[f"what {app.opened.name} holds"] = (counts.held, counts.strange)
        return found

    async def _stood(self, patience: float, timeout: float = 10.0) -> tuple[Status | None, bool]:
        """The last figures, and whether all has settled: or nothing has moved for so many real seconds, or the time is over."""
        self._nudge()
        loop = asyncio.get_running_loop()
        before: Status | None = None
        moved = nudged = loop.time()
        try:
            async with asyncio.timeout(timeout):
                while loop.time() - moved <= patience:
                    if not self._idle():  # a handler that takes its time moves: the clock must not leave it behind
                        moved = loop.time()
                    if self._busy():
                        await asyncio.sleep(0.001)
                        continue
                    figures = await status(self.services)  # not all at one moment: one look may miss what moves between
                    if figures != before:
                        moved = loop.time()
                    due = False
                    if figures.quiet and figures == before and not self._busy():
                        due = await self._due()
                        if not due and figures == await status(
                            self.services
                        ):  # what was due may have run since the look
                            return figures, True
                    if loop.time() - max(moved, nudged) > HELD_UP:
                        nudged = loop.time()
                        self._nudge()
                        if due:  # whoever was held up looks again after a while, and the clock stands still
                            self.clock.wake()
                    before = figures
                    await asyncio.sleep(0.001)
        except TimeoutError:
            pass
        return before, False

    def _nudge(self) -> None:
        """Have relays look at once: nobody tells them of a commit on a connection of the user's."""
        for app in apps_of(self.services):
            nudge: Callable[[], None] | None = getattr(app.store, "nudge", None)
            if nudge is not None:
                nudge()

    def _is_of(self, service: Service, consumer: str) -> bool:
        return consumer == service.name or consumer.startswith(f"{service.name}.")

    def _idle(self) -> bool:
        return all(runtime.idle for runtime in self._runtimes)

    def _busy(self) -> bool:
        """Whether something is on its way as far as can be seen without a look at the stores."""
        log = self.broker.log
        read = {(group, topic) for group, topic, _ in log.members}
        return not self._idle() or any(log.readers[place].cursor < len(log.topics[place[1]]) for place in read)

    async def _due(self) -> bool:
        """Whether a timer or a retry should have run by now."""
        now = self.clock.now()
        return any(moment <= now for moment in await self._moments(stuck=False))

    async def _moments(self, *, stuck: bool = True) -> list[float]:
        """When the next timers go off, schedules run, and events are tried again."""
        moments: list[float] = []
        for app in apps_of(self.services):
            moments += [timer.due_at for timer in await app.store.timers.pending(limit=1)]
            moments += [one.next_at for one in await app.store.held.find(HeldFilter(state="retrying"), limit=1000)]
            if stuck:
                moments += [
                    one.next_at for one in await app.store.outbox.stuck() if one.attempts and not one.quarantined
                ]
        for runtime in self._runtimes:
            if runtime.schedules is not None:
                moments += await runtime.schedules.moments()
        return moments


def _works_as(services: Sequence[Service]) -> App:
    """One whose settings, seam, rights and secrets are those of all services that are to share an App; ConfigurationError when theirs differ."""
    apps = apps_of(services)
    first = apps[0]
    for other in apps[1:]:
        alike = (other.settings, other.opened.rights, other.opened.secrets) == (
            first.settings, first.opened.rights, first.opened.secrets
        )  # fmt: skip
        if not alike or _steps(other.opened.given_seam) != _steps(first.opened.given_seam):
            raise ConfigurationError(
                f"{first.opened.name} and {other.opened.name} have Apps with other settings, rights, secrets or another seam, and on one store they share one: give "
                "each a harness of its own"
            )
    return first


def _steps(seam: Seam) -> tuple[Seam, object]:
    """What two Apps that were written alike have in common, though each has its own figures and its own line of failures."""
    return dataclasses.replace(
        seam, timing=_NO_TIMING, counting=_NO_COUNTING, failures=_NO_FAILURES, tracing=_NO_TRACING
    ), seam.failures.hook
