"""Pulls the cable between a service and its PostgreSQL, run by `test_postgres_network.py` in a network of its own.

Everything is in one network namespace whose loopback is taken down and up again: packets vanish, nobody is told. Every
claim is checked here; the last line printed is `done` when all of them held.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence

from posthouse import Service
from posthouse.errors import StoreError
from tests.faults.plant import at_work, booking, effects, say, settled
from tests.kit.servers.postgres import binaries, running


def loopback(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


async def stubborn(service: Service, key: str, number: int) -> None:
    while True:
        try:
            async with asyncio.timeout(40):
                return await say(service, key, number)
        except (StoreError, TimeoutError):
            await asyncio.sleep(0.05)


async def flap(cuts: Sequence[float], over: asyncio.Event) -> None:
    """Cut for so many seconds each time, with a second between."""
    for seconds in cuts:
        await asyncio.sleep(1.0)
        loopback("down")
        await asyncio.sleep(seconds)  # the fault itself
        loopback("up")
    over.set()


async def run(url: str) -> None:
    service, over, number = booking(), asyncio.Event(), 0
    async with at_work(service, f"{url}?patience=5"):
        flapping = asyncio.create_task(flap([0.3, 3.0, 1.0, 6.0], over))
        while not over.is_set():
            await stubborn(service, "k", number)
            number += 1
            await asyncio.sleep(0.02)
        await flapping
        figures = await settled(service, 60)
        assert await effects(service, "k") == list(range(number)), "something was lost, doubled or inverted"
        assert [line.applied for line in figures.lines if line.committed] == [number]
        assert number > 20


if __name__ == "__main__":
    loopback("up")
    with running(binaries()) as url:
        asyncio.run(run(url))
    print("done")
    sys.exit(0)
