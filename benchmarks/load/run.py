"""Run: servers, processes and phases, one after the other. What is lost, doubled or refused ends it with an error."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import asyncpg

from benchmarks.load import result
from benchmarks.load.children import Child, child
from benchmarks.load.plan import Plan, Schedule
from benchmarks.load.producer import Ask
from benchmarks.load.result import Result, Sample, Saturation, Times
from benchmarks.load.shop import COMMITS, COUNT, CREATE, Pace, Place, billing_at, orders_at
from benchmarks.postgres.server import TUNED, BenchServer, run
from posthouse.app import app_of
from posthouse.service import Service
from posthouse.watch.status import Status, status
from tests.kit.servers import kafka, nats
from tests.kit.servers.postgres import binaries, running

AHEAD = 0.5
"""Seconds from a schedule's being handed over to its first event."""
PATIENCE = 300.0
"""Seconds for all events to be applied once the last was committed."""
SETTLED = 30.0
"""Seconds for the figures to stand still then."""
PAUSE = 1.0
LEAST = 50
"""Events that must be committed while the capacity is measured."""


class Stage(NamedTuple):
    """Everything that runs."""

    place: Place
    producer: Child
    relay: Child
    consumers: Sequence[Child]
    services: Sequence[Service]

    @property
    def workers(self) -> Sequence[Child]:
        return [self.relay, *self.consumers]


async def drive(plan: Plan, broker: str) -> Result:
    """One whole run on new servers."""
    load_before = os.getloadavg()[0]
    async with staged(plan, broker) as stage:
        sent = await _capacity(stage, plan)
        capacity = sent / await _took(stage, sent)
        base = plan.base or capacity * plan.share
        _tell(
            f"capacity {capacity:,.0f}/s, base {base:,.0f}/s, peak {base * plan.factor:,.0f}/s for {plan.seconds:g} s"
        )
        steady = Schedule(plan.measured(base), sent, time.time() + AHEAD)
        sent += await _kept(stage, steady)
        await _applied(stage, sent)
        steady_latencies = result.latencies(steady, await times(stage.place.billing, steady.first))
        for one in steady_latencies:
            _tell(f"{one.phase}: p50 {one.p50:.1f}, p99 {one.p99:.1f}, p99.9 {one.p999:.1f} ms")
        full, saturation = await _saturated(stage, plan, base, sent)
        sent += full.events
        figures = await _added_up(stage, sent)
        committed, applied = [await times(url, steady.first) for url in (stage.place.orders, stage.place.billing)]
        return Result(
            broker=broker,
            began=steady.began,
            cores=os.cpu_count() or 1,
            load_before=load_before,
            capacity=capacity,
            base=base,
            factor=plan.factor,
            latencies=steady_latencies,
            seconds=result.timeline([steady, full], committed, applied),
            saturation=saturation,
            committed=sum(figures.committed.values()),
            applied=sum(line.applied for line in figures.lines),
            verdict=figures.verdict,
        )


@contextlib.asynccontextmanager
async def staged(plan: Plan, kind: str) -> AsyncIterator[Stage]:
    """Servers, two databases and all processes, ready."""
    async with contextlib.AsyncExitStack() as stack:
        settings = {**TUNED, "track_commit_timestamp": "on"}
        server = BenchServer(stack.enter_context(running(binaries(), settings)))
        orders, billing = [await stack.enter_async_context(server.prepared()) for _ in range(2)]
        for url in (orders, billing):
            await run(url, CREATE)
        broker = stack.enter_context(BROKERS[kind](orders))
        place = Place(orders, billing, broker, plan.in_flight)
        consumers = [
            await stack.enter_async_context(
                child(f"consumers {n + 1}", "benchmarks.load.worker", "consumers", place=place)
            )
            for n in range(plan.consumers)
        ]
        relay = await stack.enter_async_context(child("relay", "benchmarks.load.worker", "relay", place=place))
        producer = await stack.enter_async_context(child("producer", "benchmarks.load.producer", place=place))
        await asyncio.gather(*(one.ready() for one in (*consumers, relay, producer)))
        services = [orders_at(place), billing_at(place, Pace())]
        for service in services:
            await app_of(service).opened.look()
            stack.push_async_callback(service.aclose)
        listening = [asyncio.create_task(one.listen()) for one in (relay, *consumers)]
        try:
            yield Stage(place, producer, relay, consumers, services)
        finally:
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)


async def _capacity(stage: Stage, plan: Plan) -> int:
    """As much as can be, until all of it is applied; how many events that were."""
    found = await stage.producer.ask(Ask(seconds=plan.capacity_seconds))
    if found.failed:
        raise RuntimeError(f"{len(found.failed):,} commits failed: {found.failed[0]}")
    if found.events < LEAST:
        raise RuntimeError(f"{found.events:,} commits in {plan.capacity_seconds:g} s are too few to measure anything")
    await _applied(stage, found.events)
    return found.events


async def _took(stage: Stage, events: int) -> float:
    """Seconds from the first commit to the last that was applied."""
    committed, applied = [await times(url, 0) for url in (stage.place.orders, stage.place.billing)]
    if not len(committed) == len(applied) == events:
        raise RuntimeError(f"{events:,} were sent, {len(committed):,} committed and {len(applied):,} applied")
    return max(applied.values()) - min(committed.values())


async def _kept(stage: Stage, schedule: Schedule) -> int:
    """The producer keeps a schedule; all of it must be committed."""
    found = await stage.producer.ask(Ask(schedule=schedule))
    if found.failed or found.events != schedule.events:
        raise RuntimeError(f"{len(found.failed):,} of {schedule.events:,} commits failed: {found.failed[:1]}")
    return found.events


async def _saturated(stage: Stage, plan: Plan, base: float, first: int) -> tuple[Schedule, Saturation]:
    """Consumers do a part of what is offered, then as much as they can until all is applied."""
    phases = plan.saturation(base)
    pace = phases[0].rate * plan.slowed
    samples: list[Sample] = []
    sampling = asyncio.create_task(_sampled(stage, samples))
    before = {one.name: one.memory for one in stage.workers}
    for one in stage.consumers:
        one.most = 0
        one.say(pace / len(stage.consumers))
    schedule = Schedule(phases, first, time.time() + AHEAD)
    _tell(f"saturation: {phases[0].rate:,.0f}/s offered, {pace:,.0f}/s done, for {plan.saturated:g} s")
    await _kept(stage, schedule)
    for one in stage.consumers:
        one.say(None)
    eased = time.time()
    await _applied(stage, first + schedule.events)
    last = max((await times(stage.place.billing, first)).values())
    sampling.cancel()
    await asyncio.gather(sampling, return_exceptions=True)
    most = {name: max(sample.memory[name] for sample in samples) - size for name, size in before.items()}
    found = Saturation(
        offered=phases[0].rate,
        done=pace,
        seconds=plan.saturated,
        events=schedule.events,
        backlog=max(sample.unsent + sample.at_broker for sample in samples),
        in_hand=max(one.most for one in stage.consumers),
        in_hand_limit=plan.in_flight,
        growth=max(most.values()),
        drained=max(0.0, last - eased),
        samples=samples,
    )
    if found.in_hand > found.in_hand_limit:
        raise RuntimeError(f"a consumer had {found.in_hand:,} in hand, and may have {found.in_hand_limit:,}")
    return schedule, found


async def _sampled(stage: Stage, samples: list[Sample]) -> None:
    """Where events lie, every second until it is cancelled."""
    while True:
        figures = await status(stage.services)
        unsent = sum(figures.unsent.values())
        samples.append(
            Sample(
                at=time.time(),
                unsent=unsent,
                at_broker=max(0, sum(line.in_flight for line in figures.lines) - unsent),
                in_hand=sum(one.last for one in stage.consumers),
                memory={one.name: one.memory for one in stage.workers},
            )
        )
        await asyncio.sleep(PAUSE)


async def _applied(stage: Stage, events: int) -> None:
    """Wait for so many rows of the consumers."""
    connection = await asyncpg.connect(stage.place.billing)
    deadline, count = time.monotonic() + PATIENCE, -1
    try:
        while count < events:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{count:,} of {events:,} events were applied in {PATIENCE:g} s")
            for one in stage.workers:
                if one.process.returncode is not None:
                    raise RuntimeError(f"{one.name} ended with code {one.process.returncode}")
            count = await connection.fetchval(COUNT)
            await asyncio.sleep(0.1)
    finally:
        await connection.close()


async def _added_up(stage: Stage, sent: int) -> Status:
    """The figures of `posthouse status` once nothing moves: all that was sent, once each, and nothing anywhere else."""
    deadline = time.monotonic() + SETTLED
    while (  # noqa: ASYNC110 - other processes set no event of ours
        figures := await status(stage.services)
    ).verdict != "adds up" and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    [line] = figures.lines
    if (figures.verdict, line.committed, line.applied, sum(line.held.values()), line.skipped) != (
        "adds up",
        sent,
        sent,
        0,
        0,
    ):
        raise RuntimeError(f"{sent:,} events were sent; {figures.verdict}: {line}")
    for url in (stage.place.orders, stage.place.billing):
        connection = await asyncpg.connect(url)
        rows = await connection.fetchval(COUNT)
        events = await connection.fetchval("SELECT count(DISTINCT number) FROM noted")
        await connection.close()
        if not rows == events == sent:
            raise RuntimeError(f"{sent:,} events were sent; {rows:,} rows of {events:,} events are there")
    return figures


async def times(url: str, first: int) -> Times:
    """When the row of each event was committed, from one on."""
    connection = await asyncpg.connect(url)
    try:
        return {row["number"]: row["at"] for row in await connection.fetch(COMMITS, first)}
    finally:
        await connection.close()


@contextlib.contextmanager
def _postgres(url: str) -> Iterator[str]:
    yield f"{url}?schema=log"


@contextlib.contextmanager
def _nats(_: str) -> Iterator[str]:
    with nats.running() as server:
        yield server.url


@contextlib.contextmanager
def _kafka(_: str) -> Iterator[str]:
    with kafka.running() as server:
        yield server.url


BROKERS: Mapping[str, Callable[[str], contextlib.AbstractContextManager[str]]] = {
    "nats": _nats,
    "postgres": _postgres,
    "kafka": _kafka,
}


def _tell(words: str) -> None:
    print(f"  {words}", file=sys.stderr, flush=True)
