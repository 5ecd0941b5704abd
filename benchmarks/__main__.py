"""`python -m benchmarks`: the table, or with --json one object per line."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import (
    archiving,
    auditing,
    brokers,
    counting,
    encrypting,
    latency,
    memory,
    receiving,
    redelivery,
    sending,
    signing,
    tracing,
)
from benchmarks.load import run as load
from benchmarks.load.plan import Plan
from benchmarks.load.result import readings
from benchmarks.peers import beside
from benchmarks.postgres import console
from benchmarks.postgres.measures import BIG
from benchmarks.postgres.measures import MEASURES as POSTGRES
from benchmarks.postgres.server import serving
from benchmarks.postgres.sweep import sweep
from benchmarks.reading import Reading, Scale

Measure = Callable[[Path, Scale], Coroutine[None, None, list[Reading]]]

MEASURES: Mapping[str, Measure] = {
    "publish": sending.publish,
    "publish-100": sending.publish_100,
    "relay": sending.relay_outbox,
    "consume": receiving.consume,
    "consume-unordered": receiving.consume_unordered,
    "consume-grouped": receiving.consume_grouped,
    "consume-list": receiving.consume_list,
    "redelivery": redelivery.redelivery,
    "counting": counting.counting,
    "latency": latency.latency,
    "latency-two": latency.latency_two,
    "idle": latency.idle,
    "memory": memory.memory,
    "tracing": tracing.tracing,
    "signing": signing.embedded,
    "encrypting": encrypting.encrypting,
    "archive": archiving.archiving,
    "auditing": auditing.auditing,
}

QUICK = 0.1


Only = Annotated[list[str] | None, typer.Option(metavar="NAME", help="This measure alone; may be given again.")]
Quick = Annotated[bool, typer.Option("--quick", help="A tenth of the events: to see that it works.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="Rounds of each comparison.")]
Write = Annotated[Path | None, typer.Option(help="Also write the readings to this file, as JSON.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


async def run(name: str, scale: Scale) -> list[Reading]:
    """One measure, on files in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="posthouse-bench-") as folder:
        return await MEASURES[name](Path(folder), scale)


@app.callback(invoke_without_command=True)
def embedded(
    context: typer.Context, only: Only = None, quick: Quick = False, rounds: Rounds = None, json: Json = False
) -> None:
    """Measure the embedded path beside hand-written loops that issue the same statements, in turns."""
    if context.invoked_subcommand is not None:
        return
    scale = Scale(QUICK if quick else 1.0, rounds)
    found = measured(MEASURES, only, lambda name: run(name, scale))
    finish(found, "Posthouse beside the same statements by hand", json)


@app.command("postgres")
def on_postgres(
    only: Only = None,
    quick: Quick = False,
    rounds: Rounds = None,
    json: Json = False,
    big: Annotated[
        bool,
        typer.Option(
            "--big", help="The backlog with 10,000,000 rows, a rebuild of 1,000,000 events: half an hour more."
        ),
    ] = False,
    write: Write = None,
) -> None:
    """Measure the PostgreSQL path beside the same driver doing only what cannot be left out, in turns."""
    scale = Scale(QUICK if quick else 1.0, rounds)
    measures = {**POSTGRES, **BIG} if big else POSTGRES
    end_on_sigterm()
    with serving() as server:
        readings = measured(measures, only, lambda name: measures[name](server, scale))
    finish(readings, "Posthouse on PostgreSQL", json, write)


@app.command("brokers")
def on_brokers(
    only: Only = None, quick: Quick = False, rounds: Rounds = None, json: Json = False, write: Write = None
) -> None:
    """Measure each broker beside its bare client at its best settings, in turns."""
    scale = Scale(QUICK if quick else 1.0, rounds)
    end_on_sigterm()
    readings = measured(brokers.PLUGS, only, lambda name: with_folder(name, scale))
    finish(readings, "Posthouse beside the bare clients", json, write)


async def with_folder(name: str, scale: Scale) -> list[Reading]:
    with tempfile.TemporaryDirectory(prefix="posthouse-bench-") as folder:
        return await brokers.measure(name, Path(folder), scale)


@app.command("peers")
def beside_peers(
    python: Annotated[Path, typer.Option(help="The interpreter of the environment that has the other libraries.")],
    only: Only = None,
    quick: Quick = False,
    rounds: Rounds = None,
    json: Json = False,
    write: Write = None,
) -> None:
    """Measure the PostgreSQL path beside other libraries on the same job, in turns."""
    names = chosen(dict.fromkeys(beside.PEERS), only)
    end_on_sigterm()
    with serving() as server:
        readings = asyncio.run(beside.peers(server, Scale(QUICK if quick else 1.0, rounds), python, names))
    finish(readings, "Posthouse beside other libraries", json, write)


@app.command("console")
def of_the_console(
    held: Annotated[
        int, typer.Option(min=1000, help="Events that are held; ten million take about 20 GB.")
    ] = 10_000_000,
    rounds: Rounds = None,
    json: Json = False,
    write: Write = None,
) -> None:
    """Ask for the data of every page with millions of events held; no large table may be read whole."""
    end_on_sigterm()
    with serving() as server:
        readings = asyncio.run(console.console(server, held, rounds or console.ROUNDS))
    finish(readings, f"The console with {held:,} held", json, write)
    if missed := [reading.measure for reading in readings if reading.met is False]:
        sys.exit(f"not met: {'; '.join(missed)}")


@app.command("sweep")
def over_load(write: Annotated[Path, typer.Option(help="Where the points go, as JSON.")], quick: Quick = False) -> None:
    """Measure latency and throughput under rising load, for the picture."""
    end_on_sigterm()
    with serving() as server:
        save(asyncio.run(sweep(server, Scale(QUICK if quick else 1.0))), write)


@app.command("load")
def under_load(
    broker: Annotated[str, typer.Option(help=f"{', '.join(load.BROKERS)}.")] = "nats",
    seconds: Annotated[
        float, typer.Option(min=2, max=3600, help="Of the peak; each base phase takes half of it.")
    ] = 120.0,
    factor: Annotated[float, typer.Option(min=1, help="The peak, in base rates.")] = 3.0,
    share: Annotated[float, typer.Option(min=0.001, max=1, help="The base rate, as a share of the capacity.")] = 0.1,
    base: Annotated[float | None, typer.Option(min=1, help="The base rate in events per second, instead.")] = None,
    saturated: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds with consumers that cannot keep up.")
    ] = 30.0,
    consumers: Annotated[int, typer.Option(min=1, help="Processes that consume.")] = 2,
    quick: Quick = False,
    json: Json = False,
    write: Write = None,
    picture: Annotated[Path | None, typer.Option(help="Where the run goes for the picture, as JSON.")] = None,
) -> None:
    """Drive a base rate, a multiple of it, and consumers that cannot keep up; nothing may be lost or refused."""
    if broker not in load.BROKERS:
        raise typer.BadParameter(f"{broker}: choose from {', '.join(load.BROKERS)}", param_hint="--broker")
    plan = Plan(
        seconds=seconds * (QUICK if quick else 1),
        factor=factor,
        share=share,
        base=base,
        saturated=saturated * (QUICK if quick else 1),
        consumers=consumers,
        capacity_seconds=10.0 * (QUICK if quick else 1),
        warm_up=5.0 * (QUICK if quick else 1),
    )
    end_on_sigterm()
    found = asyncio.run(load.drive(plan, broker))
    if picture is not None:
        save(found, picture)
    finish(readings(found), f"Under load, {broker}", json, write)


def measured(
    measures: Mapping[str, object],
    only: list[str] | None,
    measure: Callable[[str], Coroutine[None, None, list[Reading]]],
) -> list[Reading]:
    """The readings of the chosen measures."""
    readings = []
    for name in chosen(measures, only):
        print(f"{name}: {(measures[name].__doc__ or '').strip()}", file=sys.stderr)
        readings += asyncio.run(measure(name))
    return readings


def chosen(measures: Mapping[str, object], only: list[str] | None) -> list[str]:
    """The names that were asked for, or all."""
    unknown = [name for name in only or () if name not in measures]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(measures)}", param_hint="--only")
    return list(only or measures)


def finish(readings: list[Reading], title: str, json: bool, write: Path | None = None) -> None:
    """The table, or a line of JSON for each reading; and the file, where one is wanted."""
    if write is not None:
        save(readings, write)
    if json:
        for reading in readings:
            print(msgspec.json.encode(reading).decode(), flush=True)
    else:
        Console().print(table(readings, title))


def save(found: msgspec.Struct | Sequence[msgspec.Struct], write: Path) -> None:
    """One JSON file, in a folder that may not exist yet."""
    write.parent.mkdir(parents=True, exist_ok=True)
    write.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def end_on_sigterm() -> None:
    """So that the server ends too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))


def table(readings: list[Reading], title: str) -> Table:
    """What people read."""
    made = Table(title=title)
    made.add_column("measure")  # the one that gives way in a narrow terminal
    compared = [name for name in ("limit", "ratio") if any(getattr(r, name) is not None for r in readings)]
    names = [
        name
        for name in ("ours", "limit", "unit", "ratio", "goal", "met")
        if name not in ("limit", "ratio") or name in compared
    ]
    for name in names:
        made.add_column(name, justify="right" if name in ("ours", "limit", "ratio") else "left", no_wrap=True)
    for r in readings:
        cells = {
            "ours": _figure(r.ours),
            "limit": _figure(r.limit),
            "unit": r.unit,
            "ratio": "" if r.ratio is None else f"{r.ratio:.2f}",
            "goal": r.wanted,
            "met": {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[r.met],
        }
        made.add_row(r.measure, *(cells[name] for name in names))
    return made


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


if __name__ == "__main__":
    app()
