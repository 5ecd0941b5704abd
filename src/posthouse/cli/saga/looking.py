"""`posthouse saga list`: which processes there are, and how they stand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.text import Text

from posthouse.app import app_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson
from posthouse.cli.output import Cell, counted, one_line, print_json, print_table, say, span
from posthouse.cli.saga.choosing import asked_where, declared
from posthouse.cli.target import Target, load
from posthouse.errors import ConfigurationError
from posthouse.events import timestamp
from posthouse.processes.saga.telling import called
from posthouse.service import Service
from posthouse.store.sagas import FOR_AN_OPERATOR, SagaFilter, SagaRef, SagaRow, SagaStatus

COLUMNS = ("SAGA", "ID", "TENANT", "STATUS", "LAST STEP", "FOR", "NEXT, OR WHY")

COLOURS: Mapping[SagaStatus, str] = {
    "awaited": "yellow",
    "running": "cyan",
    "compensating": "yellow",
    "completed": "green",
    "compensated": "green",
    "cancelled": "dim",
    "partial": "bold yellow",
    "compensation_failed": "bold red",
}


def list_sagas(
    target: Target,
    saga: Annotated[str | None, typer.Option(help="Only this saga.")] = None,
    status: Annotated[SagaStatus | None, typer.Option(help="Only in this status.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Only with this value of a field in index=(…). Can be repeated."),
    ] = None,
    parent: Annotated[
        tuple[str, str] | None, typer.Option(metavar="SAGA ID", help="Only those that this saga has started.")
    ] = None,
    tombstones: Annotated[
        bool, typer.Option("--tombstones", help="Also what is left of those that were purged.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List sagas in the order of starting, and how many there are in each status."""
    service, asked = load(target), asked_where(where or ())
    if saga is not None:
        declared(service, saga)
    elif not service.declared.saga_types:
        raise ConfigurationError(f"{service.name} declares no saga: declare one with @{service.name}.saga(…)")
    wanted = SagaFilter(
        saga=saga,
        status=status,
        tenant=tenant,
        where=asked,
        parent=None if parent is None else SagaRef(*parent, attempt=0),
        tombstones=tombstones,
    )
    rows, counts = asyncio.run(_find(service, wanted, limit + 1))
    if as_json:
        print_json([summary(row) for row in rows[:limit]])
        return
    if rows:
        now = app_of(service).clock.now()
        print_table(COLUMNS, [_row(service, row, now) for row in rows[:limit]])
        say("")
    _sum(counts, wanted, shown=len(rows))
    if len(rows) > limit:
        say(f"there are more than {limit}: raise --limit, or narrow the choice", "yellow")
    if any(row.status in FOR_AN_OPERATOR for row in rows):
        say("partial and compensation_failed ones wait for you: see `posthouse saga tasks TARGET`", "yellow")


def summary(row: SagaRow) -> dict[str, object]:
    """What `--json` says about a saga, its history aside."""
    return {
        "saga": row.saga,
        "id": row.id,
        "attempt": row.attempt,
        "tenant": row.tenant,
        "status": row.status,
        "parent": row.parent,
        "tasks": {step: timestamp(since) for step, since in row.tasks.items()},
        "purged_at": None if row.purged_at is None else timestamp(row.purged_at),
        "done": row.steps,
        "deadlines": {name: timestamp(armed.due_at) for name, armed in row.deadlines.items()},
        "waiting": [
            {"event_id": one.event_id, "type": one.type, "method": one.method, "until": timestamp(one.until)}
            for one in row.waiting
        ],
        "calls": row.calls,
        "undoing": row.undoing,
        "reason": row.reason,
        "note": row.note,
        "turns": row.turn,
        "correlation": row.correlation,
        "started_at": timestamp(row.started_at),
        "changed_at": timestamp(row.changed_at),
        "ended_at": None if row.ended_at is None else timestamp(row.ended_at),
    }


def status_text(status: SagaStatus) -> Text:
    """A status in its colour."""
    return Text(status, COLOURS.get(status, ""))


async def _find(
    service: Service, wanted: SagaFilter, limit: int
) -> tuple[list[SagaRow], Mapping[tuple[str, SagaStatus], int]]:
    found: list[SagaRow] = []
    async with opened([service]):
        async for row in app_of(service).sagas.find(wanted):
            found.append(row)
            if len(found) == limit:
                break
        return found, await app_of(service).sagas.counts()


def _row(service: Service, row: SagaRow, now: float) -> tuple[Cell, ...]:
    due = min(row.deadlines.items(), key=lambda item: item[1].due_at, default=None)
    failed = row.undoing.error if row.undoing is not None else ""
    following = "" if due is None else f"{called(due[0])} in {span(due[1].due_at - now)}"
    early = counted(len(row.waiting), "early event") if row.waiting else ""
    calls = f"calls for {', '.join(call.step for call in row.calls)}" if row.calls else ""
    of = service.declared.saga_types.get(row.saga)
    return (
        row.saga,
        row.id if of is None else of.named(row),
        row.tenant,
        status_text(row.status),
        row.steps[-1] if row.done else "",
        span((row.ended_at or now) - row.started_at),
        "; ".join(filter(None, (early, calls, following, one_line(failed or row.reason or row.note)))),
    )


def _sum(counts: Mapping[tuple[str, SagaStatus], int], wanted: SagaFilter, *, shown: int) -> None:
    """The whole, so that a filter that finds nothing does not look like peace."""
    total: Counter[SagaStatus] = Counter()
    for (saga, status), number in counts.items():
        if wanted.saga in (None, saga):
            total[status] += number
    if not total:
        say("no saga was started", "green")
        return
    if not shown:
        say("no saga fits")
    parts: Sequence[str] = [f"{number:,} {status}" for status, number in sorted(total.items())]
    say(f"{counted(total.total(), 'saga')} of {wanted.saga or 'all kinds'}, all tenants: {', '.join(parts)}")
