"""`posthouse demo`: Melmastoon, alive on this machine. Guests book, change their minds and leave; vendors fail; processes are
killed; and afterwards everything is counted."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.live import Live

from melmastoon.demo.figures import Figures
from melmastoon.demo.glance import Glance
from melmastoon.demo.report import print_figures
from melmastoon.demo.view import View
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.output import print_json, say, stdout
from posthouse.errors import ConfigurationError

FRAMES = 8
"""Frames per second, at most."""


def demo(
    bookings: Annotated[int, typer.Option(min=1, max=9_999, help="How many bookings are made.")] = 300,
    seed: Annotated[
        int, typer.Option(help="Which guests come and what goes wrong; the same seed, the same outcome.")
    ] = 1,
    kills: Annotated[bool, typer.Option(help="Kill processes while they work.")] = True,
    store: Annotated[
        str,
        typer.Option(help="Play on servers, in real time: the URL of a PostgreSQL database, {service} for the name."),
    ] = "",
    broker: Annotated[str, typer.Option(help="The broker beside it, as in nats://127.0.0.1:4222.")] = "",
    every: Annotated[
        float, typer.Option(min=0.5, help="On servers: about how many seconds pass between two kills.")
    ] = 4.0,
    keep: Annotated[Path | None, typer.Option(help="Play in this folder and leave everything there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """A hotel platform of 22 services: three tenants, guests with plans of their own, and faults everywhere.

    Everything happens in a temporary folder, on a clock of its own, and ends by itself; with --store and --broker on servers,
    in real time at MELMASTOON_PACE (20 unless it is given). Then it is counted: whether the money adds up, whether a night was
    sold twice or a key outlives its stay, and whether any fact was lost, applied twice or out of order. Ends with code 1 when
    any of that is wrong.
    """
    if bool(store) != bool(broker):
        raise ConfigurationError("--store and --broker belong together: give both for servers, or none for files")
    with _folder(keep) as folder, quiet():
        if store:
            os.environ.setdefault("MELMASTOON_PACE", "20")  # before the services are imported: they keep it
            play = import_module("melmastoon.demo.servers").played_on_servers
            where = {"store": store, "broker": broker, "every": every if kills else 0.0}
            tell = None if as_json else _tell_days()
            figures: Figures = asyncio.run(play(folder, bookings=bookings, seed=seed, show=tell, **where))
        else:
            play = import_module("melmastoon.demo.play").played  # brings 22 services along
            with _live(bookings, as_json) as show:
                how = {} if kills else {"killing": 0.0}
                figures = asyncio.run(play(folder, bookings=bookings, seed=seed, show=show, **how))
    if as_json:
        print_json(figures)
    else:
        print_figures(figures)
    if not figures.adds_up:
        raise typer.Exit(CHECK_FAILED)


@contextmanager
def quiet() -> Iterator[None]:
    """What the machine's SQLite lacks is no part of the show, nor what a killed process leaves behind."""
    log = logging.getLogger("posthouse")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise ConfigurationError(f"{keep} is not empty: every play needs a folder of its own")
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="posthouse-demo-") as folder:
        yield Path(folder)


def _tell_days() -> Callable[[object, Stage], None]:
    """On servers a play takes minutes: one line for each day of it."""
    told: list[date] = []

    def tell(scene: object, stage: Stage) -> None:
        if stage.today not in told:
            told.append(stage.today)
            say(f"• {stage.today:%a %d %b}: {stage.world.kills} processes killed by now")

    return tell


class Kills(Protocol):
    """What is told of a world."""

    @property
    def kills(self) -> int: ...


class Stage(Protocol):
    """What is told of the stage."""

    @property
    def today(self) -> date: ...

    @property
    def world(self) -> Kills: ...


class Screen:
    """Shows glances, not more of them than the eye can see."""

    def __init__(self, live: Live, view: View) -> None:
        self._live = live
        self._view = view
        self._next = 0.0

    @property
    def wants(self) -> bool:
        """Whether it is time for another frame."""
        return time.monotonic() >= self._next

    def show(self, glance: Glance) -> None:
        self._next = time.monotonic() + 1 / FRAMES
        self._live.update(self._view.frame(glance), refresh=True)


@contextmanager
def _live(bookings: int, as_json: bool) -> Iterator[Screen | None]:
    console = stdout()
    if as_json or not console.is_terminal:
        yield None
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Screen(live, View(bookings))
