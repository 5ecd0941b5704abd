"""`posthouse projection`: read models, how fresh they are, and how they are made anew."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from posthouse.app import app_of, apps_of
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import Cell, confirm, counted, plain, print_json, print_table, say, span, stderr
from posthouse.cli.target import Target, Targets, load, load_all
from posthouse.processes import Plan, ProjectionStatus
from posthouse.processes.projection import GenerationStatus, Progress, Rebuilt
from posthouse.replays import rebuild
from posthouse.service import Service
from posthouse.store.projections import Generation

app = typer.Typer(no_args_is_help=True, help="Read models: how fresh they are, and how they are made anew.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A projection, as `posthouse projection list` names it.")]

EVERY = 2.0
"""Seconds between two lines about a rebuild where nobody looks at a bar."""


class Source(StrEnum):
    """Where a rebuild has its events from."""

    LOG = "log"
    STREAMS = "streams"


@app.command("list")
def list_command(targets: Targets, as_json: AsJson = False) -> None:
    """List projections, with the generation that is read."""
    found = asyncio.run(_statuses(load_all(targets)))
    if as_json:
        print_json([_facts(status) for status in found])
    elif found:
        print_table(("PROJECTION", "VERSION", "LIVE", "BUILDING", "GROUP", "TENANTS"), [_row(one) for one in found])
    else:
        say("no projection is declared")


@app.command("status")
def status_command(
    targets: Targets,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only this projection.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show every generation: how far it is, how fresh, and whether it keeps its budget.

    Ends with code 1 when one that is read does not keep it, or is fed by nobody of this version.
    """
    services = load_all(targets)
    found = asyncio.run(_statuses(services))
    if name is not None:
        wanted = {app_of(service).projections.named(name).consumer for service in services}
        found = [one for one in found if one.consumer in wanted]
    if as_json:
        print_json([_facts(status) for status in found])
    else:
        _show(found)
    if any(not one.well for one in found):
        raise typer.Exit(CHECK_FAILED)


@app.command("rebuild")
def rebuild_command(
    target: Target,
    name: Name,
    source: Annotated[
        Source | None,
        typer.Option(
            "--from", help="The broker's log, or the service's own streams. Default: streams, if all is in them."
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long the generation before stays after the swap.")
    ] = 60.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the generation before until it is dropped by hand.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Accept a log whose oldest events are gone already.")
    ] = False,
    with_held: Annotated[
        bool, typer.Option("--with-held", help="Swap even if events are held that could not be applied.")
    ] = False,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Build a new generation beside the one that is read, and swap it in; or go on with one that was begun.

    The live generation is read and fed all the while. May be interrupted: run it again and it goes on.
    """
    plan = Plan(
        source=None if source is None else source.value,
        drop_after=None if keep else grace,
        partial=partial,
        with_held=with_held,
    )
    service = load(target)
    with _shown(quiet=as_json) as told:
        done = asyncio.run(_rebuilt(service, name, plan, told, by, why))
    if as_json:
        print_json(done)
    else:
        _show_rebuilt(done, grace)


@app.command("drop")
def drop_command(
    target: Target,
    name: Name,
    generation: Annotated[
        int | None, typer.Option(help="A retired one, by its number. Default: the one that is being built.")
    ] = None,
    by: By = "",
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give up a rebuild that was begun, or drop a generation that was kept: its tables and its group go."""
    service = load(target)
    what = "the rebuild" if generation is None else f"generation {generation}"
    if not yes:
        confirm(f"Drop {what} of {app_of(service).projections.named(name).consumer}, with its tables?")
    row = asyncio.run(_dropped(service, name, generation, by, why))
    if as_json:
        print_json({"projection": row.projection, "generation": row.number, "tables": row.tables})
    else:
        say(f"generation {row.number} of {row.projection} is gone: {', '.join(row.tables) or 'it had no tables'}")


async def _statuses(services: Sequence[Service]) -> list[ProjectionStatus]:
    async with opened(services):
        return [one for app in apps_of(services) for one in await app.projections.status()]


async def _rebuilt(
    service: Service, name: str, plan: Plan, told: Callable[[Progress], None], by: str, why: str
) -> Rebuilt:
    app_of(service).projections.named(name)
    async with opened([service]):
        await app_of(service).open()
        return await rebuild(service, name, plan, told, by=by, why=why)


async def _dropped(service: Service, name: str, number: int | None, by: str, why: str) -> Generation:
    async with opened([service]):
        await app_of(service).open()
        return await app_of(service).projections.drop(name, number, by=by, why=why)


@contextmanager
def _shown(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """How far a rebuild is, on stderr: a bar for who looks, a line now and then for a file."""
    console, last = stderr(), 0.0
    if quiet or not console.is_terminal:

        def tell(progress: Progress) -> None:
            nonlocal last
            if not quiet and time.monotonic() - last >= EVERY:
                last = time.monotonic()
                console.print(plain(_words(progress)), soft_wrap=True)

        yield tell
        return
    with Bar(TextColumn("{task.description}"), BarColumn(), console=console, transient=True) as bar:
        task = bar.add_task("begins", total=None)
        yield lambda progress: bar.update(
            task, description=_words(progress), completed=progress.done, total=progress.total
        )


def _words(progress: Progress) -> str:
    share = f"{100 * progress.done / progress.total:.0f} %" if progress.total else "nothing yet"
    words = {"bulk": "reads streams", "closing": "reads the last of the streams"}.get(progress.phase, "reads the log")
    return (
        f"generation {progress.generation} {words}: {progress.done:,} of {counted(progress.total, 'event')}, {share}, "
        f"{progress.rate:,.0f}/s"
    )


def _show_rebuilt(done: Rebuilt, grace: float) -> None:
    rate = done.events / done.seconds if done.seconds > 0 else 0.0
    say(
        f"generation {done.generation} of {done.projection} is live: {counted(done.events, 'event')} from the {done.source}"
        f" in {done.seconds:.1f} s ({rate:,.0f}/s)",
        "green",
    )
    if done.replaced is not None and done.kept:
        say(f"generation {done.replaced} is kept: `posthouse projection drop … --generation {done.replaced}` drops it")
    elif done.replaced is not None:
        say(f"generation {done.replaced} goes in {span(grace)}, cleared away by a running process of the service")


def _show(found: Sequence[ProjectionStatus]) -> None:
    rows = [(status, one) for status in found for one in status.generations]
    if not rows:
        say("no projection has a generation yet: they are made when its service is opened, as by `posthouse run`")
        return
    columns = ("PROJECTION", "GENERATION", "STATE", "UNREAD", "HELD", "FRESHNESS", "LAG", "BUDGET", "")
    print_table(columns, [_figures(status, one) for status, one in rows])
    for status, one in rows:
        if (hint := _hint(status, one)) is not None:
            say(hint, "yellow")


def _row(status: ProjectionStatus) -> tuple[Cell, ...]:
    live, building = status.live, status.building
    return (
        status.consumer,
        status.version,
        "none yet" if live is None else f"generation {live.generation.number}",
        "" if building is None else f"generation {building.generation.number}",
        "" if live is None else live.group,
        "all together" if status.cross_tenant else "each its own",
    )


def _figures(status: ProjectionStatus, one: GenerationStatus) -> tuple[Cell, ...]:
    row, fresh = one.generation, one.freshness
    return (
        status.consumer,
        row.number,
        Text(row.state, {"live": "green", "building": "cyan"}.get(row.state, "dim")),
        fresh.waiting,
        fresh.held,
        "" if fresh.seconds is None else f"{fresh.seconds:.1f} s",
        f"{fresh.lag:.1f} s",
        f"{fresh.budget:g} s",
        _verdict(status, one),
    )


def _verdict(status: ProjectionStatus, one: GenerationStatus) -> Text:
    row = one.generation
    if row.state == "building":
        return Text(f"{row.phase}, {counted(row.read, 'event')} read" if row.source == "streams" else row.phase, "cyan")
    if row.state == "retired":
        return Text("kept" if row.drop_at is None else "goes soon", "dim")
    if row.version != status.version:
        return Text(f"of version {row.version}, this is {status.version}", "yellow")
    if one.freshness.partial:
        return Text("partial", "bold red")
    return Text("within budget ✓", "green") if one.freshness.within else Text("over budget", "bold red")


def _hint(status: ProjectionStatus, one: GenerationStatus) -> str | None:
    row, name = one.generation, status.name
    if row.state == "live" and row.version < status.version:
        return f"{status.consumer}: the code has moved on: `posthouse projection rebuild … {name}`"
    if row.state == "live" and row.version > status.version:
        return f"{status.consumer}: it is fed by processes of version {row.version}: start some, and stop those before"
    if row.state == "live" and one.freshness.partial:
        return (
            f"{status.consumer}: it lacks what happened before it was there, or what the broker dropped before it was read: "
            f"`posthouse projection rebuild … {name}`"
        )
    if row.state == "live" and one.freshness.held:
        return f"{status.consumer}: events are held: `posthouse held list … --consumer {one.group}`"
    if row.state == "building":
        return (
            f"{status.consumer}: generation {row.number} is half built: `posthouse projection rebuild … {name}` goes on, "
            f"`posthouse projection drop … {name}` gives it up"
        )
    return None


def _facts(status: ProjectionStatus) -> dict[str, object]:
    return {
        "projection": status.consumer,
        "name": status.name,
        "version": status.version,
        "cross_tenant": status.cross_tenant,
        "generations": [
            {
                **msgspec.structs.asdict(one.generation),
                "group": one.group,
                **msgspec.structs.asdict(one.freshness),
                "within": one.freshness.within,
            }
            for one in status.generations
        ],
    }
