"""Faults 8, 9 and 60: the server itself goes down between two of our statements, whatever they are.

Each kind of crash is tried at every statement boundary of every part, while somebody else rolls transactions back all the
time and while a publish takes as long as the crash. What the server has when it is back comes out once and in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from posthouse.app import app_of
from posthouse.broker import Broker
from posthouse.brokers.memory import MemoryBroker
from posthouse.brokers.postgres import PostgresBroker
from posthouse.clock import SystemClock
from posthouse.errors import RebuildStopped, StoreError
from posthouse.processes import Plan
from posthouse.processes.projection import rebuilding
from posthouse.runtime import Part, Runtime
from posthouse.store import HeldEvent, HeldFilter
from posthouse.stores.postgres.outbox import LEASE, SETTLE, SETTLE_TOGETHER
from posthouse.stores.postgres.timers import FIRE
from posthouse.testing import rehost
from posthouse.watch.status import Line, status
from tests.faults.crash_plant import Client, CrashPlant, is_done, nothing_waits, set_aside, verdict
from tests.faults.kit import tally
from tests.faults.kit.boundaries import PUBLISH, Boundaries, Boundary, Moment, as_part, short
from tests.faults.kit.report import Report
from tests.faults.kit.server_crashes import KINDS, Ground, Kind, Rolling, grounded
from tests.faults.plant import settled, until
from tests.kit.long import LONG

PATIENCE = 20.0
"""Seconds for a service to be at work again behind a server that is up."""
TRIES, WAIT = 4, 1.0
"""How often somebody is given a reason to come by a boundary, and for how many seconds each time."""
JUDGED_EVERY = 10
OFTEN = 2
LASTING = ("COMMIT", short(SETTLE_TOGETHER), short(SETTLE), short(FIRE), PUBLISH)
TRIPS = "plant.trip"
ALL = ("timers", "consumer", "sagas", "projections", "rebuild", "housekeeping")
MOMENTS: tuple[Moment, ...] = ("before", "after")

pytestmark = pytest.mark.timeout(7200 if LONG else 240)


class Stage:
    """A plant at work on a server that is taken down under it."""

    def __init__(self, ground: Ground, *, log_there: bool = False) -> None:
        """`log_there`: the broker is in the same database, so that both lose the same commits."""
        self._ground = ground
        self._lossy = log_there
        self.rolling = Rolling(ground)
        self.boundaries = Boundaries(self.rolling.roll)
        self.plant, other = CrashPlant(), CrashPlant()
        self.service = self.plant.service
        url = ground.url + "?patience=5" + ("&pooler=transaction" if ground.pooled else "")
        clock = SystemClock()
        inner: Broker = (
            PostgresBroker(ground.url, clock=clock, pooled=ground.pooled, lease=2.0)
            if log_there
            else MemoryBroker(clock=clock)
        )
        rehost(self.service, store=url, broker=self.boundaries.watch_publish(inner), clock=clock)
        rehost(other.service, store=url, broker=MemoryBroker(clock=clock), clock=clock)
        self._other = other
        self.client = Client(other)
        self._since = 0
        self._moving: list[Line] = []
        self._runtime: Runtime | None = None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """With the tables made, and nobody at work."""
        await app_of(self.service).store.upgrade()
        try:
            with self.boundaries.watched():
                yield
        finally:
            await self.service.aclose()
            await self._other.service.aclose()
            self.rolling.close()

    @contextlib.asynccontextmanager
    async def at_work(self, *parts: str) -> AsyncIterator[None]:
        """Every part, or these, in tasks of their own."""
        self._runtime = runtime = dataclasses.replace(
            await app_of(self.service).opened.prepare(), housekeeping_every=1e6
        )
        stop = asyncio.Event()
        shares = [share for share in _shares(runtime) if not parts or share[0] in parts]
        tasks = [asyncio.create_task(self._run(*share, stop)) for share in shares]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    async def _run(self, name: str, share: Runtime, only: Part, stop: asyncio.Event) -> None:
        async with as_part(name):
            await share.run(stop, (only,))

    async def _strike(self) -> None:
        """The server goes down, at once, and others commit on its next run before this statement goes on."""
        self.rolling.take_down()
        await asyncio.to_thread(self.rolling.bring_back)
        self._since = await self.client.say(2)

    async def learn(self) -> None:
        """An undisturbed run, which comes by every boundary."""
        for _ in range(OFTEN):
            await self.client.say(15)
            await self._tidy()
            await self._rebuild()
            await until(lambda: nothing_waits(self.service), "the last timer and the end of the last saga", PATIENCE)
        await settled(self.service)

    async def strike_alone(self, boundary: Boundary) -> bool:
        """Let the server go down there while only the relay is at work: nobody else's commit then writes down the ids that
        its snapshots know. It has a lease that is safe, and goes on with it. False when it did not come by."""
        await self.client.say(1)
        self.boundaries.arm(Boundary("relay", short(LEASE), "before"), self._part)
        async with self.at_work("relay"):
            assert await self.boundaries.struck(PATIENCE)
            self.boundaries.arm(boundary, self._strike)
            await self.boundaries.struck(TRIES * WAIT)
        struck = await self.boundaries.struck(0)  # what it does when it stops counts too
        self.boundaries.disarm()
        return struck

    async def _part(self) -> None:
        self._ground.part()

    async def take(self, boundary: Boundary) -> bool:
        """Let the server go down there, and wait until what was said afterwards is applied. False when nobody came by."""
        await asyncio.to_thread(self._ground.part)
        self.boundaries.arm(boundary, self._strike)
        for _ in range(TRIES):
            if await self._come_by(boundary.part):
                await self._healed(boundary)
                return True
            await asyncio.to_thread(self.rolling.end_sessions)
        struck = await self.boundaries.struck(0)  # somebody may have come by since
        self.boundaries.disarm()
        if struck:
            await self._healed(boundary)
        return struck

    async def _come_by(self, part: str) -> bool:
        """Give this part something to do."""
        await self.client.say(3)
        match part:
            case "housekeeping":
                await self._tidy()
            case "rebuild" | "projections":
                await self._rebuild()
        return await self.boundaries.struck(WAIT)

    async def _healed(self, boundary: Boundary) -> None:
        try:
            await until(self._is_at_work, "what was said on the next run", PATIENCE)
        except AssertionError as error:
            report = await verdict(self.service, lossy=self._lossy)
            raise AssertionError(f"{boundary}: {error}\n{report}\n{report.violations}") from None

    async def _is_at_work(self) -> bool:
        """Whether something of the next run was applied; whoever got the number of one that was lost was set aside."""
        if self._lossy and any(fact.number >= self._since for fact in await set_aside(self.service)):
            self._since = await self.client.say(1)
        return await is_done(self.service, "noted", self._since)

    async def judged(self) -> Report:
        """When nothing moves any more."""
        try:
            await until(self._nothing_is_missed, "the filling of every gap", PATIENCE)
            await until(lambda: nothing_waits(self.service), "the last timer and the end of the last saga", PATIENCE)
            await (until(self._is_calm, "calm", PATIENCE) if self._lossy else settled(self.service, PATIENCE))
        except AssertionError as error:
            report = await verdict(self.service, lossy=self._lossy)
            raise AssertionError(f"{error}\n{self._moving}\n{report}\n{report.violations}") from None
        report = dataclasses.replace(await verdict(self.service, lossy=self._lossy), crashes=self.rolling.crashes)
        assert not report.violations, f"{report}\n{report.violations}"
        held = await app_of(self.service).store.held.find(HeldFilter(), limit=10_000)
        assert [one for one in held if not (self._lossy and _is_of_what_was_lost(one))] == []
        return report

    async def _is_calm(self) -> bool:
        """Nothing is on its way. It does not add up where an event that was in hand when its commit was lost is applied."""
        figures = await status([self.service])
        self._moving = [
            line
            for line in figures.lines
            if line.topic != TRIPS and not line.removed and (line.in_flight or line.held.get("retrying"))
        ]
        return not self._moving and not any(figures.unsent.values()) and await self._nothing_is_missed()

    async def _nothing_is_missed(self) -> bool:
        """What was lost is missed until its number is given out again."""
        missed = await app_of(self.service).store.held.find(HeldFilter(state="gap"))
        if self._lossy and (missed := [one for one in missed if not _is_of_what_was_lost(one)]):
            await self.client.say(3)
        return not missed

    async def _tidy(self) -> None:
        assert self._runtime is not None
        async with as_part("housekeeping"):
            with contextlib.suppress(StoreError):
                await self._runtime.tidy()

    async def _rebuild(self) -> None:
        async with as_part("rebuild"):
            with contextlib.suppress(StoreError, RebuildStopped):
                await app_of(self.service).projections.rebuild("entries", Plan(source="streams", drop_after=0.0))


def _is_of_what_was_lost(held: HeldEvent) -> bool:
    """Whether it was in hand when what it belongs to was lost, and is told: it has another's number, a trip that is never begun
    again, or a generation of the read model of which nobody knows any more. What that must have is looked at itself."""
    return "fork" in held.reason or held.entry.topic == TRIPS or held.consumer.startswith("plant.entries.g")


def _shares(runtime: Runtime) -> Iterator[tuple[str, Runtime, Part]]:
    """The parts of a service, each under its name."""
    yield "relay", runtime, "relay"
    yield "timers", runtime, "timers"
    for consumer, retrier in zip(runtime.consumers, runtime.retriers, strict=True):
        name = "sagas" if consumer.name.endswith(".trip") else "consumer"
        share = dataclasses.replace(runtime, consumers=[consumer], retriers=[retrier], projections=None)
        yield name, share, "consumers"
    yield "projections", dataclasses.replace(runtime, consumers=[], retriers=[]), "consumers"


@contextlib.asynccontextmanager
async def staged(kind: Kind, *, log_there: bool = False) -> AsyncIterator[Stage]:
    with grounded(kind) as ground:
        stage = Stage(ground, log_there=log_there)
        async with stage.open():
            yield stage


@pytest.fixture(autouse=True)
def rebuilds_are_gone_on_with_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "LEASE", 1.0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_goes_down_while_a_publish_takes_its_time_loses_nothing_that_is_committed_on_its_next_run(
    kind: Kind,
) -> None:
    """Poll, publish, crash, commits whose transaction ids the poll's snapshot knows already, settle."""
    async with staged(kind) as stage:
        await stage.client.say(3)
        for moment in MOMENTS:
            assert await stage.strike_alone(Boundary("relay", PUBLISH, moment))
        async with stage.at_work():
            report = await stage.judged()
    assert stage.rolling.given_twice >= 1, "no transaction id came again: this was not the schedule"
    assert report.crashes == len(MOMENTS)
    enter(kind, stage, report, at_least=20)


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_the_server_does_between_two_of_our_statements_every_commit_comes_out_once_and_in_order(
    kind: Kind,
) -> None:
    missed: list[Boundary] = []
    async with staged(kind, log_there=kind == "promotion") as stage:
        async with stage.at_work():
            await stage.learn()
        points = chosen(stage.boundaries, kind)
        for point in points["relay"]:
            if not await stage.strike_alone(point):
                missed.append(point)
        async with stage.at_work():
            await stage.judged()
            for number, point in enumerate([point for part in ALL for point in points[part]], 1):
                if not await stage.take(point):
                    missed.append(point)
                if number % JUDGED_EVERY == 0:
                    await stage.judged()
            report = await stage.judged()
    count = sum(map(len, points.values()))
    assert len(missed) <= count / 4, f"nobody came by {missed}"
    assert stage.rolling.given_twice >= 1, "no transaction id came again: these were not the schedules"
    assert report.crashes == count - len(missed)
    enter(kind, stage, report, at_least=20 * report.crashes)


def chosen(boundaries: Boundaries, kind: Kind) -> dict[str, list[Boundary]]:
    """For each part all of them, or for each kind of crash some of those where something lasting is done."""
    dice, points = random.Random(kind), {}
    for part in ("relay", *ALL):
        found = boundaries.all(part, often=1 if LONG else OFTEN)
        lasting = [one for one in found if one.statement.endswith(LASTING)] or found
        points[part] = dice.sample(found, len(found)) if LONG else dice.sample(lasting, 3 if part == "relay" else 1)
    return points


def enter(kind: Kind, stage: Stage, report: Report, *, at_least: int) -> None:
    tally.enter(f"8 server down between two statements, {kind}", report, at_least=at_least)
    tally.server_crashes[kind] += report.crashes
    tally.given_twice += stage.rolling.given_twice
