"""Where an event stands in the line of its key: a pure decision."""

from __future__ import annotations

from enum import Enum

from posthouse.store import Arrival, Head, Known


class Standing(Enum):
    """next: apply it. duplicate: it was applied, or is held, already. gap: an earlier number is missing.
    blocked: an earlier one of its key is held. fork: its number, or its id, belongs to another event."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    GAP = "gap"
    BLOCKED = "blocked"
    FORK = "fork"


def judge(known: Head | Known | None, arrival: Arrival, *, adopt: bool) -> Standing:
    """What to do with an arrival, from what the inbox knows. `adopt`: the consumer joined late and takes the first
    number that it sees of a key; otherwise numbers begin at 1."""
    if isinstance(known, Known):
        return Standing.DUPLICATE if known.digest == arrival.digest else Standing.FORK
    if arrival.sequence is None:
        return Standing.NEXT
    if known is None:
        return Standing.NEXT if adopt or arrival.sequence == 1 else Standing.GAP
    if arrival.sequence <= known.sequence:
        return _behind(known, arrival)
    if known.event_id and arrival.lineage < known.lineage:
        return Standing.FORK
    if known.waiting == arrival.sequence:
        return Standing.DUPLICATE if known.waiting_id == arrival.event_id else Standing.FORK
    if arrival.sequence == known.sequence + 1:
        return Standing.NEXT
    return Standing.BLOCKED if known.waiting == known.sequence + 1 else Standing.GAP


def _behind(head: Head, arrival: Arrival) -> Standing:
    """A number at or below the head: seen before, or from before a late beginning, unless it is a re-used one.

    A store that was put back from a copy of its disk gives numbers again under the same lineage. What it says then has ids
    that were drawn after all those that the key has passed, and a duplicate is one of these: so an id that is newer than the
    newest of them is a fork, however long a transaction stayed open between drawing an id and getting its number.
    """
    if arrival.lineage > head.lineage:
        return Standing.FORK
    if arrival.sequence == head.sequence and arrival.lineage == head.lineage and head.event_id:
        same = arrival.event_id == head.event_id and arrival.digest == head.digest
        return Standing.DUPLICATE if same else Standing.FORK
    return Standing.FORK if 0 < head.newest < arrival.drawn else Standing.DUPLICATE


def is_outlived(waiting: Arrival, by: Head | Arrival) -> bool:
    """Whether an event that waits was lost with its server: a newer lineage has given its number, or an earlier one, to
    another event and goes on counting from there. A head that has applied nothing gave none."""
    if waiting.sequence is None or by.sequence is None or waiting.lineage >= by.lineage:
        return False
    return bool(by.event_id) and waiting.sequence >= by.sequence
