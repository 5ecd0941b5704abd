"""`posthouse status`: does it add up?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.text import Text

from posthouse.app import apps_of
from posthouse.cli.group import CHECK_FAILED
from posthouse.cli.losses import advice, gaps, losses
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson
from posthouse.cli.output import Cell, complain, counted, print_json, print_table, say, stdout
from posthouse.cli.target import Targets, load_all
from posthouse.cli.timing import show_timing
from posthouse.cli.workers import asides, mixed, show_workers, unattended
from posthouse.errors import ConfigurationError, StoreUnavailable
from posthouse.events import timestamp
from posthouse.missing import Remedy, accepted, remedies
from posthouse.seam.timing import ServiceTiming
from posthouse.service import Service
from posthouse.store import Worker
from posthouse.store.actions import Action
from posthouse.store.sagas import SagaStatus
from posthouse.watch.liveness import Attendance, SagaRunners, attendance, is_running
from posthouse.watch.status import Line, ScheduleTrouble, Status, Verdict, timing_of, worst
from posthouse.watch.status import status as read_status

LOOKS = 5
PAUSE = 0.2
"""Figures are read one after the other: what seems to be missing is looked for again before it is reported. Where nothing has
moved from the first look to the last, it is missing, whatever else is on its way."""

BROKER_WITHIN = 4.0
"""Seconds that a broker has for one answer: what the stores know is wanted most while it is away."""

COLUMNS = ("CONSUMER", "TOPIC", "COMMITTED", "APPLIED", "IN FLIGHT", "HELD", "SKIPPED", "STRANGE", "")


_SAGAS: Mapping[SagaStatus, str] = {
    "awaited": "were not started, and events wait for them",
    "compensation_failed": "could not undo what they did",
    "partial": "wait for somebody to do a part",
}

FINE, NEEDS_YOU, CANNOT_TELL, NOBODY = 0, CHECK_FAILED, 3, 4
"""How it ends: nothing to do; events are missing, too many, dead, or too long at a gap; nobody can tell; work waits for a part that nobody runs.
2 is what every command ends with that was asked for something it cannot do."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. `moving` is True while events are on their way: then a difference means nothing. It
    is False where what is on its way stands still beside a line that does not add up."""

    code: int
    """With what it ends."""
    verdict: Verdict
    adds_up: bool
    moving: bool
    lines: Sequence[Mapping[str, object]]
    unsent: Mapping[str, int]
    stuck: Mapping[str, int]
    dead: int
    sagas: Mapping[str, Mapping[SagaStatus, int]]
    """Sagas that wait for a person, per saga and status."""
    schedules: Sequence[ScheduleTrouble]
    """Schedules that are failing or overdue."""
    timers: Mapping[str, int]
    wake: Mapping[str, str]
    notes: Sequence[str]
    away: str
    """Why the broker could not be asked; then the figures are what the stores know."""
    workers: Sequence[Mapping[str, object]]
    """Every process that ran in the last day, with what it runs and its last sign of life."""
    unattended: Sequence[str]
    """Sentences on what nobody runs."""
    runners: Mapping[str, SagaRunners] = {}
    """Of each saga: which processes run it, and which stand aside."""
    remedies: Sequence[Remedy] = ()
    """Of each line that lacks events, whether a store still has some of its topic."""
    timing: Sequence[ServiceTiming] = ()
    """With `--verbose`: what running processes have timed."""


class Look(NamedTuple):
    """The figures at the last look and those at the first, who runs, how relays learn of a commit, and what was timed."""

    figures: Status
    before: Status
    attended: Sequence[Attendance]
    wake: Mapping[str, str]
    timing: Sequence[ServiceTiming]
    remedies: Sequence[Remedy]
    accepted: Mapping[tuple[str, str], Action]


def status(
    targets: Targets,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show the figures again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="With --watch: the time between two looks.")] = 1.0,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="Also how long publishing, receiving, handlers and transactions took, and every process that fell silent.",
        ),
    ] = False,
) -> None:
    """Show whether everything that was committed is applied, in flight or held, and who runs.

    Name producers and consumers together to compare with what the producers committed.

    Exit codes, the first that is true: 2 it was asked for what cannot be (a misspelled option, a store that is not there);
    1 events are missing, too many, dead or set aside, or a saga's compensation failed; 4 work waits for a part, or a saga, that nobody runs, or the running timers do not have a schedule; 1 events wait at a gap longer
    than its deadline, or a schedule is overdue; 3 nobody can tell, because events move, or broker or database are away; 0 all is well.
    """
    if watch and as_json:
        raise ConfigurationError("--watch is for people, --json for programs: choose one")
    services = load_all(targets)
    if watch:
        asyncio.run(_watch(services, every, verbose))
    else:
        _show_once(services, targets, as_json, verbose)


def _show_once(services: Sequence[Service], targets: Sequence[str], as_json: bool, verbose: bool) -> None:
    try:
        look = asyncio.run(looked(services, verbose=verbose))
    except StoreUnavailable as error:
        complain(f"posthouse: cannot tell: {error}")
        raise typer.Exit(CANNOT_TELL) from error
    figures, attended = look.figures, look.attended
    if figures.away:
        complain(f"posthouse: cannot tell what is at the broker: {figures.away}")
    settled = figures.settled(look.before)
    if as_json:
        report = report_of(figures, look.wake, settled, attended, look.timing)
        print_json(msgspec.structs.replace(report, remedies=look.remedies))
    else:
        show(figures, look.wake, settled, attended, verbose=verbose)
        for sentence in [
            *losses(figures.lines, look.accepted),
            *gaps(figures.lines, targets),
            *(advice(one, targets) for one in look.remedies),
        ]:
            say(sentence, "yellow")
        if verbose:
            show_timing(look.timing)
    raise typer.Exit(code_of(figures, settled, attended))


def code_of(figures: Status, settled: Sequence[Line], attended: Sequence[Attendance]) -> int:
    """The worst that is certain comes first: what only a person can mend, then what a process would. What waits at a gap may
    wait for that process."""
    verdict = outcome(figures, settled)
    if verdict == "does not add up" or figures.dead or figures.not_undone:
        return NEEDS_YOU
    if any(one.waiting or one.unknown_schedules for one in attended):
        return NOBODY
    if figures.overdue or any(one.overdue is not None for one in figures.schedules):
        return NEEDS_YOU
    return CANNOT_TELL if verdict == "cannot tell" or figures.away else FINE


def outcome(figures: Status, settled: Sequence[Line]) -> Verdict:
    """The answer to all. Of a line that moves and does not add up, or may count something twice, nobody can tell yet."""
    if worst(settled) == "does not add up" or (figures.verdict == "adds up" and not figures.away):
        return figures.verdict
    return "cannot tell"


def moving(figures: Status, settled: Sequence[Line]) -> bool:
    """Whether something is on its way that may explain what seems to be missing."""
    return worst(settled) == "adds up" and (any(figures.unsent.values()) or any(line.moving for line in figures.lines))


def report_of(
    figures: Status,
    wake: Mapping[str, str],
    settled: Sequence[Line],
    attended: Sequence[Attendance],
    timing: Sequence[ServiceTiming] = (),
) -> Report:
    """The figures with what follows from them, who runs, and how each service's relay learns of a commit."""
    return Report(
        code=code_of(figures, settled, attended),
        verdict=outcome(figures, settled),
        adds_up=outcome(figures, settled) == "adds up",
        moving=moving(figures, settled),
        lines=[_said(line) for line in figures.lines],
        unsent=figures.unsent,
        stuck=figures.stuck,
        dead=figures.dead,
        sagas=figures.sagas,
        schedules=figures.schedules,
        timers=figures.timers,
        wake=wake,
        notes=figures.notes,
        away=figures.away,
        workers=[_worker(worker) for one in attended for worker in one.workers],
        unattended=[sentence for one in attended for sentence in unattended(one)],
        runners={consumer: of for one in attended for consumer, of in one.sagas.items()},
        timing=timing,
    )


def _said(line: Line) -> Mapping[str, object]:
    follows = {"difference": line.difference, "verdict": line.verdict, "reason": line.reason}
    return {**msgspec.structs.asdict(line), **follows}


def _worker(worker: Worker) -> Mapping[str, object]:
    facts = msgspec.structs.asdict(worker)
    return {**{name: value for name, value in facts.items() if name != "figures"}, "running": is_running(worker)}


def show(
    figures: Status,
    wake: Mapping[str, str],
    settled: Sequence[Line],
    attended: Sequence[Attendance],
    *,
    verbose: bool = False,
) -> None:
    """The figures for people."""
    if figures.lines:
        print_table(COLUMNS, [_row(line, line in settled) for line in figures.lines])
        say("")
    print_table(
        ("SERVICE", "UNSENT", "STUCK", "TIMERS", "WAKE-UP"),
        [(n, figures.unsent[n], figures.stuck[n], figures.timers[n], wake[n]) for n in figures.unsent],
    )
    say("")
    if show_workers(attended, every=verbose):
        say("")
    for one in attended:
        for sentence in unattended(one):
            say(sentence, "bold red" if one.waiting or one.unknown_schedules else "yellow")
        for sentence in [*asides(one), *mixed(one)]:
            say(sentence, "yellow")
    for line in figures.lines:
        if line.reason:
            say(f"{line.consumer} in {line.topic}: {line.verdict}, {line.reason}", "yellow")
    for note in figures.notes:
        say(f"note: {note}", "yellow")
    for name, stuck in figures.stuck.items():
        if stuck:
            say(f"{name}: the broker refuses events, see `posthouse outbox list TARGET`", "yellow")
    for saga, of in figures.sagas.items():
        for status, number in of.items():
            say(
                f"{number:,} of the saga {saga} {_SAGAS[status]}: see `posthouse saga list TARGET --status {status}`",
                "bold red" if status == "compensation_failed" else "yellow",
            )
    for trouble in figures.schedules:
        say(
            f"{trouble.service}: {_trouble(trouble)}: see `posthouse schedule list TARGET`",
            "bold red" if trouble.failed else "yellow",
        )
    if any(line.held or line.strange for line in figures.lines):
        say("held events: see `posthouse held list TARGET`", "yellow")


def _trouble(one: ScheduleTrouble) -> str:
    said = [f"{counted(one.failed, 'run')} failed"] if one.failed else []
    said += [f"{counted(one.retrying, 'run')} tried again"] if one.retrying else []
    said += [f"nobody has begun the run of {timestamp(one.overdue)}"] if one.overdue is not None else []
    return f"the schedule {one.name}: {', '.join(said)}"


async def looked(services: Sequence[Service], *, verbose: bool = False) -> Look:
    """Look until all adds up, a few times at most."""
    async with opened(services):
        wake = await _wakes(services)
        figures = before = await read_status(services, patience=BROKER_WITHIN)
        for _ in range(LOOKS - 1):
            if figures.verdict == "adds up" or figures.away:
                break
            await asyncio.sleep(PAUSE)
            figures = await read_status(services, patience=BROKER_WITHIN)
        return Look(
            figures,
            before,
            await attendance(services, figures),
            wake,
            await timing_of(services) if verbose else (),
            await remedies(services, figures.settled(before)),
            await accepted(services, figures.lines),
        )


async def _wakes(services: Sequence[Service]) -> Mapping[str, str]:
    return {app.opened.name: await app.store.wake() for app in apps_of(services)}


async def _watch(services: Sequence[Service], every: float, verbose: bool) -> None:
    async with opened(services):
        before: Status | None = None
        while True:
            figures, wake = await read_status(services, patience=BROKER_WITHIN), await _wakes(services)
            console = stdout()
            if console.is_terminal:
                console.clear()
            attended = await attendance(services, figures)
            if figures.away:
                say(f"cannot tell what is at the broker: {figures.away}", "red")
            show(figures, wake, figures.settled(before) if before else (), attended, verbose=verbose)
            if verbose:
                show_timing(await timing_of(services))
            before = figures
            await asyncio.sleep(every)


def _row(line: Line, settled: bool) -> tuple[Cell, ...]:
    held = ", ".join(f"{number:,} {state}" for state, number in sorted(line.held.items()))
    return (
        line.consumer,
        line.topic,
        line.committed,
        line.applied,
        f"{line.in_flight:,} ({line.refused:,} refused)" if line.refused else line.in_flight,
        Text(held or "0", "bold red" if "dead" in line.held else ""),
        f"{line.skipped:,} ({line.lost:,} lost)" if line.lost else line.skipped,
        line.strange,
        _verdict(line, settled),
    )


def _verdict(line: Line, settled: bool) -> Text:
    if line.verdict == "adds up":
        return Text("adds up ✓", "green")
    if line.verdict == "cannot tell":
        return Text("cannot tell", "yellow")
    missing = f"{line.difference:,} missing" if line.difference > 0 else f"{-line.difference:,} too many"
    return Text(f"{missing} (moving)", "yellow") if line.moving and not settled else Text(missing, "bold red")
