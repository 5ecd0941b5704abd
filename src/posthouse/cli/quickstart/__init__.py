"""`posthouse quickstart`: the promise, shown on this machine, with nothing but files."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.output import Cell, one_line, print_json, print_table, say, state_text, stdout
from posthouse.cli.quickstart.story import Figures, Story
from posthouse.store import HeldEvent


def quickstart(
    count: Annotated[int, typer.Option("--orders", min=12, max=20_000, help="How many orders are placed.")] = 180,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Two services, three tenants, one poison event, one killed worker: and nothing is lost.

    Everything happens in a temporary folder, which is removed at the end, and takes less than a minute.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: with the workers and the folder
    with tempfile.TemporaryDirectory(prefix="posthouse-quickstart-") as folder, _progress(as_json) as progress:
        os.environ["XDG_RUNTIME_DIR"] = folder  # where the processes wake each other: it goes with the rest
        bar = progress.add_task("applied by billing", total=None)
        tell = _silent if as_json else (lambda sentence: _tell(progress, sentence))
        story = Story(Path(folder), count, tell, lambda done, total: progress.update(bar, completed=done, total=total))
        figures, held = asyncio.run(story.run())
    if as_json:
        print_json(msgspec.to_builtins(figures))
    else:
        _print_held(held)
        _print_figures(figures)
    if not figures.adds_up:
        raise typer.Exit(CHECK_FAILED)


def _progress(quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=stdout(), transient=True, disable=quiet)


def _silent(sentence: str) -> None:
    pass


def _tell(progress: Progress, sentence: str) -> None:
    progress.console.print(f"• {sentence}", soft_wrap=True)


def _print_held(held: list[HeldEvent]) -> None:
    say("\nWhat `posthouse held list` showed before the operator came:")
    rows: list[list[Cell]] = [
        [e.id, e.entry.key or "", e.entry.sequence or 0, state_text(e.state), one_line(e.error or e.reason)]
        for e in held
    ]
    print_table(["id", "key", "number", "state", "why"], rows)


def _print_figures(figures: Figures) -> None:
    say("\nWhat became of every fact:")
    names = ["committed", "applied", "in flight", "held", "lost", "duplicated", "out of order"]
    values = [
        figures.committed, figures.applied, figures.in_flight, figures.held,
        figures.lost, figures.duplicated, figures.out_of_order,
    ]  # fmt: skip
    print_table(names, [values])
    verdict = "committed = applied + in flight + held: it adds up" if figures.adds_up else "it does NOT add up"
    say(f"\n{verdict} ({figures.seconds:g} s)", style="green" if figures.adds_up else "bold red")
    say("\nThe temporary folder of all this is gone. A service of your own: posthouse new shop")
