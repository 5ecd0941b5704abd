"""Tasks: what of a saga waits for people, and for whom."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from posthouse.processes.saga.declared import SagaType
from posthouse.processes.saga.transition import OWN_DEADLINES, takes_in_time
from posthouse.store.sagas import Armed, SagaRow

HELP = ""
"""Among the tasks of a row: it cannot go on by itself."""


class SagaTask(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should do about a saga. `step` is what is done with it; None when the saga rests, partial or
    with a failed compensation, and an operator decides. `until`: the next of its own deadlines that is armed, by name."""

    by: str
    row: SagaRow
    step: str | None
    waits_for: tuple[str, ...]
    """The subjects that do the step; none when an operator decides."""
    since: float
    until: tuple[str, Armed] | None
    name: str = ""
    """Which saga, for people: with its attempt where an id may have several."""
    asked_as: str = ""
    """The same as commands take it, after the target; in code pass `row.saga, row.id, tenant=row.tenant, attempt=row.attempt`."""


def open_tasks(of: SagaType, row: SagaRow, now: float) -> Mapping[str, float]:
    """What waits for people as the row stands, by step, and since when; what was open before keeps its time."""
    opened: list[str] = []
    if takes_in_time(row):
        done = row.standing
        begun = {*done, *(call.step for call in row.calls)}
        opened += [step for step in of.people if step not in begun and not of.missing(step, done)]
    if row.status in ("partial", "compensation_failed") or any(call.given_up for call in row.calls):
        opened.append(HELP)
    return {step: row.tasks.get(step, now) for step in opened}


def index_field(step: str) -> str:
    """The field under which the index of the store holds those in which this task is open; no field of a class has this name."""
    return f"task {step}"


def task_in(of: SagaType, row: SagaRow, step: str) -> SagaTask:
    """An open task of a row."""
    own = {name: armed for name, armed in row.deadlines.items() if name not in OWN_DEADLINES}
    return SagaTask(
        by=of.operator if step == HELP else of.people[step],
        row=row,
        step=None if step == HELP else step,
        waits_for=tuple(take.event_type.name for take in of.takes if take.method == step),
        since=row.tasks[step],
        until=min(own.items(), key=lambda item: item[1].due_at, default=None),
        name=f"{row.saga} {of.named(row)}",
        asked_as=of.asked_as(row),
    )
