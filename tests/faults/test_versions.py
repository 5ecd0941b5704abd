"""Versions side by side: both rows or none, and one effect for each fact, whoever takes which version when."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from collections import Counter
from pathlib import Path

import pytest

from posthouse import App, Event, Service, Tx
from posthouse.app import app_of
from posthouse.clock import SystemClock
from posthouse.contracts import Topics
from posthouse.events import decode_any
from posthouse.stores import open_store
from posthouse.watch.status import drained
from tests.faults.version_scene import Booked, BookedByName, book, hotel_on
from tests.kit.waiting import eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store, but for its name."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/{{}}.db"
    return f"{request.getfixturevalue('postgres_url')}?schema={{}}&writers=4"


class HeldEvents:
    """A consumer in several releases, on one store."""

    def __init__(self, store: str, broker: str) -> None:
        self._store, self._broker = store, broker
        self._runs = itertools.count(1)
        self._enough = asyncio.Event()
        self._left = -1

    def release(self, *, old: bool = False, new: bool = False, lifted: bool = False) -> Service:
        desk = Service("desk")
        App(desk, store=self._store, broker=self._broker)
        desk.setup(_tables)
        if old:
            desk.on(Booked)(self._take_old)
        if new or lifted:
            desk.on(BookedByName)(self._take_new)
        if lifted:
            desk.upcast(Booked, to=BookedByName)(lambda v1: BookedByName(stay=v1.stay, number=v1.number, guest="?"))
        return desk

    async def run_until(self, service: Service, most: int) -> None:
        """Until its handlers ran so often; what is in flight then is finished."""
        self._left, self._enough = most, asyncio.Event()
        async with asyncio.timeout(60):
            await service.run(stop=self._enough)
        await service.aclose()

    async def _take_old(self, event: Event[Booked], tx: Tx) -> None:
        await self._note(tx, event.data.stay, event.data.number)

    async def _take_new(self, event: Event[BookedByName], tx: Tx) -> None:
        await self._note(tx, event.data.stay, event.data.number)

    async def _note(self, tx: Tx, stay: str, number: int) -> None:
        await tx.execute(f"INSERT INTO applied VALUES ({next(self._runs)}, '{stay}', {number})")
        self._left -= 1
        if self._left == 0:
            self._enough.set()


async def _tables(tx: Tx) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS applied (run integer, stay text, number integer)")


@pytest.mark.parametrize("topics", ["aggregate", "subject"])
async def test_a_consumer_that_moves_from_one_version_to_the_next_applies_every_fact_once(
    place: str, topics: Topics, tmp_path: Path
) -> None:
    broker = f"embedded:///{tmp_path}/log.db?single_host=true"
    hotel = hotel_on(place.format("hotel"), broker, topics)
    desk = HeldEvents(place.format("desk"), broker)
    last = desk.release(lifted=True)
    for service in (hotel, last):
        await app_of(service).store.upgrade()
    async with hotel.running():
        await book(hotel, range(40))
        await desk.run_until(desk.release(old=True), 10)
        await desk.run_until(desk.release(old=True, new=True), 10)
        await desk.run_until(desk.release(old=True), 5)  # back to the release before
        await book(hotel, range(40, 60))
        async with last.running():
            await drained(hotel, last, timeout=60)

            async def nothing_waits() -> bool:
                return not (await app_of(last).store.counts()).held

            await eventually(nothing_waits, "nothing is held any more")
            async with last.transaction("t1") as tx:
                found = await tx.execute("SELECT stay, number FROM applied ORDER BY run")
    assert Counter(number for _, number in found) == Counter(range(60))
    for stay in ("s0", "s1", "s2"):
        numbers = [int(str(number)) for key, number in found if key == stay]
        assert numbers == sorted(numbers), f"out of order: {numbers}"


async def test_a_rolled_back_fact_is_published_in_no_version(place: str, tmp_path: Path) -> None:
    hotel = hotel_on(place.format("hotel"), f"embedded:///{tmp_path}/log.db?single_host=true", "subject")
    await app_of(hotel).store.upgrade()
    with contextlib.suppress(LookupError):
        async with hotel.transaction("t1") as tx:
            tx.publish(BookedByName(stay="s", number=1, guest="Ada"))
            await tx.flush()
            raise LookupError("no room")
    assert (await app_of(hotel).store.counts()).committed == {}
    await book(hotel, range(2))
    assert (await app_of(hotel).store.counts()).committed == {"hotel.stay.booked.v1": 2, "hotel.stay.booked.v2": 2}
    await hotel.aclose()


async def test_a_fact_is_said_and_a_timer_is_cancelled_in_one_transaction(place: str, tmp_path: Path) -> None:
    hotel = hotel_on(place.format("hotel"), f"embedded:///{tmp_path}/log.db?single_host=true", "subject")
    await app_of(hotel).store.upgrade()
    async with hotel.transaction("t1") as tx:
        tx.publish(BookedByName(stay="s", number=1, guest="Ada"), after=3600, timer="reminder")
    async with hotel.transaction("t1") as tx:
        tx.publish(BookedByName(stay="s", number=2, guest="Ada"))
        assert await tx.cancel("reminder")
    assert await app_of(hotel).store.timers.pending() == []
    assert (await app_of(hotel).store.counts()).committed == {"hotel.stay.booked.v1": 1, "hotel.stay.booked.v2": 1}
    await hotel.aclose()


async def test_a_producer_that_is_killed_leaves_both_versions_of_a_fact_or_none(place: str, tmp_path: Path) -> None:
    url, broker = place.format("hotel"), f"embedded:///{tmp_path}/log.db?single_host=true"
    store = open_store(url, clock=SystemClock())
    await store.upgrade()
    for kill in range(1, 6):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.faults.version_scene", url, broker, cwd=ROOT
        )

        async def is_busy(facts: int = kill * 30) -> bool:
            return (await store.counts()).committed.get("hotel.stay.booked.v2", 0) >= facts

        try:
            await eventually(is_busy, "the producer has committed")
        finally:
            process.kill()
            await process.wait()
    shards = await store.outbox.lease("test", 60.0)
    facts: dict[str, set[str]] = {}
    rows = (await store.outbox.poll(shards, 100_000)).rows
    for row in rows:
        event = decode_any(row.headers, row.body)
        facts.setdefault(str(event.extensions["dualof"]), set()).add(event.type)
    await store.aclose()
    assert len(rows) >= 300
    assert {frozenset(types) for types in facts.values()} == {
        frozenset({"hotel.stay.booked.v1", "hotel.stay.booked.v2"})
    }
    assert len(rows) == 2 * len(facts)
