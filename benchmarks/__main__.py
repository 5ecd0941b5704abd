"""`python -m benchmarks`: the table, or with --json one object per line."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import latency, memory, receiving, sending
from benchmarks.reading import Reading, Scale

Measure = Callable[[Path, Scale], Awaitable[list[Reading]]]

MEASURES: Mapping[str, Measure] = {
    "publish": sending.publish,
    "publish-100": sending.publish_100,
    "relay": sending.relay_outbox,
    "consume": receiving.consume,
    "consume-unordered": receiving.consume_unordered,
    "consume-grouped": receiving.consume_grouped,
    "consume-list": receiving.consume_list,
    "latency": latency.latency,
    "latency-two": latency.latency_two,
    "idle": latency.idle,
    "memory": memory.memory,
}

QUICK = 0.1


async def run(name: str, scale: Scale) -> list[Reading]:
    """One measure, on files in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="posthouse-bench-") as folder:
        return await MEASURES[name](Path(folder), scale)


def main(
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="This measure alone; may be given again.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the events: to see that it works.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each comparison.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Measure the embedded path beside hand-written loops that issue the same statements, in turns."""
    unknown = [name for name in only or () if name not in MEASURES]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(MEASURES)}", param_hint="--only")
    scale = Scale(QUICK if quick else 1.0, rounds)
    readings = []
    for name in only or MEASURES:
        print(f"{name}: {(MEASURES[name].__doc__ or '').strip()}", file=sys.stderr)
        found = asyncio.run(run(name, scale))
        readings += found
        if json:
            for reading in found:
                print(msgspec.json.encode(reading).decode(), flush=True)
    if not json:
        Console().print(table(readings))


def table(readings: list[Reading]) -> Table:
    """What people read."""
    made = Table(title="Posthouse beside the same statements by hand")
    for name in ("measure", "ours", "limit", "unit", "ratio", "goal", "met"):
        made.add_column(name, justify="right" if name in ("ours", "limit", "ratio") else "left", no_wrap=True)
    for r in readings:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[r.met]
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
        made.add_row(r.measure, _figure(r.ours), _figure(r.limit), r.unit, ratio, r.wanted, met)
    return made


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


if __name__ == "__main__":
    typer.run(main)
