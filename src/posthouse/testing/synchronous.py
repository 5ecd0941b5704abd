"""SyncHarness: the harness for tests without an event loop, as those of Django and Flask. It runs in a thread of its own."""

from __future__ import annotations

from types import TracebackType
from typing import Self, TypeVar

from posthouse.clock import ManualClock
from posthouse.events import Event
from posthouse.service import Service
from posthouse.store import HeldEvent
from posthouse.testing.harness import IN_MEMORY, Harness
from posthouse.testing.scratch import LoopThread
from posthouse.watch.status import Status

T = TypeVar("T")


class SyncHarness:
    """`with SyncHarness(shop, store=posthouse_store) as harness`: every method is the Harness's, and waits. Publish from the test with
    `outbox.add_now`, or with `publish` here."""

    def __init__(self, *services: Service, store: str = IN_MEMORY, schedules: bool = True) -> None:
        self._services = services
        self._store = store
        self._schedules = schedules
        self._thread: LoopThread

    @property
    def clock(self) -> ManualClock:
        """The clock that everything here follows."""
        return self._harness.clock

    def __enter__(self) -> Self:
        self._thread = LoopThread()
        try:
            self._harness = self._thread.run(self._entered())
        except BaseException:
            self._thread.close()
            raise
        return self

    async def _entered(self) -> Harness:
        return await Harness(*self._services, store=self._store, schedules=self._schedules).__aenter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.run(self._harness.__aexit__(kind, error, trace))
        finally:
            self._thread.close()

    def publish(
        self,
        payload: object,
        *,
        tenant: str = "t1",
        correlation: str | None = None,
        causation: str | None = None,
    ) -> str:
        """As `Harness.publish`."""
        return self._thread.run(
            self._harness.publish(payload, tenant=tenant, correlation=correlation, causation=causation)
        )

    def settled(self, timeout: float = 10.0) -> Status:
        """As `Harness.settled`."""
        return self._thread.run(self._harness.settled(timeout))

    def advance(self, seconds: float) -> Status:
        """As `Harness.advance`."""
        return self._thread.run(self._harness.advance(seconds))

    def published(self, event: type[T]) -> list[Event[T]]:
        """As `Harness.published`."""
        return self._thread.run(self._harness.published(event))

    def held(self, service: Service) -> list[HeldEvent]:
        """As `Harness.held`."""
        return self._thread.run(self._harness.held(service))

    def assert_replay_safe(self) -> None:
        """As `Harness.assert_replay_safe`."""
        self._thread.run(self._harness.assert_replay_safe())
