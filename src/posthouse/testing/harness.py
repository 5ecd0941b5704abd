"""Harness: services in memory, on a clock that the test moves. Nothing sleeps, nothing needs a server."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from posthouse.app import App, app_of
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import ManualClock
from posthouse.contracts import event_type_of
from posthouse.errors import PosthouseError
from posthouse.events import STRUCTURED, Event, Producer, decode_any
from posthouse.runtime import Runtime
from posthouse.seam import EnvelopeBuilder, EventContext
from posthouse.seam.frames import frame_of
from posthouse.service import Service
from posthouse.status import Status, status
from posthouse.store import HeldEvent, HeldFilter
from posthouse.testing.hosting import rehost

T = TypeVar("T")

_USER_TABLES = (
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'posthouse_*' AND name NOT GLOB 'sqlite_*'"
)


class Unsettled(PosthouseError):
    """Something kept moving, or never moved: the message holds the figures."""


class Harness:
    """Runs services together: `async with Harness(orders, billing) as h`. Each gets a store of its own in memory; all
    share one broker in memory and one clock. Afterwards the services are as they were."""

    def __init__(self, *services: Service) -> None:
        self.services = services
        self.clock = ManualClock()
        self.broker = MemoryBroker(clock=self.clock)
        self._before: list[App] = []
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._runtimes: list[Runtime] = []
        self._numbers: Counter[tuple[str, str, str]] = Counter()

    async def __aenter__(self) -> Self:
        try:
            for service in self.services:
                self._before.append(rehost(service, store=self.store_of(service), broker=self.broker, clock=self.clock))
                self._runtimes.append(await app_of(service).opened.prepare())
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

    async def _restore(self) -> None:
        for service, before in zip(self.services, self._before, strict=False):
            await service.aclose()
            service.hosted_by(before)

    def store_of(self, service: Service) -> str:
        """The URL of a service's store; for a harness that has them elsewhere."""
        return "sqlite://"

    async def publish(self, payload: object, *, tenant: str = "t1", correlation: str | None = None) -> str:
        """Say a fact as its owner would; returns its id. The owner may be a service that is not in this harness."""
        event_type = event_type_of(type(payload))
        for service in self.services:
            if service.name == event_type.subject.service:
                async with service.transaction(tenant, correlation=correlation) as tx:
                    return tx.publish(payload)
        producer = Producer(service=event_type.subject.service)
        builder = EnvelopeBuilder(producer, f"/{producer.service}", STRUCTURED, self.clock, 256 * 1024)
        row = builder.build_one(payload, EventContext(tenant=tenant, correlation=correlation))
        if row.key is not None:
            line = (row.topic, row.tenant, row.key)
            self._numbers[line] += 1
            row = msgspec.structs.replace(row, sequence=self._numbers[line])
        await self.broker.publish([frame_of(row)])
        return row.event_id

    async def settled(self, timeout: float = 10.0) -> Status:
        """Wait until everything that was said has been applied or held, as far as the clock allows: retries and timers
        of the future stay where they are. `timeout` is in real seconds."""
        before: Status | None = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    figures = await status(self.services)  # not all at one moment: one look may miss what moves between
                    still = figures.quiet and figures == before and self._idle() and not await self._due()
                    if still and figures == await status(self.services):  # what was due may have run since the look
                        return figures
                    before = figures
                    await asyncio.sleep(0.001)
        except TimeoutError:
            seen = before or "no figures, because a transaction is open all the time"
            raise Unsettled(f"still moving after {timeout:g} s: {seen}") from None

    async def advance(self, seconds: float) -> Status:
        """Move the clock forward, then wait until everything that became due has been dealt with."""
        self.clock.advance(seconds)
        return await self.settled()

    def published(self, event: type[T]) -> list[Event[T]]:
        """The facts of one type that reached the broker, in order."""
        event_type = event_type_of(event)
        frames = (stored.frame for stored in self.broker.log.topics.get(event_type.topic, []))
        events = (decode_any(frame.headers, frame.body) for frame in frames)
        return [e.with_data(event_type.payload.decode(e.data)) for e in events if e.type == event_type.name]

    async def held(self, service: Service) -> list[HeldEvent]:
        """What the consumers of a service hold."""
        return [event async for event in service.held.find(HeldFilter())]

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
        for service in self.services:
            async with app_of(service).store.begin() as tx:
                for (name,) in await tx.execute(_USER_TABLES):
                    found[f"{service.name}.{name}"] = sorted(map(repr, await tx.execute(f'SELECT * FROM "{name}"')))
            counts = await app_of(service).store.counts()
            found[f"what {service.name} published"] = counts.committed
            found[f"what {service.name} holds"] = (counts.held, counts.strange)
        return found

    def _idle(self) -> bool:
        return all(runtime.idle for runtime in self._runtimes)

    async def _due(self) -> bool:
        now = self.clock.now()
        for service in self.services:
            due = await app_of(service).store.timers.next_due()
            if due is not None and due <= 0:
                return True
            retrying = await app_of(service).store.held.find(HeldFilter(state="retrying"), limit=1000)
            if any(event.next_at <= now for event in retrying):
                return True
        return False
