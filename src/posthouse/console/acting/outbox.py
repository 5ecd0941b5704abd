"""Outbox: events that the broker refused, tried again."""

from __future__ import annotations

import msgspec

from posthouse.clock import new_id
from posthouse.console.acting.act import Act, AnyAct, Call, Id, Look, Outcome
from posthouse.console.asking import Refusal
from posthouse.errors import DeskError
from posthouse.store import Action, StuckRow


class One(msgspec.Struct, frozen=True, kw_only=True):
    """A stuck row by its number."""

    id: Id


async def _found(call: Call[One]) -> StuckRow:
    id = int(call.parameters.id)
    found = await call.app.store.outbox.stuck(after=id - 1, limit=1)
    if not found or found[0].row.id != id or not call.who.sees(found[0].row.tenant):
        raise Refusal(404, f"No stuck row has the number {id}.", "It may have been sent meanwhile.")
    return found[0]


async def _look(call: Call[One]) -> Look:
    stuck = await _found(call)
    row, state = stuck.row, state_of(stuck)
    tries = "once" if stuck.attempts == 1 else f"{stuck.attempts:,} times"
    sentence = f"Row {row.id} of {row.topic}, refused {tries} and {state}, is tried again as soon as a relay runs."
    if not stuck.attempts:
        raise Refusal(
            409, f"Row {row.id} waits behind another of its key.", "Retry the first one: it follows by itself."
        )
    return Look(sentence=sentence, tenant=row.tenant, seen=f"{state} {stuck.attempts}")


async def _retry(call: Call[One], look: Look) -> Outcome:
    stuck = await _found(call)
    action = Action(verb="outbox retry", by=call.by, why=call.why, service=call.service.name)
    if not await call.app.store.outbox.retry_stuck(stuck.row.id, call.app.actions.signed(about(stuck, action))):
        raise DeskError(f"row {stuck.row.id} is not stuck any more")
    return Outcome(sentence=f"Row {stuck.row.id} is tried again as soon as a relay runs.")


def about(stuck: StuckRow, action: Action) -> Action:
    """The action, with what it is about."""
    row = stuck.row
    return msgspec.structs.replace(
        action,
        id=new_id(),
        target=f"stuck row {row.id}",
        topic=row.topic,
        tenant=row.tenant,
        key=row.key or "",
        event_id=row.event_id,
        changed={"state": (state_of(stuck), "due")},
    )


def state_of(stuck: StuckRow) -> str:
    """In a word."""
    return "quarantined" if stuck.quarantined else "refused" if stuck.attempts else "waiting"


ACTS: tuple[AnyAct, ...] = (
    Act(name="outbox.retry", title="Try again", role="operator", parameters=One, look=_look, do=_retry),
)
