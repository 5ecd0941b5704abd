"""Sentences: what the figures mean for a person, and the command that shows more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from posthouse.cli.output import counted
from posthouse.cli.workers import asides, mixed, unattended
from posthouse.events import timestamp
from posthouse.store.sagas import SagaStatus
from posthouse.watch.liveness import Attendance
from posthouse.watch.status import Line, ScheduleTrouble, Status

_SAGAS: Mapping[SagaStatus, str] = {
    "awaited": "were not started, and events wait for them",
    "compensation_failed": "could not undo what they did",
    "partial": "wait for somebody to do a part",
}

Style = Literal["bold red", "yellow"]


class Sentence(NamedTuple):
    """One fact that somebody should know. Red is what nobody but a person ends."""

    text: str
    style: Style = "yellow"


def sentences(
    figures: Status, attended: Sequence[Attendance], *, explained: Sequence[Line] | None = None
) -> Iterator[Sentence]:
    """All of them, notes last. `explained`: lines of which it is said why they do not add up; all, if not given."""
    for one in attended:
        for text in unattended(one):
            yield Sentence(text, "bold red" if one.waiting or one.unknown_schedules else "yellow")
        for text in [*asides(one), *mixed(one)]:
            yield Sentence(text)
    for line in figures.lines if explained is None else explained:
        if line.reason:
            yield Sentence(f"{line.consumer} in {line.topic}: {line.verdict}, {line.reason}")
    for name, stuck in figures.stuck.items():
        if stuck:
            yield Sentence(f"{name}: the broker refuses events, see `posthouse outbox list TARGET`")
    for saga, of in figures.sagas.items():
        for status, number in of.items():
            yield Sentence(
                f"{number:,} of the saga {saga} {_SAGAS[status]}: see `posthouse saga list TARGET --status {status}`",
                "bold red" if status == "compensation_failed" else "yellow",
            )
    for trouble in figures.schedules:
        yield Sentence(
            f"{trouble.service}: {_trouble(trouble)}: see `posthouse schedule list TARGET`",
            "bold red" if trouble.failed else "yellow",
        )
    if any(line.held or line.strange for line in figures.lines):
        yield Sentence("held events: see `posthouse held list TARGET`")
    for note in figures.notes:
        yield Sentence(f"note: {note}")


def _trouble(one: ScheduleTrouble) -> str:
    said = [f"{counted(one.failed, 'run')} failed"] if one.failed else []
    said += [f"{counted(one.retrying, 'run')} tried again"] if one.retrying else []
    said += [f"nobody has begun the run of {timestamp(one.overdue)}"] if one.overdue is not None else []
    return f"the schedule {one.name}: {', '.join(said)}"
