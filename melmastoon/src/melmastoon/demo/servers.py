"""The whole play on PostgreSQL and a real broker: one database per service, groups of services as processes of their own, killed
every few seconds, in real time at a pace."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from melmastoon.demo.books import Databases
from melmastoon.demo.cast import cast
from melmastoon.demo.clock import SharedClock
from melmastoon.demo.counting import figures
from melmastoon.demo.director import Show, play
from melmastoon.demo.figures import Figures
from melmastoon.demo.ground import LONG_AGO, Ground
from melmastoon.demo.realtime import RealTime
from melmastoon.demo.script import DAY
from melmastoon.demo.signatures import make_keys
from melmastoon.platform import GROUPS, SERVICES
from posthouse import app_of
from posthouse.clock import SystemClock


async def upgrade(ground: Ground) -> None:
    """What `posthouse db upgrade` does, for every store; and the topics, before anybody speaks."""
    for service in SERVICES:
        await app_of(service).store.upgrade()
        await app_of(service).opened.prepare()


async def played_on_servers(
    folder: Path, *, store: str, broker: str, bookings: int, seed: int, every: float, show: Show | None = None
) -> Figures:
    """Play it, and count. `every` is about how many seconds pass between two kills. The pace is what the environment says."""
    began = time.monotonic()
    ground = Ground(folder=str(folder), seed=seed, bookings=bookings, store=store, broker=broker)
    calendar = SharedClock.made(ground.clock_file, LONG_AGO)
    make_keys(folder, SERVICES)
    with ground.outside():
        ground.settle_in(SERVICES, SystemClock())
        world = RealTime(ground, calendar, SERVICES, GROUPS, seed=seed, every=every)
        try:
            await upgrade(ground)
            await world.start()
            await play(world, cast(seed, bookings), *(() if show is None else (show,)))
            await world.rest()
        finally:
            await world.stop()
            for service in SERVICES:
                await service.aclose()
    days, seconds = (calendar.now() - LONG_AGO) / DAY, time.monotonic() - began
    return await asyncio.to_thread(
        figures, Databases(store), folder, SERVICES, kills=world.kills, days=days, seconds=seconds
    )
