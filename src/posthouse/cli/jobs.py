"""`posthouse jobs`: what is done to many things: begin one, see how far it is, decide about it, run what nobody runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from posthouse.app import app_of, apps_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import Cell, confirm, print_facts, print_json, print_table, say
from posthouse.cli.signals import stopping
from posthouse.cli.target import Target, Targets, load, load_all
from posthouse.errors import ConfigurationError, DeskError
from posthouse.operators import operator_name, plain
from posthouse.service import Service
from posthouse.store.jobs import Job

if TYPE_CHECKING:
    from posthouse.console.estate import Estate

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The id that `jobs list` shows.")]

COLUMNS = ("JOB", "SERVICE", "WHAT", "BY", "STATE", "DONE", "OF", "HOW IT STANDS")
NOBODY = "Nothing runs it by itself: a console that is open does, or `posthouse jobs run TARGET`."
LOOK = 0.2
"""Seconds between two looks at whether any is left to run."""
ENDS_WITHIN = 10.0
"""Seconds from SIGTERM to the end."""

app = typer.Typer(no_args_is_help=True, help="Jobs: acts over many things. Begin one, see how far it is, run it.")


@app.command("list")
def list_jobs(
    targets: Targets,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Show at most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    services = load_all(targets)
    found = asyncio.run(_find(services, limit))
    if as_json:
        print_json([_facts(job) for job in found])
    elif found:
        print_table(COLUMNS, [_row(job) for job in found])
    else:
        say("no job was begun")


@app.command()
def show(target: Target, job: JobId, as_json: AsJson = False) -> None:
    """Show one job: what was frozen at the press, how far it is, and its last refusal."""
    service = load(target)

    async def get() -> Job | None:
        async with opened([service]):
            return await app_of(service).store.jobs.get(job)

    found = asyncio.run(get())
    if found is None or found.service != service.name:
        raise DeskError(f"{service.name} has no job {job}: see `posthouse jobs list TARGET`")
    facts = _facts(found)
    if as_json:
        print_json(facts)
    else:
        print_facts([(name, _cell(value)) for name, value in facts.items()])


@app.command()
def start(
    target: Target,
    act: Annotated[str, typer.Argument(metavar="ACT", help="As in held.retry.all or saga.cancel.all.")],
    which: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A filter, or rate, canary, stop_after. Can be repeated."),
    ] = None,
    by: By = "",
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Begin a job: count first, ask, and note it. A console that is open runs it, or `posthouse jobs run`."""
    service, asked = load(target), dict(map(_pair, which or ()))
    if not why.strip():
        raise ConfigurationError("say --why: it is kept in the operators' log, with each thing that the job acts on")
    if not act.endswith(".all"):
        raise ConfigurationError(f"{act} is not for many things: say one as held.retry.all or saga.cancel.all")

    async def begin() -> Mapping[str, Any]:
        estate = _estate([service])
        try:
            seen = await _press(estate, act, by, {**asked, "service": service.name, "dry": True})
            if not as_json:
                for line in (seen["sentence"], seen["danger"], *seen["lines"]):
                    say(line)
            if not yes:
                confirm("Begin it?")
            keys = {"seen": seen["seen"], "press": seen["press"], "why": why}
            return await _press(estate, act, by, {**asked, "service": service.name, **keys})
        finally:
            await estate.aclose()

    answer = asyncio.run(begin())
    if as_json:
        print_json(answer)
    else:
        say(f"{answer['sentence']} It is the job {answer['job']}.")
        say(NOBODY)


def _deciding(verb: str, words: str) -> None:
    def decide(target: Target, job: JobId, by: By = "", why: Why = "", as_json: AsJson = False) -> None:
        service = load(target)

        async def act() -> Mapping[str, Any]:
            estate, body = _estate([service]), {"service": service.name, "job": job}
            try:
                seen = await _press(estate, f"job.{verb}", by, {**body, "dry": True})
                keys = {"seen": seen["seen"], "press": seen["press"], "why": why or f"posthouse jobs {verb}"}
                return await _press(estate, f"job.{verb}", by, {**body, **keys})
            finally:
                await estate.aclose()

        answer = asyncio.run(act())
        if as_json:
            print_json(answer)
        else:
            say(answer["sentence"])

    app.command(verb, help=words)(decide)


_deciding("pause", "Let a job do nothing more until somebody resumes it.")
_deciding("resume", "Let a job go on; it waits for the outcome of the first ones no more.")
_deciding("cancel", "End a job here. What it did stays done.")


@app.command()
def run(targets: Targets) -> None:
    """Run the jobs that nobody runs, until none is left. Ctrl-C stops between two things, and another may go on at once."""
    services = load_all(targets)

    async def until_none_is_left() -> Sequence[Job]:
        with _extra():
            from posthouse.console.acting.running import Runner

        estate, stop = _estate(services), asyncio.Event()
        runner, seen = Runner(estate, look=LOOK), dict[str, None]()
        try:
            for one in apps_of(services):
                await one.opened.look()  # no store is made by looking for jobs
            with stopping(stop, within=ENDS_WITHIN):
                while (left := [j for j in await _every(services) if j.state == "running"]) and not stop.is_set():
                    seen |= dict.fromkeys(job.id for job in left)
                    runner.start()
                    await asyncio.wait([asyncio.ensure_future(stop.wait())], timeout=LOOK)
            await runner.aclose()
            return [job for job in await _every(services) if job.id in seen]
        finally:
            await runner.aclose()
            await estate.aclose()

    found = asyncio.run(until_none_is_left())
    if found:
        print_table(COLUMNS, [_row(job) for job in found])
    else:
        say("no job waits to be run")


async def _every(services: Sequence[Service]) -> list[Job]:
    names = [service.name for service in services]
    return [job for one in apps_of(services) for job in await one.store.jobs.find(names, limit=1_000)]


async def _find(services: Sequence[Service], limit: int) -> list[Job]:
    async with opened(services):
        found = {job.id: job for job in await _every(services)}
    return sorted(found.values(), key=lambda job: job.id, reverse=True)[:limit]


@contextmanager
def _extra() -> Iterator[None]:
    """Around what is imported of the console, which brings libraries of its own."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"jobs need {error.name}, which is not installed: pip install 'posthouse[console]'"
        ) from error


def _estate(services: Sequence[Service]) -> Estate:
    with _extra():
        from posthouse.console.estate import Estate
    return Estate(*services)


async def _press(estate: Estate, act: str, by: str, body: Mapping[str, object]) -> Mapping[str, Any]:
    """As a browser presses; a refusal is an error with what to do."""
    with _extra():
        from posthouse.console.access.who import Who
        from posthouse.console.acting.pressing import press
        from posthouse.console.acting.table import ACTS
        from posthouse.console.asking import Refusal

    who = Who(name=plain(by) or plain(operator_name()), roles=frozenset(("admin",)))  # nobody signed in here
    try:
        answer = await press(ACTS, estate, who, act, body, through="")
    except Refusal as error:
        words = " ".join(filter(None, (error.message, error.hint)))
        raise (ConfigurationError if error.status == 400 else DeskError)(words) from error
    told: Mapping[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
    return told


def _facts(job: Job) -> dict[str, Any]:
    with _extra():
        from posthouse.console.pages.jobs import facts

    return {name: msgspec.to_builtins(value) for name, value in facts(job).items()}


def _row(job: Job) -> tuple[Cell, ...]:
    facts = _facts(job)
    of = f"{job.total:,}{'+' if job.more else ''}"
    return (job.id, job.service, job.act, job.by, job.state, f"{job.done:,}", of, str(facts["says"]))


def _cell(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def _pair(given: str) -> tuple[str, object]:
    name, sign, value = given.partition("=")
    if not name or not sign:
        raise ConfigurationError(f"--which {given}: write NAME=VALUE, as in --which state=dead")
    if name in ("rate", "canary", "stop_after"):
        try:
            return name, msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"--which {given}: {value!r} is no number") from error
    return name, value
