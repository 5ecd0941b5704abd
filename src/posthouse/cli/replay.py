"""`posthouse replay`: give one consumer events once more, after its bug was mended, or those that it never got."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer

from posthouse import reprocessing
from posthouse.app import app_of
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.losses import when
from posthouse.cli.moment import moment_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import complain, confirm, counted, print_json, print_table, say
from posthouse.cli.signals import stopping
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError
from posthouse.history.replay import Choice, From, Plan
from posthouse.operators import operator_name
from posthouse.service import Service
from posthouse.store.jobs import Job

COLUMNS = ("TYPE", "TENANT", "APPLY AGAIN", "APPLY, MISSING", "KEYS")
ENDS_WITHIN = 10.0
"""Seconds from SIGTERM to the end."""

REASONS: Mapping[str, str] = {
    "applied": "were applied before; --reprocess applies them again",
    "held": "are held, and stay so: see `posthouse held list TARGET`",
    "passed over": 'are passed over, as their handler says replay="skip"',
    "forgotten": "stand in no order and are older than inbox_retention, so that nobody knows whether they were applied",
    "fork": "have numbers that belong to other events, and were never applied",
    "begun since": "are of keys that have begun since then",
    "another version": "are older versions of facts that are applied in a newer one",
}


def replay(
    target: Target,
    consumer: Annotated[
        str | None, typer.Option(help="Who gets them: a name from `posthouse topics`. Default: the service's own.")
    ] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="SUBJECT", help="Only events of this type.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    key: Annotated[str | None, typer.Option(help="Only of this ordering key.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what was said at or after it: 2026-04-22T10:00:00Z.", metavar="TIME")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Only what was said before it. Default: all until now.", metavar="TIME")
    ] = None,
    source: Annotated[
        From,
        typer.Option(
            "--from",
            help="Where they are read: the log; the archive and the log; the outbox, or the streams, of services in the same store.",
        ),
    ] = "log",
    reprocess: Annotated[
        bool, typer.Option("--reprocess", help="Apply again what was applied; without it only what was not.")
    ] = False,
    twice: Annotated[
        bool,
        typer.Option("--twice", help="Accept that handlers may publish facts again that cannot be looked up any more."),
    ] = False,
    rate: Annotated[float, typer.Option(min=0, help="Events per second at most; 0: as fast as it goes.")] = 0.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be applied, and change nothing.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Leave the job to a console, or to `posthouse jobs run`.")
    ] = False,
    by: By = "",
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give one consumer events once more, from the log or an outbox: nobody else sees anything.

    What it lacks is applied. With --reprocess also what it has applied: per key in order, while what comes behind waits. It is a
    job: killed or paused it goes on where it was (`posthouse jobs run`), cancelled it leaves the rest as it was applied before.
    """
    service = load(target)
    choice = Choice(
        consumer=reprocessing.consumer_of(service, consumer),
        type=kind,
        tenant=tenant,
        key=key,
        since=None if since is None else moment_of(since),
        until=None if until is None else moment_of(until),
        source=source,
        reprocess=reprocess,
        twice=twice,
    )
    if not dry_run and not why.strip():
        raise ConfigurationError("say --why: it is kept in the operators' log; or look first, with --dry-run")
    plan, job = asyncio.run(
        _replayed(
            service,
            choice,
            rate=rate,
            by=by or operator_name(),
            why=why,
            dry_run=dry_run,
            ask=not (yes or as_json),
            run=not detach,
            quiet=as_json,
        )
    )
    if as_json:
        print_json(
            {"dry_run": dry_run, "plan": plan, "events": plan.events, "job": None if job is None else _facts(job)}
        )
    if job is not None:
        _tell(job, as_json=as_json)


async def _replayed(
    service: Service,
    choice: Choice,
    *,
    rate: float,
    by: str,
    why: str,
    dry_run: bool,
    ask: bool,
    run: bool,
    quiet: bool,
) -> tuple[Plan, Job | None]:
    async with opened([service]):
        plan = await reprocessing.planned(service, choice)
        if not quiet:
            _show(plan, choice)
        if dry_run or not plan.events:
            return plan, None
        if ask:
            await asyncio.to_thread(confirm, f"Apply {counted(plan.events, 'event')} to {choice.consumer}?")
        job = await reprocessing.begin(service, choice, total=plan.events, rate=rate, by=by, why=why)
        if not quiet:
            say(f"it is the job {job.id}")
        return plan, await _run(service, job) if run else job


async def _run(service: Service, job: Job) -> Job:
    """Here, until it ends, is paused, or somebody stops this process."""
    stop = asyncio.Event()
    with stopping(stop, within=ENDS_WITHIN):
        running = asyncio.ensure_future(reprocessing.run(service, job.id))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if running.done():
            return running.result()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return await app_of(service).store.jobs.get(job.id) or job


def _show(plan: Plan, choice: Choice) -> None:
    rows = [(part.type, part.tenant, part.again, part.missing, part.keys) for part in plan.parts]
    if rows:
        print_table(COLUMNS, rows)
        say(f"\n{counted(plan.events, 'event')} would be applied to {choice.consumer}", "green")
    else:
        say("nothing to apply: nothing of the range is there, or all of it was applied", "yellow")
    for reason, number in plan.left_out.items():
        say(f"{counted(number, 'event')} {REASONS.get(reason, reason)}", "yellow")
    if plan.unread:
        say(f"{counted(plan.unread, 'frame')} could not be read, and are left out", "yellow")
    for topic, begins in plan.begins.items():
        if begins is None:
            say(f"the {choice.source} has nothing of {topic}", "yellow")
        elif choice.since is None or begins > choice.since:
            say(f"the {choice.source} of {topic} begins with {when(begins)}", "dim")


def _tell(job: Job, *, as_json: bool) -> None:
    if job.state == "done":
        if not as_json:
            say(job.note, "green")
        return
    if job.state in ("failed", "paused"):
        complain(f"posthouse: the replay is {job.state}: {job.note}")
        raise typer.Exit(CHECK_FAILED)
    if not as_json:
        say(
            f"the job {job.id} is {job.state}; `posthouse jobs run TARGET` goes on with it, and so does a console that is open"
        )


def _facts(job: Job) -> Mapping[str, Any]:
    return {
        name: value
        for name, value in msgspec.structs.asdict(job).items()
        if name not in ("parameters", "open", "tenants")
    }
