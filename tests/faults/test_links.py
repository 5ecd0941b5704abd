"""Links between a service, its database and its broker: cut one way, flapping, slow. Nothing is lost, doubled or inverted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from posthouse import Service
from posthouse.brokers.nats import NatsBroker
from posthouse.clock import SystemClock
from posthouse.errors import StoreError
from tests.faults.plant import at_work, booking, effects, say, settled
from tests.kit.long import LONG
from tests.kit.servers.nats import NatsServer
from tests.kit.servers.proxy import Proxy, Way
from tests.kit.waiting import eventually

pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # the NATS client lets go of sockets that were cut while it connected
)
KEY = "k"
Fault = Callable[[], Awaitable[None]]


class Linked(NamedTuple):
    """A service at work, and the two links that it lives by."""

    service: Service
    database: Proxy
    broker: Proxy

    async def say_until(self, over: asyncio.Event, least: int) -> int:
        """Facts of one key, one after the other, each until it is committed; how many."""
        number = 0
        while not over.is_set() or number < least:
            await stubborn(self.service, number)
            number += 1
        return number


async def stubborn(service: Service, number: int) -> None:
    """Say it until it is known to be committed: its idempotency key makes it one event."""
    while True:
        try:
            async with asyncio.timeout(20):
                return await say(service, KEY, number)
        except (StoreError, TimeoutError):
            await asyncio.sleep(0.02)


@asynccontextmanager
async def linked(postgres_url: str, nats_server: NatsServer, *, patience: int = 2) -> AsyncIterator[Linked]:
    parts = urlsplit(postgres_url)
    async with (
        Proxy("127.0.0.1", parts.port or 0) as database,
        Proxy("127.0.0.1", nats_server.port) as link,
    ):
        url = parts._replace(
            netloc=parts.netloc.replace(f":{parts.port}", f":{database.port}"), query=f"patience={patience}"
        )
        broker = NatsBroker(f"nats://127.0.0.1:{link.port}", clock=SystemClock(), lease=1.0, timeout=1.0)
        async with at_work(booking(), url.geturl(), broker) as service:
            await say(service, "first", 0)
            await settled(service)
            try:
                yield Linked(service, database, link)
            finally:
                await database.heal()
                await link.heal()


async def proven(linked: Linked, said: int, least: int) -> None:
    """Everything that was committed was applied, once and in order."""
    figures = await settled(linked.service, 90)
    assert await effects(linked.service, KEY) == list(range(said)), "something was lost, doubled or inverted"
    assert sum(line.applied for line in figures.lines) == said + 1
    assert said >= least


@pytest.mark.parametrize("way", ["asked", "answered"])
@pytest.mark.parametrize("side", ["database", "broker"])
async def test_a_link_that_is_cut_one_way_only_loses_doubles_and_inverts_nothing(
    postgres_url: str, nats_server: NatsServer, side: str, way: Way
) -> None:
    async with linked(postgres_url, nats_server) as ground:
        link, over = ground.database if side == "database" else ground.broker, asyncio.Event()
        saying = asyncio.create_task(ground.say_until(over, 20))
        for seconds in (0.5, 3.0, 10.0) if LONG else (3.0,):
            await link.stall_one_way(way)
            await asyncio.sleep(seconds)  # the fault itself
            await link.heal()
        over.set()
        await proven(ground, await saying, 20)


@pytest.mark.parametrize("seed", range(20 if LONG else 1))
async def test_links_that_flap_in_any_order_lose_double_and_invert_nothing(
    postgres_url: str, nats_server: NatsServer, seed: int
) -> None:
    """Stopped one by one, each in its own way, and brought back in another order."""
    dice = random.Random(f"links {seed}")
    async with linked(postgres_url, nats_server) as ground:
        over = asyncio.Event()
        saying = asyncio.create_task(ground.say_until(over, 20))
        stopped = 0
        for _ in range(4):
            links = [ground.database, ground.broker]
            for link in dice.sample(links, 2):
                faults: list[Fault] = [link.cut, link.stall, partial(link.stall_one_way, "answered")]
                await dice.choice(faults)()
                stopped += 1
                await asyncio.sleep(dice.uniform(0.0, 1.0))  # the fault itself
            for link in dice.sample(links, 2):
                await link.heal()
                await asyncio.sleep(dice.uniform(0.0, 0.5))
        over.set()
        assert stopped == 8
        await proven(ground, await saying, 20)


async def test_a_slow_link_towards_the_database_costs_time_and_nothing_else(
    postgres_url: str, nats_server: NatsServer
) -> None:
    """Each word takes longer than a quarter of the relay's lease, both ways; the patience is longer than that."""
    async with linked(postgres_url, nats_server, patience=20) as ground:
        over = asyncio.Event()
        await ground.database.slow(2.0 if LONG else 0.25)
        saying = asyncio.create_task(ground.say_until(over, 3))
        await asyncio.sleep(3.0)  # the fault itself
        over.set()
        said = await saying
        await eventually(lambda: effects(ground.service, KEY), within=60)
        await ground.database.heal()
        await proven(ground, said, 3)
