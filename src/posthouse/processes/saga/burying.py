"""Burying: what becomes of an event that waited for its saga, as the consumer holds it."""

from __future__ import annotations

import msgspec

from posthouse.clock import new_id
from posthouse.events import Event
from posthouse.processes.saga.declared import SagaType
from posthouse.receiving import Policy
from posthouse.receiving.holding import Holder, correlation_in
from posthouse.seam import Failure
from posthouse.sending import Tx
from posthouse.store import WAITED, HeldEvent
from posthouse.store.sagas import SagaRow, waited_for_header


def after_waiting(held: HeldEvent, event: Event[object], row: SagaRow) -> HeldEvent:
    """An event that waited, to be run now. Its delivery is over, and its key went on: it is known under a name of its own,
    which nobody else can have drawn."""
    entry = msgspec.structs.replace(held.entry, sequence=None, event_id=f"{event.id}#{new_id()}{WAITED}")
    return msgspec.structs.replace(
        held,
        entry=entry,
        headers={**held.headers, **waited_for_header(row.ref)},
        state="retrying",
        reason="it waited for its saga",
        after=0.0,
    )


async def bury(tx: Tx, held: HeldEvent, reason: str, of: SagaType, policy: Policy) -> None:
    """It is a dead letter from now on, which an operator may have run again."""
    failures, entry = tx.seam.failures, held.entry
    state = "dead" if policy.on_dead == "stop" else "skipped"
    await Holder(tx.store, failures).dead_letter(
        tx.transaction, msgspec.structs.replace(held, error=reason), reason, policy
    )
    await tx.store.inbox.recall(tx.transaction, held.consumer, entry.topic)
    failures.report(
        Failure(
            error=None,
            reason=reason,
            outcome="dead",
            consumer=of.consumer,
            event_type=held.type,
            event_id=entry.event_id,
            topic=entry.topic,
            tenant=entry.tenant,
            key=entry.key,
            correlation=correlation_in(held),
            command=f"posthouse held list TARGET --consumer {of.consumer} --state {state}",
        )
    )
