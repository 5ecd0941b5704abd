"""A plant whose power can be cut: a harness that stops its services abruptly after a step, and starts them again."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from posthouse.app import app_of
from posthouse.broker import Broker, Stream
from posthouse.errors import BrokerUnavailable, CommitUnknown, StoreUnavailable
from posthouse.service import Service
from posthouse.store import HeldEvent, Store, Transaction
from posthouse.stores import open_store
from posthouse.testing.harness import Harness
from posthouse.testing.hosting import rehost
from posthouse.watch.status import Status

LIFE: contextvars.ContextVar[int | None] = contextvars.ContextVar("posthouse_life", default=None)
"""In which life of the services a task was begun; None for the test itself, which no power cut stops."""


class Step(msgspec.Struct, frozen=True):
    """Something that lasts: a commit, events that the broker has, a cursor that moved, timers that fired. Or the moment before
    a handler's commit: what it did in the database is gone then, and what it did elsewhere is not."""

    what: str
    service: str

    def __str__(self) -> str:
        return f"{self.what} of {self.service}"


class Plant(Harness):
    """As a Harness. After step number `kill_after` every service is stopped as by a power cut: what is not committed is
    gone, nothing is finished, no lease is given back in good order. Then all are started again, on the same stores and broker.

    A restart takes no time on the clock. What a dead process had leased or claimed would be free again after a while: the
    plant frees it at once, so that a test need not wait for it with its deadlines running.
    """

    def __init__(self, *services: Service, kill_after: int | None = None) -> None:
        super().__init__(*services)
        self.steps: list[Step] = []
        self.life = 0
        self.killed_after: Step | None = None
        self.counting = True
        self._kill_after = kill_after
        self._up = asyncio.Event()
        self._dead = asyncio.Event()
        self._brokers: list[GuardedBroker] = []
        self._guards: list[GuardedStore] = []
        self._streams: list[tuple[int | None, Stream]] = []
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for service in self.services:
            store = GuardedStore(open_store("sqlite://", clock=self.clock), self, service.name)
            broker = GuardedBroker(self.broker, self, service.name)
            self._guards.append(store)
            self._brokers.append(broker)
            self._before.append(app_of(service))
        try:
            await self._start()
        except BaseException:
            await self._restore()
            raise
        self._watch = asyncio.create_task(self._restart_when_dead())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.counting = False
        if self._watch is not None:
            if self._dead.is_set():
                await self._watch
            self._watch.cancel()
            await asyncio.wait([self._watch])
        await super().__aexit__(kind, error, trace)

    async def settled(self, timeout: float = 10.0) -> Status:
        """As the harness's; what is down is waited for."""
        while True:
            async with asyncio.timeout(timeout):
                await self._up.wait()
            life = self.life
            figures = await super().settled(timeout)
            if self._up.is_set() and life == self.life:
                return figures

    def check(self, away: Callable[[str], Exception]) -> None:
        """A task of an earlier life reaches nothing any more."""
        life = LIFE.get()
        if life is not None and life != self.life:
            raise away("the power was cut")

    def done(self, step: Step, unknown: Callable[[str], Exception]) -> None:
        """A step lasts. If it was the last one, the services die before they hear of it."""
        if not self.counting:
            return
        self.steps.append(step)
        if len(self.steps) == self._kill_after:
            self.killed_after = step
            self._kill()
            if LIFE.get() is not None:
                raise unknown("the power was cut")

    def joined(self, stream: Stream) -> None:
        """A member of a group, which leaves it when it dies."""
        self._streams.append((LIFE.get(), stream))

    def _kill(self) -> None:
        self.life += 1
        self._up.clear()
        for task in self._tasks:
            task.cancel()
        self._dead.set()

    async def _restart_when_dead(self) -> None:
        await self._dead.wait()
        await self._bury(self._tasks)
        for life, stream in self._streams:
            if life is not None and life != self.life:
                await stream.aclose()
        for guard in self._guards:
            await guard.free_what_the_dead_hold(self.clock.now())
        await self._start()

    async def _bury(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Cancel until they end: an error on the way out may have taken the place of a cancellation."""
        left = set(tasks)
        while left:
            for task in left:
                task.cancel()
            ended, left = await asyncio.wait(left, timeout=0.01)
            for task in ended:  # asked, so that nobody reports what killed them as never retrieved
                _ = task.cancelled() or task.exception()

    async def _start(self) -> None:
        """Open everything anew, as a new process does: nothing that was only in memory is known any more."""
        for service, store, broker in zip(self.services, self._guards, self._brokers, strict=True):
            secrets = self._under_own_keys(app_of(service).opened.secrets)
            place = cast("Store", store)
            rehost(service, store=place, broker=cast("Broker", broker), clock=self.clock, secrets=secrets)
        counting, self.counting = self.counting, False  # set-up functions are no part of the story
        self._runtimes = [await app_of(service).opened.prepare() for service in self.services]
        self.counting = counting
        context = contextvars.copy_context()
        context.run(LIFE.set, self.life)
        self._tasks = [asyncio.create_task(runtime.run(self._stop), context=context) for runtime in self._runtimes]
        self._up.set()


class Guarded:
    """Passes calls on, as long as who calls is alive."""

    def __init__(self, inner: object, plant: Plant, service: str) -> None:
        self._inner = inner
        self._plant = plant
        self._service = service

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._guarding(name, found) if inspect.iscoroutinefunction(found) else found

    def _guarding(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def guarded(*arguments: object, **options: object) -> object:
            self._plant.check(StoreUnavailable)
            result: object = await call(*arguments, **options)
            self._note(name, arguments, result)
            return result

        return guarded

    def _note(self, name: str, arguments: Sequence[object], result: object) -> None:
        """For those that have to remember something."""


class GuardedOutbox(Guarded):
    """Remembers who leased shards, and tells of cursors that moved."""

    def __init__(self, inner: object, plant: Plant, service: str) -> None:
        super().__init__(inner, plant, service)
        self.owners: set[str] = set()

    def _note(self, name: str, arguments: Sequence[object], result: object) -> None:
        if name == "lease":
            self.owners.add(str(arguments[0]))
        elif name in ("settle", "settle_stuck") and result:
            self._plant.done(Step("the cursor", self._service), StoreUnavailable)


class GuardedHeld(Guarded):
    """Remembers which events somebody was about to run."""

    def __init__(self, inner: object, plant: Plant, service: str) -> None:
        super().__init__(inner, plant, service)
        self.claimed: list[HeldEvent] = []

    def _note(self, name: str, arguments: Sequence[object], result: object) -> None:
        if name == "claim_due":
            self.claimed += cast("Sequence[HeldEvent]", result)


class GuardedTimers(Guarded):
    """Tells of timers that fired."""

    def _note(self, name: str, arguments: Sequence[object], result: object) -> None:
        if name == "fire" and result:
            self._plant.done(Step("timers", self._service), StoreUnavailable)


class GuardedStore(Guarded):
    """A store that the dead cannot reach."""

    def __init__(self, inner: Store, plant: Plant, service: str) -> None:
        super().__init__(inner, plant, service)
        self._store = inner
        self.outbox = GuardedOutbox(inner.outbox, plant, service)
        self.held = GuardedHeld(inner.held, plant, service)
        self.timers = GuardedTimers(inner.timers, plant, service)

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        is_table = type(found).__module__.startswith("posthouse.stores.") and not callable(found)
        return Guarded(found, self._plant, self._service) if is_table else found

    def begin(self, *arguments: Any, **options: Any) -> GuardedBlock:
        """A transaction that cannot be committed by the dead."""
        return GuardedBlock(self._store.begin(*arguments, **options), self._plant, self._service)

    async def free_what_the_dead_hold(self, now: float) -> None:
        """Leases and claims, which would be free again after a while."""
        for owner in self.outbox.owners:
            await self._store.outbox.release(owner)
        self.outbox.owners.clear()
        async with self._store.begin() as tx:
            for event in self.held.claimed:
                await self._store.held.change(tx, msgspec.structs.replace(event, next_at=now))
        self.held.claimed.clear()


class GuardedBlock:
    """One transaction. Its commit is a step; that of somebody who is dead by then is rolled back."""

    def __init__(self, inner: AbstractAsyncContextManager[Transaction], plant: Plant, service: str) -> None:
        self._inner = inner
        self._plant = plant
        self._service = service

    async def __aenter__(self) -> Transaction:
        self._plant.check(StoreUnavailable)
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self._plant.check(StoreUnavailable)
                if LIFE.get() is not None:
                    self._plant.done(Step("the moment before a commit", self._service), StoreUnavailable)
            except StoreUnavailable as dead:
                await self._inner.__aexit__(type(dead), dead, dead.__traceback__)
                raise
        await self._inner.__aexit__(kind, error, trace)
        if error is None:
            self._plant.done(Step("a commit", self._service), CommitUnknown)


class GuardedBroker(Guarded):
    """The plant's broker, as one service reaches it."""

    def _guarding(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def guarded(*arguments: object, **options: object) -> object:
            self._plant.check(BrokerUnavailable)
            result: object = await call(*arguments, **options)
            if name == "publish" and result:
                self._plant.done(Step("a publish", self._service), BrokerUnavailable)
            if name == "subscribe":
                self._plant.joined(cast("Stream", result))
                return GuardedStream(result, self._plant, self._service)
            return result

        return guarded

    async def aclose(self) -> None:
        """The broker is everybody's: the plant closes it with the last one."""
        await cast("Broker", self._inner).aclose()


class GuardedStream(Guarded):
    """A member of a group. A dead one acknowledges nothing, and leaves no word: the plant takes it out of its group."""

    def _guarding(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def guarded(*arguments: object, **options: object) -> object:
            self._plant.check(BrokerUnavailable)
            return await call(*arguments, **options)

        return guarded

    async def aclose(self) -> None:
        """Leave, if it is alive."""
        with contextlib.suppress(BrokerUnavailable):
            self._plant.check(BrokerUnavailable)
            await cast("Stream", self._inner).aclose()
