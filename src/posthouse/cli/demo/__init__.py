"""`posthouse demo`: Melmastoon, alive on this machine. Guests book, change their minds and leave; vendors fail; processes are
killed; and afterwards everything is counted."""

from __future__ import annotations

import asyncio
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.output import print_json


def demo(
    bookings: Annotated[int, typer.Option(min=1, max=100_000, help="How many bookings are made.")] = 300,
    seed: Annotated[
        int, typer.Option(help="Which guests come and what goes wrong; the same seed, the same outcome.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """A hotel platform of 22 services: three tenants, bookings with plans of their own, and faults everywhere.

    Everything happens in a temporary folder, on a clock of its own, and ends by itself.
    """
    play = import_module("melmastoon.demo.play")
    with tempfile.TemporaryDirectory(prefix="posthouse-demo-") as folder:
        figures = asyncio.run(play.played(Path(folder), bookings=bookings, seed=seed))
    print_json(figures)
    if not figures.adds_up:
        raise typer.Exit(CHECK_FAILED)
