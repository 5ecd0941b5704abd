"""Load: a tenant that says a hundred times as much as another, and a backlog that nobody could keep in memory."""

from __future__ import annotations

import asyncio
import os
from array import array
from pathlib import Path

import pytest

from posthouse import App, Event, Payload, RelaySettings, Service, Settings
from posthouse.app import app_of
from posthouse.broker import Frame
from posthouse.clock import SystemClock
from posthouse.testing import rehost
from posthouse.watch.status import status
from tests.faults.plant import until
from tests.faults.scene import crafted
from tests.kit.long import LONG

ROUNDS, NOISE = 20, 100
"""So often, so many events of the noisy tenant and then one of the quiet."""
PARTITIONS = 4
IN_FLIGHT = 200
BACKLOG = 1_000_000 if LONG else 50_000
BATCH = 1_000
SMALL = RelaySettings(batch=50, backlog_batch=100, idle=0.2)
MOST_GROWN = 24_000_000
"""Bytes by which the process may grow; the numbers that it notes are a few millions of them."""
LETTER = 1_000
"""Bytes of an event of the backlog: so many of them would show in any process that keeps them."""


class Made(Payload):
    key: str
    number: int = 0
    letter: str = ""


class Plant:
    """A service that notes which events begin, in their order; `gate` lets it go on."""

    def __init__(self, store: str, broker: str) -> None:
        self.service = Service("plant")
        App(self.service, settings=Settings(relay=SMALL, in_flight=IN_FLIGHT))
        self.service.event("thing.made.v1", key="key")(Made)
        self.service.on(Made)(self._begin)
        rehost(self.service, store=store, broker=broker, clock=SystemClock())
        self.began = array("q")
        """The numbers of events that began: 0 and above of the noisy tenant, below of the quiet one."""
        self.gate = asyncio.Event()
        self.gate.set()

    async def _begin(self, event: Event[Made]) -> None:
        self.began.append(event.data.number)
        await self.gate.wait()

    async def open(self) -> None:
        if not app_of(self.service).store.embedded:
            await app_of(self.service).store.upgrade()
        await app_of(self.service).opened.prepare()

    async def say(self, tenant: str, *events: Made) -> None:
        async with self.service.transaction(tenant) as tx:
            for event in events:
                tx.publish(event)

    async def begun(self, count: int) -> bool:
        return len(self.began) >= count


@pytest.fixture(params=["embedded", "postgres"])
async def plant(request: pytest.FixtureRequest, tmp_path: Path) -> Plant:
    """On a store and a log of the same kind."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        plant = Plant(f"{url}?writers=4", f"{url}?schema=log&partitions={PARTITIONS}")
    else:
        log = f"embedded:///{tmp_path}/log.db?partitions={PARTITIONS}&single_host=true"
        plant = Plant(f"sqlite:///{tmp_path}/plant.db", log)
    await plant.open()
    return plant


# 57: a noisy tenant.


async def test_a_quiet_tenant_begins_within_a_window_of_each_partition_beside_one_that_says_a_hundred_times_as_much(
    plant: Plant,
) -> None:
    """Everything is committed before the relay begins, which is the worst that the quiet one can meet. It waits for what
    was said before it, less what its turns are worth, and beyond that for one window of each partition."""
    for number in range(ROUNDS):
        await plant.say("noisy", *(Made(key=f"n{n}", number=number * NOISE + n) for n in range(NOISE)))
        await plant.say("quiet", Made(key=f"q{number % 8}", number=-1 - number))
    async with plant.service.running():
        await until(lambda: plant.begun(ROUNDS * (NOISE + 1)), "everything", 120)
    quiet = [at for at, number in enumerate(plant.began) if number < 0]
    waited = {-1 - plant.began[at]: at - before for before, at in enumerate(quiet)}
    assert len(waited) == ROUNDS
    late = {number: noise for number, noise in waited.items() if noise > (number + 1) * NOISE + PARTITIONS * IN_FLIGHT}
    assert late == {}
    assert max(waited.values()) <= ROUNDS * NOISE - IN_FLIGHT // 4, "turns are worth a part of the window"


# 32: a backlog.


def letters(first: int) -> list[Frame]:
    """The next frames of the backlog, each the first of its key."""
    numbers = range(first, min(first + BATCH, BACKLOG))
    return [crafted(Made(key=f"k{n}", number=n, letter="x" * LETTER), sequence=1) for n in numbers]


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.timeout(300 if BACKLOG < 1_000_000 else 7200)
async def test_a_slow_consumer_keeps_no_backlog_in_memory_and_says_how_long_it_is(plant: Plant) -> None:
    for first in range(0, BACKLOG, BATCH):
        verdicts = await app_of(plant.service).broker.publish(letters(first))
        assert all(verdict.accepted for verdict in verdicts)
    plant.gate.clear()
    before = resident()
    async with plant.service.running():
        await until(lambda: plant.begun(1), "the first event")
        (line,) = (await status([plant.service])).lines
        assert (line.in_flight, line.applied) == (BACKLOG, 0)
        plant.gate.set()
        enough = BACKLOG // 10
        await until(lambda: plant.begun(enough), f"{enough:,} events", 3600)
        plant.gate.clear()
        grown = resident() - before
        (line,) = (await status([plant.service])).lines
        assert BACKLOG - len(plant.began) <= line.in_flight <= BACKLOG - len(plant.began) + 2 * IN_FLIGHT
        plant.gate.set()
    assert grown < BACKLOG * LETTER // 2, "it keeps no backlog in memory"
    assert grown < MOST_GROWN
