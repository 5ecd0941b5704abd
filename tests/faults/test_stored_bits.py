"""23: bits of stored envelopes flip behind our back, in the outbox and among held events. 50: the number of shards changes."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from posthouse import Event, Payload, Policy, Service, Tx
from posthouse.app import app_of
from posthouse.broker import Broker
from posthouse.brokers.memory import MemoryBroker
from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.store import HeldFilter
from posthouse.testing import rehost
from posthouse.watch.status import status
from tests.kit.running import at_work
from tests.kit.waiting import eventually

from .stores import store_url, stores, worded

__all__ = ["stores"]

COUNT = 40
HURT = range(0, COUNT, 2)


class ThingMade(Payload):
    key: str
    number: int


class Plant:
    """One service that keeps what it heard; its handler may be told to fail."""

    def __init__(self, url: str) -> None:
        self.broken = False
        self.service = Service("plant")
        self.service.event("thing.made.v1", key="key")(ThingMade)
        self.service.setup(self._tables)
        self.service.on(ThingMade, policy=Policy(max_attempts=1))(self._make)
        self._clock = SystemClock()
        self._broker: Broker = MemoryBroker(clock=self._clock)
        rehost(self.service, store=url, broker=self._broker, clock=self._clock)

    async def _tables(self, tx: Tx) -> None:
        await tx.execute(worded("CREATE TABLE IF NOT EXISTS effect ({id}, key TEXT, number BIGINT)"))

    async def _make(self, event: Event[ThingMade], tx: Tx) -> None:
        if self.broken:
            raise RuntimeError("broken")
        await tx.execute(worded("INSERT INTO effect (key, number) VALUES (?, ?)"), (event.data.key, event.data.number))

    async def say(self) -> None:
        await app_of(self.service).store.upgrade()
        async with self.service.transaction(tenant="t1") as tx:
            for number in range(COUNT):
                tx.publish(ThingMade(key=f"k{number}", number=number))

    async def at_work_until(self, done: Callable[[], Awaitable[bool]]) -> None:
        async with at_work((await app_of(self.service).opened.prepare()).run):
            await eventually(done, within=40)

    async def dealt_with(self) -> int:
        (line,) = (await status([self.service])).lines
        return line.applied + sum(line.held.values()) + line.strange

    async def effects(self) -> list[str]:
        async with app_of(self.service).store.begin() as tx:
            return [str(key) for (key,) in await tx.execute("SELECT key FROM effect ORDER BY key")]

    async def flip(self, table: str, seed: int) -> None:
        """One bit in each envelope that is to be hurt."""
        luck = random.Random(seed)
        async with app_of(self.service).store.begin() as tx:
            rows = await tx.execute(worded(f"SELECT id, key, body FROM posthouse_{table} ORDER BY id", "plant"))
            for row_id, key, body in rows:
                assert isinstance(body, bytes)
                if int(str(key)[1:]) in HURT:
                    at = luck.randrange(len(body))
                    hurt = body[:at] + bytes([body[at] ^ (1 << luck.randrange(8))]) + body[at + 1 :]
                    await tx.execute(
                        worded(f"UPDATE posthouse_{table} SET body = ? WHERE id = ?", "plant"), (hurt, row_id)
                    )


@pytest.fixture
async def plant(stores: str, tmp_path: Path) -> Plant:
    return Plant(store_url("plant", f"sqlite:///{tmp_path}/plant.db"))


@pytest.mark.parametrize("seed", range(3))
async def test_flipped_bits_in_the_outbox_hurt_their_own_event_at_most(plant: Plant, seed: int) -> None:
    await plant.say()
    await plant.flip("outbox", seed)

    async def all_dealt_with() -> bool:
        return await plant.dealt_with() >= COUNT

    await plant.at_work_until(all_dealt_with)
    applied = set(await plant.effects())
    assert {f"k{number}" for number in range(COUNT) if number not in HURT} <= applied, "a neighbour was not applied"
    held = await app_of(plant.service).store.held.find(HeldFilter(), limit=COUNT)
    await plant.service.aclose()
    assert len(held) >= 3, "no bit was worth a quarantine: the flips were none"
    assert all(one.reason for one in held)


@pytest.mark.parametrize("seed", range(3))
async def test_flipped_bits_of_held_events_hurt_their_own_event_at_most(plant: Plant, seed: int) -> None:
    plant.broken = True
    await plant.say()

    async def all_dead() -> bool:
        return len(await app_of(plant.service).store.held.find(HeldFilter(state="dead"), limit=COUNT)) == COUNT

    await plant.at_work_until(all_dead)
    plant.broken = False
    await plant.flip("held", seed)
    held = await app_of(plant.service).store.held.find(HeldFilter(), limit=COUNT)
    for one in held:
        assert one.id is not None
        await plant.service.held.retry(one.id)

    async def neighbours_applied() -> bool:
        return {f"k{number}" for number in range(COUNT) if number not in HURT} <= set(await plant.effects())

    await plant.at_work_until(neighbours_applied)
    await plant.service.aclose()


async def test_another_number_of_shards_is_refused_while_the_old_one_works_on(stores: str, tmp_path: Path) -> None:
    url = store_url("plant", f"sqlite:///{tmp_path}/plant.db")
    plant = Plant(url)
    await plant.say()
    other = Plant(f"{url}{'&' if '?' in url else '?'}shards=4")

    async def refused_and_done() -> bool:
        with pytest.raises(ConfigurationError, match="shards"):
            await app_of(other.service).opened.prepare()
        return await plant.dealt_with() >= COUNT

    await plant.at_work_until(refused_and_done)
    await plant.at_work_until(refused_and_done)
    assert len(await plant.effects()) == COUNT
    await other.service.aclose()
    await plant.service.aclose()
