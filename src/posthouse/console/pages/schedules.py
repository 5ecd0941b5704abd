"""Schedules: what services do again and again, when next, and what did not run."""

from __future__ import annotations

from collections.abc import Mapping

from posthouse.app import App
from posthouse.console.asking import Ask, Page
from posthouse.console.listing import everybodys
from posthouse.events import timestamp
from posthouse.processes.schedule.desk import ScheduleView


async def schedules(ask: Ask) -> object:
    """Every schedule, with the state in a word: failing, overdue, new, changed, removed, paused or runs."""
    everybodys(ask, "Schedules run for events")
    found = await ask.each(_of)
    return {"items": [one for some in found.values() for one in some]}


async def _of(app: App) -> list[Mapping[str, object]]:
    if not any(True for service in app.services for _ in service.declared.schedules):
        return []
    return [_facts(view) for view in await app.schedules.find()]


def state_of(view: ScheduleView) -> str:
    """What of it a person should know first."""
    row = view.row
    if view.declared is None:
        return "removed"
    if view.failed:
        return "failing"
    if row is None:
        return "new"
    if row.paused_at is not None:
        return "paused"
    if view.overdue:
        return "overdue"
    return "runs" if (row.expression, row.tz) == (view.declared.expression, view.declared.tz) else "changed"


def _facts(view: ScheduleView) -> Mapping[str, object]:
    row = view.row
    when = view.declared if row is None else row
    return {
        "service": view.service,
        "name": view.name,
        "state": state_of(view),
        "expression": None if when is None else when.expression,
        "tz": None if when is None else when.tz,
        "next_at": None if row is None else timestamp(row.next_at),
        "due_in": None if row is None else row.due_in,
        "begun_at": _time(None if row is None else row.last_at),
        "done_at": _time(None if row is None else row.done_at),
        "ended_at": _time(None if row is None else row.ended_at),
        "paused_at": _time(None if row is None else row.paused_at),
        "overdue": view.overdue,
        "held": dict(view.held),
        "failed": view.failed,
    }


def _time(at: float | None) -> str | None:
    return None if at is None else timestamp(at)


PAGES: Mapping[str, Page] = {"/schedules": schedules}
