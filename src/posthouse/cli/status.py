"""`posthouse status`: does it add up?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.text import Text

from posthouse.app import apps_of
from posthouse.cli.losses import advice, gaps, losses
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson
from posthouse.cli.outcome import CANNOT_TELL, code_of, moving, outcome
from posthouse.cli.output import Cell, complain, print_json, print_table, say
from posthouse.cli.screen.history import History
from posthouse.cli.screen.history import Look as Seen
from posthouse.cli.screen.watching import BROKER_WITHIN, Blocks, Live, is_screen
from posthouse.cli.screen.watching import watch as watching
from posthouse.cli.sentences import sentences
from posthouse.cli.target import Targets, load_all
from posthouse.cli.timing import show_timing
from posthouse.cli.workers import show_workers, unattended
from posthouse.errors import ConfigurationError, StoreUnavailable
from posthouse.missing import Remedy, accepted, remedies
from posthouse.seam.timing import ServiceTiming
from posthouse.service import Service
from posthouse.store import Worker
from posthouse.store.actions import Action
from posthouse.store.sagas import SagaStatus
from posthouse.watch.liveness import Attendance, SagaRunners, attendance, is_running
from posthouse.watch.status import Line, ScheduleTrouble, Status, Verdict, timing_of
from posthouse.watch.status import status as read_status

LOOKS = 5
PAUSE = 0.2
"""Figures are read one after the other: what seems to be missing is looked for again before it is reported. Where nothing has
moved from the first look to the last, it is missing, whatever else is on its way."""

SHORTEST, LONGEST = 0.1, 3600.0
"""Seconds between two looks."""

COLUMNS = ("CONSUMER", "TOPIC", "COMMITTED", "APPLIED", "IN FLIGHT", "HELD", "SKIPPED", "STRANGE", "")


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
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show the figures again and again, with rates and the last minute, until Ctrl-C."),
    ] = False,
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="With --watch: the time between two looks; more when a look takes long."),
    ] = 1.0,
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
    if watch and not SHORTEST <= every <= LONGEST:  # nor is it when it is no number
        raise ConfigurationError(f"--every takes seconds from {SHORTEST:g} to {LONGEST:g}, not {every:g}")
    services = load_all(targets)
    if watch:
        view = Live(targets, every) if is_screen() else Blocks(partial(_block, verbose))
        asyncio.run(watching(services, every, view, verbose=verbose))
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
    for text, style in sentences(figures, attended):
        say(text, style)


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


def _block(verbose: bool, look: Seen, history: History) -> None:
    """One look of many, where there is no screen."""
    if look.figures.away:
        say(f"cannot tell what is at the broker: {look.figures.away}", "red")
    show(look.figures, look.wake, history.settled, look.attended, verbose=verbose)
    if verbose:
        show_timing(look.timing)


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
    return Text(f"{missing} (moving)", "yellow") if not settled else Text(missing, "bold red")
