"""`posthouse outbox list|retry`: rows that the broker refused, and those that wait behind them; `resend` what it lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from posthouse.app import app_of
from posthouse.cli.accepting import accept_loss
from posthouse.cli.group import BAD_INPUT
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why
from posthouse.cli.output import Cell, complain, counted, one_line, print_json, print_table, say, span
from posthouse.cli.resending import resend
from posthouse.cli.target import Target, load
from posthouse.clock import new_id
from posthouse.errors import ConfigurationError
from posthouse.events import timestamp
from posthouse.service import Service
from posthouse.store import Action, StuckRow

app = typer.Typer(
    no_args_is_help=True, help="Look at events that the broker refused and try them again; send again what it lost."
)
app.command()(resend)
app.command()(accept_loss)

COLUMNS = ("ID", "STATE", "TOPIC", "TENANT", "KEY", "TRIES", "SINCE", "NEXT", "WHY")


@app.command("list")
def list_stuck(target: Target, as_json: AsJson = False) -> None:
    """List refused events and those that wait behind them."""
    service = load(target)
    rows = asyncio.run(_stuck(service))
    if as_json:
        print_json([_facts(row) for row in rows])
    elif rows:
        print_table(COLUMNS, [_row(row) for row in rows])
        say(f"\n{counted(len(rows), 'stuck row')}")
    else:
        say("nothing is stuck", "green")


@app.command()
def retry(
    target: Target,
    row_ids: Annotated[list[int] | None, typer.Argument(metavar="ID", help="Numbers from `outbox list`.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every refused row, instead of numbers.")] = False,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Try refused events again now; ends their quarantine. A running relay takes them up."""
    service = load(target)
    if everything == bool(row_ids):
        raise ConfigurationError("say which: the numbers of stuck rows, or --all")
    done, unknown = asyncio.run(_retry(service, row_ids, Action(verb="outbox retry", by=by, why=why)))
    if as_json:
        print_json({"done": done, "unknown": unknown})
    else:
        say(
            f"{counted(len(done), 'stuck row')}: tried again as soon as a relay runs" if done else "nothing was changed"
        )
    for row_id in unknown:
        complain(f"posthouse: no stuck row has the number {row_id}: see `posthouse outbox list TARGET`")
    if unknown:
        raise typer.Exit(BAD_INPUT)


async def _stuck(service: Service) -> Sequence[StuckRow]:
    async with opened([service]):
        return await app_of(service).store.outbox.stuck()


async def _retry(service: Service, row_ids: Sequence[int] | None, action: Action) -> tuple[list[int], list[int]]:
    """Those that were stuck and those that were not. Rows that wait behind others follow by themselves."""
    async with opened([service]):
        app = app_of(service)
        stuck = {found.row.id: found for found in await app.store.outbox.stuck()}
        ids = [row_id for row_id, found in stuck.items() if found.attempts] if row_ids is None else row_ids
        answers = {
            row_id: row_id in stuck
            and await app.store.outbox.retry_stuck(row_id, app.actions.signed(_about(stuck[row_id], action)))
            for row_id in ids
        }
    return [i for i, stuck in answers.items() if stuck], [i for i, stuck in answers.items() if not stuck]


def _about(stuck: StuckRow, action: Action) -> Action:
    row = stuck.row
    return msgspec.structs.replace(
        action,
        id=new_id(),
        target=f"stuck row {row.id}",
        topic=row.topic,
        tenant=row.tenant,
        key=row.key or "",
        event_id=row.event_id,
        changed={"state": (stuck.state, "due")},
    )


def _facts(stuck: StuckRow) -> dict[str, object]:
    row = stuck.row
    return {
        "id": row.id,
        "state": stuck.state,
        "topic": row.topic,
        "tenant": row.tenant,
        "key": row.key,
        "sequence": row.sequence,
        "event_id": row.event_id,
        "attempts": stuck.attempts,
        "first_at": timestamp(stuck.first_at),
        "next_at": None if stuck.quarantined else timestamp(stuck.next_at),
        "error": stuck.error,
    }


def _row(stuck: StuckRow) -> tuple[Cell, ...]:
    row = stuck.row
    return (
        row.id,
        stuck.state,
        row.topic,
        row.tenant,
        row.key or "",
        stuck.attempts,
        span(stuck.age),
        "" if stuck.quarantined or not stuck.attempts else f"in {span(stuck.after)}",
        one_line(stuck.error),
    )
