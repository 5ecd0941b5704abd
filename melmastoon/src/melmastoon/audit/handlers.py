"""What audit-service does about facts: all go into the chain, as they come."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from melmastoon.audit.chain import Entry, Said, append
from melmastoon.facts.audit import EntryAppended, MerkleAnchored, audit
from melmastoon.facts.everything import SERVICES, facts_of
from melmastoon.facts.reservation import BookingCancelled
from posthouse import Event, Policy, Tx

OWN = (EntryAppended, MerkleAnchored)
OF_OTHERS = [known.payload.cls for known in facts_of(SERVICES) if known.subject.service != audit.name]
AS_THEY_COME = Policy(order="none", group_size=200)

_deterministic = msgspec.json.Encoder(order="deterministic").encode


@audit.on(*OF_OTHERS, policy=AS_THEY_COME, publishes=OWN)
async def remember(events: list[Event[object]], tx: Tx) -> None:
    """What the law wants kept is announced as well, so that others can ask for its proof; so is every cancellation, which
    says how much the policy gives back: nothing, often."""
    say(tx, await append(tx, [_entry(event, announced=_is_announced(event)) for event in events]))


def _is_announced(event: Event[object]) -> bool:
    return event.metadata.retention == "cold" or isinstance(event.data, BookingCancelled)


@audit.on(*OWN, policy=AS_THEY_COME)
async def remember_own(events: list[Event[EntryAppended | MerkleAnchored]], tx: Tx) -> None:
    """Its own facts are facts as well; but nothing is said because of them, or there would be no end."""
    await append(tx, [_entry(event, announced=False) for event in events], turns_the_day=False)


def say(tx: Tx, said: Sequence[Said]) -> None:
    """Publish what a change of the chain made true."""
    for fact in said:
        match fact:
            case EntryAppended(entry_id=name):
                tx.publish(fact, idempotency_key=f"audit:entry:{name}")
            case MerkleAnchored(anchor_id=name):
                tx.publish(fact, idempotency_key=f"audit:anchor:{name}")


def _entry(event: Event[object], *, announced: bool) -> Entry:
    """Its digest covers what was said, by whom, and what led to it."""
    actor = None if event.actor is None else (event.actor.kind, event.actor.id)
    envelope = (event.id, event.type, event.tenant, event.time, event.key, event.correlation, event.causation, actor)
    digest = hashlib.sha256(_deterministic((envelope, event.data))).hexdigest()
    return Entry(entry_id=event.id, about=event.type, said_at=event.time, digest=digest, announced=announced)
