"""The hotels, alive in real time on the files of a folder: guests come until nobody looks any more. Now and then a process is killed,
and now and then the carrier of messages goes on strike: what that leaves behind is for whoever sits at the console."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from melmastoon.demo.cast import cast
from melmastoon.demo.clock import SharedClock
from melmastoon.demo.director import play
from melmastoon.demo.ground import LONG_AGO, Ground
from melmastoon.demo.realtime import RealTime
from melmastoon.demo.signatures import make_keys
from melmastoon.platform import GROUPS, SERVICES
from posthouse import PosthouseError, app_of
from posthouse.clock import SystemClock

log = logging.getLogger("melmastoon.demo")

GUESTS = 3_000
"""Bookings: hours of them."""
CALM, STRIKE = 40.0, 30.0
"""Seconds before the carrier takes no messages, and for which it does not: longer than a message is tried."""
AGAIN = 600.0
"""Seconds from one strike to the next."""


@asynccontextmanager
async def alive(folder: Path, *, seed: int, every: float, strikes: bool = True) -> AsyncIterator[None]:
    """The hotels live inside the block; their services in this process are open, and run in others. `every` is about how many
    seconds pass between two kills, 0 for none."""
    ground = Ground(folder=str(folder), seed=seed, bookings=GUESTS, live=True)
    calendar = SharedClock.made(ground.clock_file, LONG_AGO)
    make_keys(folder, SERVICES)
    with ground.outside():
        ground.settle_in(SERVICES, SystemClock())
        world = RealTime(ground, calendar, SERVICES, GROUPS, seed=seed, every=every)
        living: list[asyncio.Task[None]] = []
        try:
            for service in SERVICES:
                await app_of(service).opened.prepare()
            await world.start()
            living.append(asyncio.create_task(_guests(world, seed), name="melmastoon guests"))
            if strikes:
                living.append(asyncio.create_task(_strikes(ground), name="melmastoon strikes"))
            yield
        finally:
            for task in living:
                task.cancel()
            await asyncio.gather(*living, return_exceptions=True)
            await world.stop()
            for service in SERVICES:
                await service.aclose()


async def _guests(world: RealTime, seed: int) -> None:
    try:
        await play(world, cast(seed, GUESTS))
    except PosthouseError:
        log.exception("no more guests come; what is there can still be looked at")


async def _strikes(ground: Ground) -> None:
    await asyncio.sleep(CALM)
    while True:
        ground.strike_file.touch()
        try:
            await asyncio.sleep(STRIKE)
        finally:
            with suppress(FileNotFoundError):
                ground.strike_file.unlink()
        await asyncio.sleep(AGAIN)
