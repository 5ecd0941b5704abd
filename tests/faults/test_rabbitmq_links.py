"""RabbitMQ behind a link that is cut and falls silent in the middle of things: the same processes apply everything, and end when
they are asked to (faults 14 to 17). POSTHOUSE_LONG takes 60 turns and 5,000 events."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

from posthouse import Service
from posthouse.app import app_of
from posthouse.brokers.rabbitmq import RabbitmqBroker
from posthouse.clock import SystemClock
from tests.conformance.broker_path import House
from tests.kit.long import LONG
from tests.kit.servers.proxy import Proxy
from tests.kit.servers.rabbitmq import RabbitmqServer
from tests.kit.waiting import eventually

TURNS, EVENTS = (60, 5_000) if LONG else (10, 1_000)
KEYS = 20
SILENCE = 1.5
"""Seconds, and longer than a client waits for an answer."""


@contextlib.asynccontextmanager
async def at_work(*services: Service) -> AsyncIterator[None]:
    """Until the end of the block; each then has 20 seconds to leave."""
    stop = asyncio.Event()
    tasks = [asyncio.create_task((await app_of(service).opened.prepare()).run(stop)) for service in services]
    try:
        yield
    finally:
        stop.set()
        _, left = await asyncio.wait(tasks, timeout=20)
        for service in services:
            await service.aclose()
        assert not left, "a service did not end when it was asked to"
        assert not [task.exception() for task in tasks if task.exception()]


def house_behind(link: Proxy, server: RabbitmqServer, folder: Path) -> House:
    """The one that consumes is behind the link: all that is said there is said by a consumer."""

    def broker(port: int) -> RabbitmqBroker:
        return RabbitmqBroker(
            server.url_of("shop", port), clock=SystemClock(), partitions=4, heartbeat=2, timeout=1.0, settle=0
        )

    return House(folder, (broker(server.port), broker(link.port)))


async def storm(link: Proxy, rng: random.Random) -> None:
    """Whoever comes back after a cut finds a link that falls silent after some words, for longer than anybody waits, and then goes
    on as if nothing was. The last ones are not cut any more: what a failed subscribe left on them stays."""
    for turn in range(TURNS):
        if turn < TURNS / 2:
            await link.cut()
            await link.heal()
        link.after(rng.randrange(5, 30), "stall")
        await eventually(lambda: link.stalled, within=30)
        await asyncio.sleep(SILENCE)
        await link.heal()


async def applied(house: House, count: int, within: float) -> int:
    """How many at the end; waits until all are."""
    deadline = time.monotonic() + within
    while True:
        found = sum(map(len, (await house.invoices()).values()))
        if found >= count or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.1)


async def test_everything_is_applied_by_the_same_processes_though_subscribes_fail_and_connections_die(
    rabbitmq_server: RabbitmqServer, tmp_path: Path
) -> None:
    async with Proxy("127.0.0.1", rabbitmq_server.port) as link:
        house = house_behind(link, rabbitmq_server, tmp_path)
        for service in house.services:
            await app_of(service).opened.prepare()
        blowing = asyncio.create_task(storm(link, random.Random(14)))
        async with at_work(*house.services):
            for number in range(EVENTS):
                await house.place(f"o{number % KEYS}", number // KEYS)
            await blowing
            assert await applied(house, EVENTS, within=30) == EVENTS
            assert await house.invoices() == {f"o{n}": list(range(EVENTS // KEYS)) for n in range(KEYS)}
            async with asyncio.timeout(30):
                while (line := await house.line()).in_flight:  # noqa: ASYNC110 - the broker sets no event of ours
                    await asyncio.sleep(0.1)
            assert (line.verdict, line.committed, line.applied) == ("adds up", EVENTS, EVENTS)


async def test_a_service_whose_link_is_silent_ends_when_it_is_asked_to(
    rabbitmq_server: RabbitmqServer, tmp_path: Path
) -> None:
    async with Proxy("127.0.0.1", rabbitmq_server.port) as link:
        house = house_behind(link, rabbitmq_server, tmp_path)
        async with at_work(*house.services):
            for number in range(100):
                await house.place("o1", number)
            assert await applied(house, 1, within=30) >= 1
            await link.stall()
            began = time.monotonic()
        assert time.monotonic() - began < 25
