"""Who runs, for `posthouse status`: the processes, and what waits for nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from posthouse.cli.output import Cell, aimed, counted, print_table, say, span
from posthouse.heartbeat import SILENT
from posthouse.runtime import Part
from posthouse.store import Worker
from posthouse.store.workers import Aside
from posthouse.watch.liveness import Attendance, is_running

COLUMNS = ("PROCESS", "SERVICES", "RUNS", "POSTHOUSE", "COMMIT", "SINCE", "LAST SIGN", "")

WAITING: dict[Part, str] = {
    "relay": "{} in the outbox",
    "consumers": "{} to be applied",
    "timers": "{} to be fired",
    "archive": "{} to be archived",
}


def show_workers(found: Sequence[Attendance], *, every: bool = False) -> bool:
    """Whoever runs, and of those that fell silent the last, or all of them; those that stopped in good order are left out. Whether
    there was any."""
    workers = [worker for one in found for worker in one.workers if not worker.stopped]
    silent = sorted((worker for worker in workers if not is_running(worker)), key=lambda worker: abs(worker.age))
    folded = [] if every else silent[1:]
    if workers:
        print_table(COLUMNS, [_row(worker) for worker in workers if worker not in folded])
    if folded:
        say(f"and {len(folded):,} more that fell silent before in the last day: --verbose shows them", "dim")
    return bool(workers)


def unattended(one: Attendance) -> list[str]:
    """Sentences on what nobody runs, and on what waits for that."""
    waiting = [_waits(part, number, one) for part, number in one.waiting.items()]
    left = f"; waiting: {', '.join(waiting)}" if waiting else ""
    if not one.running:
        return [aimed(f"nobody runs {one.services}: {_last(one.workers)}; `posthouse run TARGET` starts it{left}")]
    said = [
        f"nobody begins the schedule {name}: the processes that run the timers do not have it, start them with what is declared now"
        for name in one.unknown_schedules
    ]
    if not one.missing:
        return [f"{one.services}: {'; and '.join(said)}"] if said else []
    unknown = "consumers" in one.missing and any("consumers" in worker.parts for worker in one.running)
    if parts := [part for part in one.missing if part != "consumers" or not unknown]:
        start = aimed("start one with `posthouse run TARGET`, without --only")
        said.append(f"no process runs its {', '.join(parts)}: {start}")
    if strange := [name for name in one.idle if name not in one.sagas] if unknown else []:
        names = f"consumer{'' if len(strange) == 1 else 's'} {', '.join(strange)}"
        said.append(
            f"nobody runs the {names}: the processes that run do not have {'it' if len(strange) == 1 else 'them'}, start them with "
            "what is declared now"
        )
    said += [
        aimed(
            f"nobody runs the saga {consumer}: {_asides(runners.aside)}; `posthouse saga check TARGET` says what does not fit, start "
            "the release before, or one that can go on"
        )
        for consumer, runners in one.sagas.items()
        if unknown and runners.nobody
    ]
    return [f"{one.services}: {'; and '.join(said)}{left}"]


def mixed(one: Attendance) -> list[str]:
    """A sentence on several versions at once."""
    if len(one.versions) < 2:
        return []
    said = [
        f"{_version(*of)} in {'one process' if number == 1 else f'{number:,} processes'}"
        for of, number in sorted(one.versions.items())
    ]
    return [f"{one.services} runs in {len(said)} versions: {', '.join(said)}"]


def asides(one: Attendance) -> list[str]:
    """A sentence on each saga that is run by some and not by others."""
    return [
        f"the saga {consumer} is run by {', '.join(f'{name} (release {of})' for name, of in runners.run_by.items()) or 'nobody yet'}; "
        + _asides(runners.aside)
        for consumer, runners in one.sagas.items()
        if runners.aside and not runners.nobody
    ]


def _asides(aside: Mapping[str, Aside]) -> str:
    return ", ".join(f"{name} {_ASIDE[why]}" for name, why in aside.items())


_ASIDE: dict[Aside, str] = {
    "waits": "takes it over as soon as the others stand aside",
    "later": "leaves it to a later release",
    "unfit": "cannot go on with what is stored, and leaves it alone",
}

_THINGS: dict[Part, str] = {"relay": "event", "consumers": "event", "timers": "timer", "archive": "event"}


def _waits(part: Part, number: int, one: Attendance) -> str:
    """An event that several consumers have to apply is counted for each of them."""
    several = f" (counted for each of {len(one.idle):,} consumers)" if part == "consumers" and len(one.idle) > 1 else ""
    return WAITING[part].format(counted(number, _THINGS[part])) + several


def _last(workers: Sequence[Worker]) -> str:
    if not workers:
        return "no process has in the last day"
    last = min(workers, key=lambda worker: abs(worker.age))
    how = "stopped in good order" if last.stopped else "gave its last sign of life"
    return f"{last.name} {how} {_ago(last)}"


def _ago(worker: Worker) -> str:
    ahead = worker.age < -SILENT
    return f"by a clock that was {span(-worker.age)} ahead" if ahead else f"{span(worker.age)} ago"


def _version(version: str, commit: str) -> str:
    return f"posthouse {version}{f' at {commit}' if commit else ''}"


def _row(worker: Worker) -> tuple[Cell, ...]:
    runs = is_running(worker)
    return (
        worker.name,
        ", ".join(worker.services),
        ", ".join(worker.parts),
        worker.version,
        worker.commit,
        span(worker.since),
        _ago(worker),
        Text("runs", "green") if runs else Text("silent", "bold red"),
    )
