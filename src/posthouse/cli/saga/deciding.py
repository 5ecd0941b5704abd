"""`posthouse saga retry|resume|cancel`: an operator's word, as a turn of the saga."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from posthouse.app import app_of
from posthouse.cli.opening import opened
from posthouse.cli.options import AsJson, By, Why, Yes
from posthouse.cli.output import confirm, print_json, say
from posthouse.cli.saga.advice import advice, of_others
from posthouse.cli.saga.choosing import Attempt, SagaId, SagaName, Tenant, chosen, declared, other_attempts
from posthouse.cli.saga.looking import summary
from posthouse.cli.target import Target, load
from posthouse.errors import DeskError
from posthouse.operators import operator_name
from posthouse.processes import SagaInstances
from posthouse.store.sagas import SagaRow, SagaTurn

Act = Callable[[SagaInstances, SagaRow, str], Awaitable[SagaRow]]
"""Given the desk, the saga as it stands, and who asks."""


def retry(
    target: Target,
    saga: SagaName,
    saga_id: SagaId,
    tenant: Tenant = None,
    attempt: Attempt = None,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Run what failed again: the undo of a failed compensation, or what a partial saga declares for it."""
    _decide(
        target,
        saga,
        saga_id,
        tenant,
        attempt,
        lambda desk, row, who: desk.retry(*_key(row), tenant=row.tenant, attempt=row.attempt, by=who, why=why),
        by,
        as_json,
    )


def resume(
    target: Target,
    saga: SagaName,
    saga_id: SagaId,
    tenant: Tenant = None,
    attempt: Attempt = None,
    note: Annotated[str, typer.Option(help="What was done by hand, for the history.")] = "",
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Go on without what failed, because it was done by hand: the next undo follows, and a partial saga is completed."""
    _decide(
        target,
        saga,
        saga_id,
        tenant,
        attempt,
        lambda desk, row, who: desk.resume(
            *_key(row), tenant=row.tenant, attempt=row.attempt, by=who, why=why, note=note
        ),
        by,
        as_json,
    )


def cancel(
    target: Target,
    saga: SagaName,
    saga_id: SagaId,
    reason: Annotated[str, typer.Option(help="Why; its undos see it as turn.reason.")],
    tenant: Tenant = None,
    attempt: Attempt = None,
    by: By = "",
    why: Why = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Undo every step that was done, last one first; the saga ends as cancelled."""
    if not yes:
        confirm(f"Undo every step of {saga} {saga_id}?")
    _decide(
        target,
        saga,
        saga_id,
        tenant,
        attempt,
        lambda desk, row, who: desk.cancel(*_key(row), reason, tenant=row.tenant, attempt=row.attempt, by=who, why=why),
        by,
        as_json,
    )


def _key(row: SagaRow) -> tuple[str, str]:
    return row.saga, row.id


def _decide(
    target: str, saga: str, id: str, tenant: str | None, attempt: int | None, act: Act, by: str, as_json: bool
) -> None:
    service = load(target)
    of = declared(service, saga)

    async def work() -> tuple[SagaRow, SagaRow, SagaTurn, list[str]]:
        async with opened([service]):
            before = await chosen(service, saga, id, tenant, attempt)
            others = [] if attempt else list(of_others(of, await other_attempts(service, before), target))
            try:
                after = await act(app_of(service).sagas, before, by or operator_name())
            except DeskError as error:
                raise DeskError("\n".join([str(error), *others])) from error
            *_, turn = await app_of(service).store.sagas.history(saga, before.tenant, id, attempt=before.attempt)
            return before, after, turn, others

    before, after, turn, others = asyncio.run(work())
    if as_json:
        print_json({**summary(after), "was": before.status, "turn": turn})
        return
    say(_done(before, after, turn))
    for said in turn.published:
        say(f"  it says {said.type}, which leaves with `posthouse run`")
    for sentence in (*advice(of, after, target), *others):
        say(sentence)


def _done(before: SagaRow, after: SagaRow, turn: SagaTurn) -> str:
    changed = f"is {after.status}" if after.status == before.status else f"was {before.status} and is {after.status}"
    undone = f"; {', '.join(turn.undone)} has run" if turn.undone else ""
    failed = f"; failed: {turn.undo_failed}" if turn.undo_failed else ""
    return f"{after.ref} of {after.tenant} {changed}{undone}{failed}"
