"""`posthouse schedule`: what services do again and again, and what an operator may do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, TypeVar
from zoneinfo import ZoneInfo

import typer
from rich.text import Text

from posthouse.app import app_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why
from posthouse.cli.output import Cell, aimed, counted, print_json, print_table, say, span
from posthouse.cli.target import Target, load
from posthouse.events import timestamp
from posthouse.processes import Schedules, ScheduleView
from posthouse.store.schedules import ScheduleRow

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True, help="Look at what services do again and again; pause it, resume it, run it now."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.")]

COLUMNS = ("NAME", "WHEN", "ZONE", "NEXT", "IN", "LAST DONE", "FAILED", "")


@app.command("list")
def list_schedules(target: Target, as_json: AsJson = False) -> None:
    """List schedules: when each runs next, which moment was done last, how many of its runs failed."""
    views = _asked(target, lambda desk: desk.find())
    if as_json:
        print_json([_facts(view) for view in views])
        return
    if not views:
        say("no schedule is declared")
        return
    print_table(COLUMNS, [_row(view) for view in views])
    say(f"\n{counted(len(views), 'schedule')}")
    if any(view.held for view in views):
        say(aimed("runs that failed: see `posthouse held list TARGET`"), "yellow")


@app.command()
def pause(target: Target, name: Name, by: By = "", why: Why = "", as_json: AsJson = False) -> None:
    """Let nothing of a schedule run until it is resumed; what is under way goes on."""
    row = _asked(target, lambda desk: desk.pause(name, by=by, why=why))
    _tell(
        {"paused": name}, f"{row.name} is paused: `posthouse schedule resume TARGET {row.name}` lets it go on", as_json
    )


@app.command()
def resume(target: Target, name: Name, by: By = "", why: Why = "", as_json: AsJson = False) -> None:
    """Let a schedule go on with the next moment that comes; those of the meantime are not made up for."""
    row = _asked(target, lambda desk: desk.resume(name, by=by, why=why))
    _tell({"resumed": name, "next": timestamp(row.next_at)}, f"{row.name} runs next at {_local(row)}", as_json)


@app.command()
def run(target: Target, name: Name, by: By = "", why: Why = "", as_json: AsJson = False) -> None:
    """Begin a run now, whether it is paused or not. A worker does it; the next moment stays as it is."""
    moment = _asked(target, lambda desk: desk.run_now(name, by=by, why=why))
    _tell({"begun": name, "moment": timestamp(moment)}, f"a run of {name} has begun, for {timestamp(moment)}", as_json)


@app.command()
def forget(target: Target, name: Name, by: By = "", why: Why = "", as_json: AsJson = False) -> None:
    """Remove what is stored of a schedule that the code does not declare any more."""
    _asked(target, lambda desk: desk.forget(name, by=by, why=why))
    _tell({"forgotten": name}, f"{name} is forgotten", as_json)


def _asked(target: str, ask: Callable[[Schedules], Awaitable[T]]) -> T:
    service = load(target)

    async def answer() -> T:
        async with opened([service]):
            return await ask(app_of(service).schedules)

    return asyncio.run(answer())


def _tell(facts: dict[str, str], sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        say(aimed(sentence))


def _local(row: ScheduleRow) -> str:
    return f"{datetime.fromtimestamp(row.next_at, ZoneInfo(row.tz)):%Y-%m-%d %H:%M} {row.tz}"


def _row(view: ScheduleView) -> tuple[Cell, ...]:
    row, cron = view.row, view.declared
    when = cron if row is None else row
    assert when is not None  # one of them is there, or nobody would know of it
    last = (
        ""
        if row is None or row.done_at is None
        else f"{datetime.fromtimestamp(row.done_at, ZoneInfo(row.tz)):%Y-%m-%d %H:%M}"
    )
    return (
        view.name,
        when.expression,
        when.tz,
        "" if row is None else f"{datetime.fromtimestamp(row.next_at, ZoneInfo(row.tz)):%Y-%m-%d %H:%M}",
        "" if row is None or row.paused_at is not None else span(row.due_in),
        last,
        Text(str(view.failed), "bold red") if view.failed else "0",
        _state(view),
    )


def _state(view: ScheduleView) -> Text:
    row = view.row
    if view.declared is None:
        return Text("not declared any more", "yellow")
    if row is None:
        return Text("waits for its first worker", "yellow")
    if row.paused_at is not None:
        return Text(f"paused for {span(row.now - row.paused_at)}", "yellow")
    if view.overdue:
        return Text(f"overdue for {span(view.overdue)}", "bold red")
    if (row.expression, row.tz) != (view.declared.expression, view.declared.tz):
        return Text(f"here it is {view.declared.expression} {view.declared.tz}", "yellow")
    return Text("runs", "green")


def _facts(view: ScheduleView) -> dict[str, object]:
    row, cron = view.row, view.declared
    when = cron if row is None else row
    return {
        "service": view.service,
        "name": view.name,
        "expression": None if when is None else when.expression,
        "tz": None if when is None else when.tz,
        "declared": cron is not None,
        "next": None if row is None else timestamp(row.next_at),
        "last_begun": None if row is None or row.last_at is None else timestamp(row.last_at),
        "last_done": None if row is None or row.done_at is None else timestamp(row.done_at),
        "paused": row is not None and row.paused_at is not None,
        "overdue_s": view.overdue,
        "held": dict(view.held),
        "failed": view.failed,
    }
