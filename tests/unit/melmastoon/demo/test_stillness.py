"""Whether anything is in flight, and what a dead process held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from melmastoon.demo.clock import SharedClock
from melmastoon.demo.heirs import free, hidden_for
from melmastoon.demo.stillness import LogReading, Stillness, Watcher
from posthouse import Event, Payload, Policy, RetryLater, Service, Tx
from posthouse.app import app_of
from posthouse.brokers.embedded import EmbeddedBroker
from posthouse.clock import SystemClock
from posthouse.runtime import Runtime
from posthouse.stores.sqlite import SqliteStore
from posthouse.testing import rehost

NOON = 1_800_000_000.0


class Hotel:
    """One service on files, whose handler fails as long as it is told to."""

    def __init__(self, folder: Path) -> None:
        self.service = service = Service("hotel", namespace="melmastoon")
        self.clock = SharedClock.made(folder / "clock", NOON)
        self.store, self.log = folder / "hotel.db", folder / "log.db"
        self.fails = False
        self.heard: list[str] = []

        @service.event("guest.came.v1", key="name")
        class Came(Payload):
            name: str

        @service.on(Came, policy=Policy(first_delay=10.0))
        async def hear(event: Event[Came], tx: Tx) -> None:
            if self.fails:
                raise RetryLater("not now")
            self.heard.append(event.data.name)

        self.came = Came

    def settle_in(self) -> None:
        log = EmbeddedBroker(self.log, clock=SystemClock(), synchronous="NORMAL", lease=3600.0)
        store = SqliteStore(self.store, clock=self.clock, synchronous="NORMAL")
        rehost(self.service, store=store, broker=log, clock=self.clock)

    async def say(self, name: str) -> None:
        async with self.service.transaction("t1") as tx:
            tx.publish(self.came(name=name))

    def watcher(self) -> tuple[Watcher, LogReading]:
        reading = LogReading(self.log)
        return Watcher({"hotel": self.store}, hidden_for(self.service), reading), reading


@pytest.fixture
async def hotel(tmp_path: Path) -> AsyncIterator[Hotel]:
    hotel = Hotel(tmp_path)
    hotel.settle_in()
    yield hotel
    await hotel.service.aclose()


async def working(hotel: Hotel) -> tuple[Runtime, asyncio.Event, asyncio.Task[None]]:
    runtime, stop = await app_of(hotel.service).opened.prepare(), asyncio.Event()
    return runtime, stop, asyncio.create_task(runtime.run(stop))


def look(hotel: Hotel) -> Stillness:
    watcher, reading = hotel.watcher()
    try:
        return watcher.look(hotel.clock.now())
    finally:
        watcher.close()
        reading.close()


async def stillness(hotel: Hotel) -> Stillness:
    """The first look that finds nothing in flight."""
    async with asyncio.timeout(10):
        while (seen := look(hotel)).moving:  # noqa: ASYNC110 - files set no event
            await asyncio.sleep(0.005)
    return seen


async def test_what_was_said_is_in_flight_until_it_was_applied(hotel: Hotel) -> None:
    await app_of(hotel.service).opened.prepare()
    await hotel.say("Amina")
    assert "rows to send" in look(hotel).moving
    _, stop, task = await working(hotel)
    assert await stillness(hotel) == Stillness("", None)
    assert hotel.heard == ["Amina"]
    stop.set()
    await task


async def test_a_retry_is_what_comes_next_and_not_in_flight(hotel: Hotel) -> None:
    hotel.fails = True
    await app_of(hotel.service).opened.prepare()
    await hotel.say("Amina")
    _, stop, task = await working(hotel)
    seen = await stillness(hotel)
    assert seen.next is not None
    assert NOON + 5.0 <= seen.next <= NOON + 10.0
    hotel.fails = False
    hotel.clock.move(seen.next)
    assert await stillness(hotel) == Stillness("", None)
    assert hotel.heard == ["Amina"]
    stop.set()
    await task


async def test_how_long_a_held_event_is_hidden_is_known_as_it_is_to_whoever_runs_it(hotel: Hotel) -> None:
    async def ask(event: Event[object]) -> str:
        return "yes"

    @hotel.service.on(hotel.came, consumer="asking", calling=ask, policy=Policy(deadline=2.0))
    async def answered(event: Event[object], tx: Tx, answer: str) -> None: ...

    runtime = await app_of(hotel.service).opened.prepare()
    known = {
        consumer.name: retrier._visibility
        for consumer, retrier in zip(runtime.consumers, runtime.retriers, strict=True)
    }
    assert hidden_for(hotel.service) == known == {"hotel": 15.0, "hotel.asking": 9.0}


async def test_nobody_waits_for_a_service_that_is_away(hotel: Hotel) -> None:
    await app_of(hotel.service).opened.prepare()
    await hotel.say("Amina")
    watcher, reading = hotel.watcher()
    assert watcher.look(NOON, away=("hotel",)).moving == ""
    watcher.close()
    reading.close()


async def test_what_a_dead_process_held_is_free_at_once_though_the_clock_stands_still(hotel: Hotel) -> None:
    """It died while it ran a held event, with its lanes and its partitions leased for an hour."""
    hotel.fails = True
    await app_of(hotel.service).opened.prepare()
    await hotel.say("Amina")
    _, stop, task = await working(hotel)
    due = (await stillness(hotel)).next
    assert due is not None
    stop.set()
    await task
    hotel.clock.move(due)
    await app_of(hotel.service).store.held.claim_due("hotel", 1, hidden_for(hotel.service)["hotel"])  # and died
    await app_of(hotel.service).store.outbox.lease("the dead", 3600.0)
    stream = await app_of(hotel.service).broker.subscribe("hotel", ["melmastoon.hotel.guest"])
    await hotel.say("Bahram")
    hotel.fails = False
    free(hotel.store, hotel.log, hotel.service)
    _, stop, task = await working(hotel)
    assert await stillness(hotel) == Stillness("", None)
    assert sorted(hotel.heard) == ["Amina", "Bahram"]
    assert hotel.clock.now() == due
    stop.set()
    await task
    await stream.aclose()
