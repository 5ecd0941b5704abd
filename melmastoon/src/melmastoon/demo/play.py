"""The whole play in a folder: six processes on files, a clock that stands still, kills, and the count."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from melmastoon.demo.books import Files
from melmastoon.demo.cast import cast
from melmastoon.demo.clock import SharedClock
from melmastoon.demo.counting import figures
from melmastoon.demo.director import Show, play
from melmastoon.demo.figures import Figures
from melmastoon.demo.glance import Glance, Window
from melmastoon.demo.ground import MONDAY, Ground
from melmastoon.demo.script import DAY, Scene
from melmastoon.demo.signatures import make_keys
from melmastoon.demo.simulated import Simulated
from melmastoon.demo.stage import Stage
from melmastoon.platform import GROUPS, SERVICES
from posthouse import app_of

KILLING = 0.04
"""The chance of a kill each time that things settle."""


class Screen(Protocol):
    """Somebody who watches."""

    @property
    def wants(self) -> bool: ...

    def show(self, glance: Glance) -> None: ...


async def played(
    folder: Path, *, bookings: int, seed: int, killing: float = KILLING, show: Screen | None = None
) -> Figures:
    """Play it, and count. The services of this process belong to the play from then on: the witness stays with them."""
    began = time.monotonic()
    ground = Ground(folder=str(folder), seed=seed, bookings=bookings)
    clock = SharedClock.made(ground.clock_file, MONDAY)
    make_keys(folder, SERVICES)
    with ground.outside():
        ground.settle_in(SERVICES, clock)
        world = Simulated(ground, clock, SERVICES, GROUPS, seed=seed, killing=killing)
        try:
            for service in SERVICES:
                await app_of(service).opened.prepare()
            await world.start()
            with _watched(show, folder, [service.name for service in SERVICES]) as look:
                await play(world, cast(seed, bookings), look)
        finally:
            await world.stop()
            for service in SERVICES:
                await service.aclose()
    days = (clock.now() - MONDAY) / DAY
    return figures(Files(folder), folder, SERVICES, kills=world.kills, days=days, seconds=time.monotonic() - began)


@contextmanager
def _watched(screen: Screen | None, folder: Path, services: list[str]) -> Iterator[Show]:
    """What is called at each scene: shows a glance when the screen wants one."""
    window = Window(folder, services) if screen is not None else None

    def look(scene: Scene, stage: Stage) -> None:
        if screen is None or window is None or not screen.wants:
            return
        doing = sorted({act.do.replace("_", " ") for act in scene.acts})
        screen.show(
            Glance(
                day=stage.today,
                days=(stage.today - stage.first_day).days,
                hour=(stage.world.now() - stage.midnight) % DAY / 3600.0,
                doing=", ".join(doing),
                bookings=window.bookings(),
                facts=window.facts(),
                kills=stage.world.kills,
            )
        )

    try:
        yield look
    finally:
        if window is not None:
            window.close()
