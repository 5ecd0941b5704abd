"""`posthouse saga tasks`: what waits for people. `posthouse saga index`: what a later release looks for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from posthouse.app import app_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why
from posthouse.cli.output import Cell, counted, one_line, print_json, print_table, say, span
from posthouse.cli.saga.choosing import declared
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.events import timestamp
from posthouse.operators import operator_name
from posthouse.processes import SagaTask
from posthouse.service import Service

COLUMNS = ("WHO", "SAGA", "TENANT", "WHAT", "FOR", "UNTIL")


def tasks(
    target: Target,
    by: Annotated[str | None, typer.Option(metavar="ROLE", help="Only of these people.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    as_json: AsJson = False,
) -> None:
    """List what waits for people: steps that they bring about, and sagas that rest until an operator decides."""
    service = load(target)
    _refuse_unknown(service, by)
    found = asyncio.run(_find(service, by, tenant))
    if as_json:
        print_json([_facts(task) for task in found])
        return
    if not found:
        say(f"nothing waits for {by or 'people'}", "green")
        return
    now = app_of(service).clock.now()
    print_table(COLUMNS, [_row(task, now) for task in found])
    say("")
    say(f"{counted(len(found), 'task')}. What is known, and what to press, as for the first:")
    say(f"  posthouse saga show {target} {found[0].asked_as}")


def index(
    target: Target,
    saga: Annotated[str | None, typer.Option(help="Only this saga.")] = None,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Let stored sagas be found by fields and roles that this release has added. Each is filled by its next turn anyhow."""
    service = load(target)
    if saga is not None:
        declared(service, saga)

    async def work() -> int:
        async with opened([service]):
            return await app_of(service).sagas.fill_index(saga, by=by or operator_name(), why=why)

    filled = asyncio.run(work())
    if as_json:
        print_json({"filled": filled})
    else:
        say(
            f"{counted(filled, 'saga')} can be found by more than before"
            if filled
            else "all can be found by everything"
        )


def _refuse_unknown(service: Service, by: str | None) -> None:
    types = service.declared.saga_types.values()
    if not types:
        raise ConfigurationError(f"{service.name} declares no saga: declare one with @{service.name}.saga(…)")
    known = {role for of in types for role in (of.operator, *of.people.values())}
    if by is not None and by not in known:
        raise ConfigurationError(f"no saga of {service.name} waits for {by!r}.{did_you_mean(by, known)}")


async def _find(service: Service, by: str | None, tenant: str | None) -> Sequence[SagaTask]:
    async with opened([service]):
        found = [task async for task in app_of(service).sagas.tasks(by=by, tenant=tenant)]
        return sorted(found, key=lambda task: task.since)


def _row(task: SagaTask, now: float) -> tuple[Cell, ...]:
    until = "" if task.until is None else f"{task.until[0]} in {span(task.until[1].due_at - now)}"
    return (task.by, task.name, task.row.tenant, what(task), span(now - task.since), until)


def what(task: SagaTask) -> str:
    """What is to be done, in words."""
    if task.step is not None:
        return f"{task.step}: {' or '.join(task.waits_for)}"
    error = task.row.undoing.error if task.row.undoing is not None else ""
    return f"decide: it is {task.row.status}, {one_line(error or task.row.reason)}"


def _facts(task: SagaTask) -> dict[str, object]:
    row = task.row
    return {
        "by": task.by,
        "saga": row.saga,
        "id": row.id,
        "attempt": row.attempt,
        "tenant": row.tenant,
        "status": row.status,
        "reason": row.reason,
        "step": task.step,
        "waits_for": task.waits_for,
        "since": timestamp(task.since),
        "deadline": None if task.until is None else task.until[0],
        "until": None if task.until is None else timestamp(task.until[1].due_at),
    }
