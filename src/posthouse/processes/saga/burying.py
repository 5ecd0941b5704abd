"""Burying: what becomes of an event that waited for its saga, as the consumer holds it."""

from __future__ import annotations

import hashlib

import msgspec

from posthouse.events import Event
from posthouse.processes.saga.declared import SagaType
from posthouse.receiving.holding import Holder
from posthouse.seam import Failure
from posthouse.sending import Tx
from posthouse.store import WAITED, HeldEvent


def after_waiting(held: HeldEvent, event: Event[object]) -> HeldEvent:
    """An event that waited, to be run now. Its delivery is over, and its key went on: it is known under a name of its own, to
    which its source belongs, for an id is unique with that only."""
    name = held.entry.event_id
    if name == event.id:
        name = f"{name}#{hashlib.blake2b(event.source.encode(), digest_size=8).hexdigest()}"
    entry = msgspec.structs.replace(held.entry, sequence=None, event_id=f"{name}{WAITED}")
    return msgspec.structs.replace(held, entry=entry, state="retrying", reason="it waited for its saga", after=0.0)


async def bury(tx: Tx, held: HeldEvent, reason: str, of: SagaType) -> None:
    """It is a dead letter from now on, which an operator may have run again."""
    failures, entry = tx.seam.failures, held.entry
    await Holder(tx.store, failures).dead_letter(
        tx.transaction, msgspec.structs.replace(held, error=reason), reason, of.policy
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
            command=f"posthouse held list TARGET --consumer {of.consumer} --state dead",
        )
    )
