"""Where an event stands in the line of its key: a pure decision."""

from __future__ import annotations

from enum import Enum

from posthouse.store import InboxEntry, KeyPosition, Seen


class OrderDecision(Enum):
    """next: apply it. duplicate: it was applied, or is held, already. gap: an earlier number is missing.
    blocked: an earlier one of its key is held. fork: its number, or its id, belongs to another event."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    GAP = "gap"
    BLOCKED = "blocked"
    FORK = "fork"


def classify(known: KeyPosition | Seen | None, entry: InboxEntry, *, adopt: bool) -> OrderDecision:
    """What to do with an event, from what the inbox knows. `adopt`: the consumer joined late and takes the first
    number that it sees of a key; otherwise numbers begin at 1."""
    if isinstance(known, Seen):
        return OrderDecision.DUPLICATE if known.digest == entry.digest else OrderDecision.FORK
    if entry.sequence is None:
        return OrderDecision.NEXT
    if known is None:
        return OrderDecision.NEXT if adopt or entry.sequence == 1 else OrderDecision.GAP
    if entry.sequence <= known.sequence:
        return _behind(known, entry)
    if known.event_id and entry.lineage < known.lineage:
        return OrderDecision.FORK
    if known.waiting == entry.sequence:
        return OrderDecision.DUPLICATE if known.waiting_id == entry.event_id else OrderDecision.FORK
    if known.replay:
        return OrderDecision.BLOCKED
    if entry.sequence == known.sequence + 1:
        return OrderDecision.NEXT
    return OrderDecision.BLOCKED if known.waiting == known.sequence + 1 else OrderDecision.GAP


def _behind(position: KeyPosition, entry: InboxEntry) -> OrderDecision:
    """A number at or below the position: seen before, or from before a late beginning, unless it is a re-used one.

    A store that was brought back or failed over gives numbers again under a newer lineage, and a key takes it over where it
    stands: the number is a duplicate only under the lineage under which the key went past it.

    A store that was put back from a copy of its disk gives numbers again under the same lineage. What it says then has ids
    that were drawn after all those that the key has passed, and a duplicate is one of these: so an id that is newer than the
    newest of them is a fork, however long a transaction stayed open between drawing an id and getting its number.
    """
    number = entry.sequence or 0
    if not position.has_passed(entry.lineage, number):
        return OrderDecision.FORK
    if number == position.sequence and position.event_id:
        same = (entry.lineage, entry.event_id, entry.digest) == (position.lineage, position.event_id, position.digest)
        return OrderDecision.DUPLICATE if same else OrderDecision.FORK
    return OrderDecision.FORK if 0 < position.newest < entry.drawn else OrderDecision.DUPLICATE


def is_outlived(waiting: InboxEntry, by: KeyPosition | InboxEntry) -> bool:
    """Whether an event that waits was lost with its server: a newer lineage has given its number, or an earlier one, to
    another event and goes on counting from there. A position that has applied nothing gave none."""
    if waiting.sequence is None or by.sequence is None or waiting.lineage >= by.lineage:
        return False
    return bool(by.event_id) and waiting.sequence >= by.sequence


def ordering_key(entry: InboxEntry) -> tuple[str, ...]:
    """Events of one ordering key are applied in order; one without a number stands alone."""
    if entry.sequence is None or entry.key is None:
        return (entry.topic, entry.tenant, "", entry.event_id)
    return (entry.topic, entry.tenant, entry.key)
