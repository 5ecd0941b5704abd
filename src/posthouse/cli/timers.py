"""`posthouse timers`: facts that will be said later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from posthouse.app import app_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why
from posthouse.cli.output import Cell, counted, print_json, print_table, say, span
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError, DecodeError, DeskError
from posthouse.events import decode_any, timestamp
from posthouse.service import Service
from posthouse.store import Action, Timer

COLUMNS = ("NAME", "TENANT", "DUE", "IN", "KEY", "TYPE")


def timers(
    target: Target,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    cancel: Annotated[str | None, typer.Option(metavar="NAME", help="Stop this timer; needs --tenant.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 100,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """List pending timers, soonest first, or cancel one."""
    service = load(target)
    if cancel is not None:
        _cancel(service, tenant, cancel, as_json, Action(verb="timers cancel", by=by, why=why))
    else:
        _list(service, tenant, limit, as_json)


def _cancel(service: Service, tenant: str | None, name: str, as_json: bool, action: Action) -> None:
    if tenant is None:
        raise ConfigurationError("a timer belongs to a tenant: add --tenant")
    if not asyncio.run(_remove(service, tenant, name, action)):
        raise DeskError(f"tenant {tenant!r} has no pending timer {name!r}: it has fired, or never was")
    if as_json:
        print_json({"cancelled": name, "tenant": tenant})
    else:
        say(f"{name} is cancelled")


def _list(service: Service, tenant: str | None, limit: int, as_json: bool) -> None:
    found, now = asyncio.run(_pending(service, tenant, limit + 1)), app_of(service).clock.now()
    shown = found[:limit]
    if as_json:
        print_json([_facts(timer) for timer in shown])
    elif shown:
        print_table(COLUMNS, [_row(timer, now) for timer in shown])
        say(
            "\n"
            + (counted(len(shown), "timer") if len(found) <= limit else f"the first {limit}: raise --limit to see more")
        )
    else:
        say("no timer is pending", "green")


async def _pending(service: Service, tenant: str | None, limit: int) -> Sequence[Timer]:
    async with opened([service]):
        return await app_of(service).store.timers.pending(tenant, limit)


async def _remove(service: Service, tenant: str, name: str, action: Action) -> bool:
    app = app_of(service)
    async with opened([service]), app.store.begin() as tx:
        if not await app.store.timers.cancel(tx, tenant, name):
            return False
        await app.actions.note(tx, msgspec.structs.replace(action, tenant=tenant, target=f"timer {name}"))
        return True


def _facts(timer: Timer) -> dict[str, object]:
    row = timer.row
    return {
        "name": timer.name,
        "tenant": row.tenant,
        "due_at": timestamp(timer.due_at),
        "type": _type(timer),
        "topic": row.topic,
        "key": row.key,
        "event_id": row.event_id,
    }


def _type(timer: Timer) -> str:
    try:
        return decode_any(timer.row.headers, timer.row.body).type
    except DecodeError:
        return ""


def _row(timer: Timer, now: float) -> tuple[Cell, ...]:
    row = timer.row
    return timer.name, row.tenant, timestamp(timer.due_at), span(timer.due_at - now), row.key or "", _type(timer)
