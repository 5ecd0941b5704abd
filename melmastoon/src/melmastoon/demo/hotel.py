"""`posthouse hotel`: Melmastoon alive on this machine, and the console on it. It lives until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from melmastoon.demo.command import quiet
from posthouse.cli.console import DEFAULT, served
from posthouse.cli.output import say
from posthouse.console.estate import Estate

PACE = "20"


def hotel(
    http: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the console is served.")] = DEFAULT,
    seed: Annotated[int, typer.Option(help="Which guests come and what goes wrong.")] = 1,
    every: Annotated[
        float, typer.Option(min=0.0, help="About how many seconds pass between two kills; 0: none.")
    ] = 20.0,
    strikes: Annotated[bool, typer.Option(help="Let the carrier of messages refuse for a while, now and then.")] = True,
) -> None:
    """A hotel platform of 22 services, alive, with the console on it.

    Guests book, change their minds and leave; vendors fail; a process is killed now and then; and soon a carrier that takes no
    messages leaves something to mend. Everything is in a temporary folder and ends with Ctrl-C.
    """
    os.environ.setdefault("MELMASTOON_PACE", PACE)  # before the services are imported: they keep it
    alive = import_module("melmastoon.demo.alive").alive
    services = import_module("melmastoon.platform").SERVICES

    async def live(folder: Path) -> None:
        say("22 services move in ...")
        async with alive(folder, seed=seed, every=every, strikes=strikes):
            await served(Estate(*services), http)

    with tempfile.TemporaryDirectory(prefix="posthouse-hotel-") as folder, quiet():
        asyncio.run(live(Path(folder)))
