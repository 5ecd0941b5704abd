"""24: workers whose clocks are an hour behind or ahead, on both stores. Only durations cross into a store, so nobody notices.

SQLite is in the process: its clock is the machine's. What differs here is the clock that the service goes by.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from posthouse import App, Event, Payload, Policy, RelaySettings, Run, Service, Settings, Tx
from posthouse.app import app_of
from posthouse.broker import Frame, Verdict
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.contracts import event_type_of
from posthouse.processes import Model, Plan, Saga, Turn, on, starts
from posthouse.runtime import PARTS, Part, Runtime
from posthouse.store import HeldFilter, Store
from posthouse.store.sagas import SagaFilter
from posthouse.stores.postgres import PostgresStore
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing import rehost
from tests.kit.running import at_work as running
from tests.kit.waiting import eventually

from .scene import crafted

HOUR = 3600.0
SKEWS = pytest.mark.parametrize("off", [-HOUR, HOUR], ids=["behind", "ahead"])


class SkewedClock(SystemClock):
    """The machine's clock, so many seconds off."""

    def __init__(self, off: float) -> None:
        self._off = off

    def now(self) -> float:
        return time.time() + self._off


class Made(Payload):
    key: str
    number: int = 0


class Seen(Payload):
    number: int = 0


class Making(Saga):
    """Ends with the thing that it waits for."""

    key: str

    @starts
    def begin(self, turn: Turn) -> None: ...

    @on(Made)
    def made(self, event: Event[Made], turn: Turn) -> None:
        turn.complete()


OpenStore = Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Opens the store that the test is about, each time for another process."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "store.db")
    url = request.getfixturevalue("postgres_url")
    return lambda: PostgresStore(url)


QUICK = RelaySettings(lease=2.0, idle=0.2, first_delay=0.05, last_delay=0.3, stuck_delay=0.3)


def plant(settings: Settings | None = None) -> Service:
    service = Service("plant")
    App(service, settings=settings or Settings(relay=QUICK))
    service.event("thing.made.v1", key="key")(Made)
    service.event("view.seen.v1")(Seen)
    return service


@asynccontextmanager
async def at_work(
    service: Service, store: Store, off: float, broker: MemoryBroker | None = None, only: tuple[Part, ...] = PARTS
) -> AsyncIterator[Runtime]:
    """The service at work on a machine whose clock is off; the broker's is right."""
    rehost(service, store=store, broker=broker or MemoryBroker(clock=SystemClock()), clock=SkewedClock(off))
    if await store.pending_migrations():
        await store.upgrade()
    runtime = await app_of(service).opened.prepare()
    async with aclosing(service), running(partial(runtime.run, only=only)):
        yield runtime


@SKEWS
async def test_retries_wait_as_long_as_they_should_and_no_longer(opened: OpenStore, off: float) -> None:
    service, ran = plant(), []

    @service.on(Made, policy=Policy(max_attempts=4, first_delay=0.3, last_delay=0.3))
    async def fail(event: Event[Made], tx: Tx) -> None:
        ran.append(time.monotonic())
        raise ValueError("always")

    store = opened()
    async with at_work(service, store, off):
        async with service.transaction("t1") as tx:
            tx.publish(Made(key="k"))

        async def dead() -> bool:
            return [held.state for held in await store.held.find(HeldFilter())] == ["dead"]

        await eventually(dead, "the end of its deliveries", within=15.0, pause=0.02)
    assert len(ran) == 4
    assert all(later - earlier >= 0.14 for earlier, later in itertools.pairwise(ran)), "half of the delay at least"


@SKEWS
async def test_a_gap_that_is_filled_goes_on_at_once_and_one_that_is_not_is_alarmed_in_time(
    opened: OpenStore, off: float, caplog: pytest.LogCaptureFixture
) -> None:
    service, ran = plant(), list[tuple[str, int]]()

    @service.on(Made, policy=Policy(gap_deadline=1.0))
    async def make(event: Event[Made], tx: Tx) -> None:
        ran.append((event.data.key, event.data.number))

    store, broker = opened(), MemoryBroker(clock=SystemClock())
    async with at_work(service, store, off, broker):
        now = time.time()
        await broker.publish([crafted(Made(key="never", number=2), sequence=2, at=now)])
        began = time.monotonic()
        for number in (3, 2, 1):
            await broker.publish([crafted(Made(key="k", number=number), sequence=number, at=now)])
        await eventually(lambda: ran == [("k", 1), ("k", 2), ("k", 3)], "the filled gap to go on", within=10.0)
        assert time.monotonic() - began < 8
        await eventually(lambda: "that never came" in caplog.text, "the alarm", within=10.0)
        assert time.monotonic() - began >= 0.9, "not before its deadline"
        assert caplog.text.count("that never came") == 1


@SKEWS
async def test_a_timer_fires_in_its_time_and_nobody_asks_for_it_all_the_while(opened: OpenStore, off: float) -> None:
    service, ran = plant(), list[float]()

    @service.on(Seen)
    async def see(event: Event[Seen], tx: Tx) -> None:
        ran.append(time.monotonic())

    store = opened()
    async with at_work(service, store, off):
        asked, next_due = 0, store.timers.next_due

        async def counted() -> float | None:
            nonlocal asked
            asked += 1
            return await next_due()

        store.timers.next_due = counted  # type: ignore[method-assign]
        began = time.monotonic()
        async with service.transaction("t1") as tx:
            tx.publish(Seen(number=1), after=1.5)
            tx.publish(Seen(number=2), after=HOUR / 2)
        await eventually(lambda: len(ran) == 1, "the timer", within=15.0)
        assert ran[0] - began >= 1.4
        assert asked < 20
        assert len(await store.timers.pending()) == 1


@SKEWS
async def test_a_moment_is_the_same_for_all_however_the_clock_of_the_sender_goes(opened: OpenStore, off: float) -> None:
    service, ran = plant(), dict[int, float]()

    @service.on(Seen)
    async def see(event: Event[Seen], tx: Tx) -> None:
        ran[event.data.number] = time.time()

    store = opened()
    async with at_work(service, store, off):
        now = time.time()
        async with service.transaction("t1") as tx:
            tx.publish(Seen(number=1), at=datetime.fromtimestamp(now + 1.0, UTC))
            tx.publish(Seen(number=2), at=datetime.fromtimestamp(now + HOUR / 2, UTC))
            tx.publish(Seen(number=3), at=datetime.fromtimestamp(now - HOUR / 2, UTC))
        began = time.time()
        await eventually(lambda: len(ran) == 2, "the moments that have come", within=15.0)
        assert ran[3] <= ran[1]
        assert 0.9 <= ran[1] - began < 10
        assert [round(timer.due_at - now) for timer in await store.timers.pending()] == [HOUR / 2]


@SKEWS
async def test_the_moments_of_a_schedule_are_those_of_the_store(opened: OpenStore, off: float) -> None:
    service, ran = plant(), list[Run]()

    @service.every("* * * * *", missed="all")
    async def sweep(run: Run, tx: Tx) -> None:
        ran.append(run)

    store = opened()
    async with at_work(service, store, off):

        async def adopted() -> bool:
            return bool(await store.schedules.find())

        await eventually(adopted, "the schedule", within=15.0, pause=0.02)
        (row,) = await store.schedules.find()
        assert -1 < row.next_at - time.time() <= 60
        async with store.begin() as tx:
            await store.schedules.save(tx, replace(row, next_at=row.next_at - 120))
        await eventually(lambda: len(ran) >= 2, "what is due", within=15.0)
        assert sorted(run.moment.timestamp() for run in ran)[:2] == [row.next_at - 120, row.next_at - 60]
        assert len(ran) <= 3


@SKEWS
async def test_what_a_dead_worker_had_in_hand_comes_again_after_its_lease(opened: OpenStore, off: float) -> None:
    service, ran = plant(), list[float]()

    @service.on(Made, policy=Policy(first_delay=0.01, last_delay=0.01))
    async def make(event: Event[Made], tx: Tx) -> None:
        ran.append(time.monotonic())
        if len(ran) == 1:
            raise ValueError("once")

    store, dead = opened(), opened()
    async with at_work(service, store, 0.0, only=("relay", "consumers")) as runtime:
        [retrier] = runtime.retriers
        retrier._most = 0  # nobody runs what is held, for now
        async with service.transaction("t1") as tx:
            tx.publish(Made(key="k"))
        await eventually(lambda: len(ran) == 1, "the first run", within=15.0)

        async def claimed() -> bool:
            return bool(await dead.held.claim_due("plant", 1, 1.5))

        await eventually(claimed, "the claim of a worker that dies", within=10.0, pause=0.02)
        taken = time.monotonic()
    await dead.aclose()
    async with at_work(service, opened(), off):
        await eventually(lambda: len(ran) == 2, "the run after the lease", within=15.0)
        assert ran[1] - taken >= 1.4


@SKEWS
async def test_nothing_young_is_purged_so_that_nothing_runs_twice(opened: OpenStore, off: float) -> None:
    service, ran = plant(Settings(relay=QUICK, inbox_retention=1000.0)), list[int]()

    @service.on(Seen)
    async def see(event: Event[Seen], tx: Tx) -> None:
        ran.append(event.data.number)

    store, broker = opened(), MemoryBroker(clock=SystemClock())
    async with at_work(service, store, off, broker) as runtime:
        frames = [crafted(Seen(number=n), at=time.time()) for n in range(5)]
        await broker.publish(frames)
        await eventually(lambda: len(ran) == 5, "the first deliveries", within=15.0)
        await runtime.tidy()
        await broker.publish([*frames, crafted(Seen(number=9), at=time.time())])
        await eventually(lambda: 9 in ran, "what came behind", within=15.0)
        await eventually(lambda: runtime.idle, "calm", within=15.0)
        assert sorted(ran) == [0, 1, 2, 3, 4, 9]
        assert await store.held.find(HeldFilter()) == []


class Refusing(MemoryBroker):
    """Refuses each frame twice."""

    refused = 0

    async def publish(self, frames: object) -> object:  # type: ignore[override]
        assert isinstance(frames, list)
        mine = [f for f in frames if isinstance(f, Frame) and f.topic == event_type_of(Made).topic]
        if mine and self.refused < 3:
            self.refused += 1
            return [Verdict(False, "not now") for _ in frames]
        return await super().publish(frames)


@SKEWS
async def test_what_the_broker_refused_is_tried_again_in_its_time(opened: OpenStore, off: float) -> None:
    service, ran = plant(), list[int]()

    @service.on(Made)
    async def make(event: Event[Made], tx: Tx) -> None:
        ran.append(event.data.number)

    async with at_work(service, opened(), off, Refusing(clock=SystemClock())):
        began = time.monotonic()
        async with service.transaction("t1") as tx:
            for number in range(5):
                tx.publish(Made(key="k", number=number))
        await eventually(lambda: ran == [0, 1, 2, 3, 4], "the refused ones and those behind them", within=15.0)
        assert time.monotonic() - began >= 0.1


@SKEWS
async def test_versions_are_seen_when_they_were_seen(opened: OpenStore, off: float) -> None:
    service, ran = plant(), list[int]()

    @service.on(Seen)
    async def see(event: Event[Seen], tx: Tx) -> None:
        ran.append(event.data.number)

    store = opened()
    async with at_work(service, store, off) as runtime:
        async with service.transaction("t1") as tx:
            tx.publish(Seen(number=1))
        await eventually(lambda: ran == [1], "the event", within=15.0)
        await runtime.tidy()
        seen = await store.version_usage.seen()
        assert {use.role for use in seen} >= {"applied", "running"}
        assert all(abs(time.time() - at) < 60 for use in seen for at in (use.first_at, use.last_at))


class Reluctant(MemoryBroker):
    """Refuses all that it is given so many times, and says when it was asked."""

    def __init__(self, refusals: int) -> None:
        super().__init__(clock=SystemClock())
        self.refusals = refusals
        self.asked: list[float] = []

    async def publish(self, frames: object) -> object:  # type: ignore[override]
        assert isinstance(frames, list)
        self.asked.append(time.monotonic())
        if len(self.asked) <= self.refusals:
            return [Verdict(False, "not now") for _ in frames]
        return await super().publish(frames)


@SKEWS
async def test_what_one_relay_parked_another_tries_again_in_its_time_and_gives_up_no_sooner(
    opened: OpenStore, off: float
) -> None:
    """The first one's clock is off, the other's is right: they agree all the same."""
    waits = RelaySettings(
        lease=2.0, idle=0.2, first_delay=0.5, stuck_delay=1.0, quarantine_attempts=2, quarantine_after=HOUR / 2
    )
    service, ran = plant(Settings(relay=waits)), list[int]()

    @service.on(Made)
    async def make(event: Event[Made], tx: Tx) -> None:
        ran.append(event.data.number)

    store, refusing, reluctant = opened(), Reluctant(1_000_000), Reluctant(2)
    async with at_work(service, store, off, refusing, ("relay",)):
        async with service.transaction("t1") as tx:
            for number in range(3):
                tx.publish(Made(key="k", number=number))

        async def parked() -> bool:
            return len(await store.outbox.stuck()) == 3

        await eventually(parked, "the first relay to park them", within=10.0, pause=0.01)
    async with at_work(service, opened(), 0.0, reluctant):
        await eventually(lambda: ran == [0, 1, 2], "the other relay to try them again", within=12.0)
    tries = [refusing.asked[-1], *reluctant.asked[:3]]
    assert all(later - earlier >= 0.45 for earlier, later in itertools.pairwise(tries)), "half of the delay at least"
    assert len(reluctant.asked) <= 5


@SKEWS
async def test_sagas_that_ended_are_kept_as_long_as_they_should_and_no_longer(opened: OpenStore, off: float) -> None:
    """One worker ends it, another one with another clock tidies."""
    service = plant(Settings(relay=QUICK, saga_retention=1000.0))
    service.saga("making", correlate="key")(Making)
    store = opened()

    async def found() -> list[str]:
        return [row.status for row in await store.sagas.find(SagaFilter())]

    async def completed() -> bool:
        return await found() == ["completed"]

    async with at_work(service, store, off):
        async with service.transaction("t1") as tx:
            await service.start_saga(tx, Making(key="k"))
            tx.publish(Made(key="k"))
        await eventually(completed, "the end of the saga", within=10.0, pause=0.02)
    store = opened()
    async with at_work(service, store, 0.0) as runtime:
        await runtime.tidy()
        assert await completed(), "it is young"
        await dataclasses.replace(runtime, saga_retention=0.0).tidy()
        assert await found() == []


@SKEWS
async def test_an_old_generation_stays_for_its_grace_and_no_longer(opened: OpenStore, off: float) -> None:
    service = plant()
    model = service.projection("things")

    @model.setup
    async def tables(model: Model) -> None:
        await model.execute(f"CREATE TABLE {model.table('thing')} (tenant TEXT, key TEXT)")

    @model.on(Made)
    async def note(event: Event[Made], model: Model) -> None: ...

    store = opened()
    async with at_work(service, store, off):
        began = time.monotonic()
        await app_of(service).projections.rebuild("things", Plan(source="log", drop_after=3.0))

        async def gone() -> bool:
            return [row.number for row in await store.projections.generations()] == [2]

        await eventually(gone, "the end of the old one", within=15.0, pause=0.05)
        assert time.monotonic() - began >= 2.9
        [row] = await store.projections.generations()
        assert abs(time.time() - row.made_at) < 60
