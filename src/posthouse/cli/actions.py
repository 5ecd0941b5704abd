"""`posthouse actions`: what operators did, who and why."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from posthouse.app import apps_of
from posthouse.cli.moment import moment_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson
from posthouse.cli.output import Cell, counted, one_line, print_json, print_table, say
from posthouse.cli.target import Targets, load_all
from posthouse.events import timestamp
from posthouse.service import Service
from posthouse.store.actions import Action, ActionFilter

COLUMNS = ("WHEN", "WHO", "VERB", "OF", "OUTCOME", "CHANGED", "WHY")


def actions(
    targets: Targets,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only from then on: 2026-04-22T10:00:00Z.")] = None,
    verb: Annotated[str | None, typer.Option(help="Only these: `held`, `held edit`, or `edit`.")] = None,
    by: Annotated[str | None, typer.Option(help="Only of this operator.")] = None,
    event: Annotated[str | None, typer.Option(metavar="EVENT_ID", help="Only what was done with this event.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List what operators did, newest first: who, when, why, with what, and what it changed.

    Verbs that change something take --by and --why. They are kept for a year (`Settings.action_retention`).
    """
    wanted = ActionFilter(since=None if since is None else moment_of(since), verb=verb, by=by, event_id=event)
    found = asyncio.run(_found(load_all(targets), wanted, limit + 1))
    shown = found[:limit]
    if as_json:
        print_json([_facts(action) for action in shown])
    elif shown:
        print_table(COLUMNS, [_row(action) for action in shown])
        say(f"\n{counted(len(shown), 'action')}")
    else:
        say("no operator has done anything" if wanted == ActionFilter() else "nothing that fits was done")
    if len(found) > limit and not as_json:
        say(f"there are more than {limit}: raise --limit, or narrow the choice", "yellow")


async def _found(services: Sequence[Service], wanted: ActionFilter, limit: int) -> list[Action]:
    async with opened(services):
        found = [action for app in apps_of(services) for action in await app.actions.find(wanted, limit)]
    return sorted({action.id: action for action in found}.values(), key=lambda a: (-a.at, a.id))[:limit]


def _facts(action: Action) -> dict[str, object]:
    return {**msgspec.structs.asdict(action), "at": timestamp(action.at)}


def _row(action: Action) -> tuple[Cell, ...]:
    return (
        timestamp(action.at)[:19] + "Z",
        action.by,
        action.verb,
        " ".join(filter(None, (action.target or _many(action), f"of {action.tenant}" if action.tenant else ""))),
        Text(one_line(action.outcome), {"done": "green", "begun": "yellow"}.get(action.outcome, "red")),
        "; ".join(f"{name}: {_said(before)} → {_said(after)}" for name, (before, after) in action.changed.items()),
        one_line(action.why),
    )


def _many(action: Action) -> str:
    """What was done to many at once, such as a resend."""
    place = " ".join(filter(None, (action.topic, f"key {action.key}" if action.key else "")))
    return f"{counted(action.count, 'event')}{f' of {place}' if place else ''}"


def _said(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
