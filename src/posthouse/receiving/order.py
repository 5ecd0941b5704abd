"""Where an event stands in the line of its key: a pure decision."""

from __future__ import annotations

import re
from enum import Enum

from posthouse.store import Arrival, Head, Known

_UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Standing(Enum):
    """next: apply it. duplicate: it was applied, or is held, already. gap: an earlier number is missing.
    blocked: an earlier one of its key is held. fork: its number, or its id, belongs to another event."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    GAP = "gap"
    BLOCKED = "blocked"
    FORK = "fork"


OUT_OF_ORDER = 2.0
"""Seconds by which the id of an earlier number may be newer than that of a later one: an id is drawn when a fact is said, its
number at the commit, and two writers of a key may overtake each other in between."""
OUT_OF_ORDER_AGAIN = 60.0
"""The same for what the broker says that it handed out before: most likely it is what it looks like, a duplicate."""


def judge(known: Head | Known | None, arrival: Arrival, *, adopt: bool, again: bool = False) -> Standing:
    """What to do with an arrival, from what the inbox knows. `adopt`: the consumer joined late and takes the first
    number that it sees of a key; otherwise numbers begin at 1. `again`: the broker says that it handed it out before."""
    if isinstance(known, Known):
        return Standing.DUPLICATE if known.digest == arrival.digest else Standing.FORK
    if arrival.sequence is None:
        return Standing.NEXT
    if known is None:
        return Standing.NEXT if adopt or arrival.sequence == 1 else Standing.GAP
    if arrival.sequence <= known.sequence:
        return _behind(known, arrival, OUT_OF_ORDER_AGAIN if again else OUT_OF_ORDER)
    if arrival.lineage < known.lineage:
        return Standing.FORK
    if known.waiting == arrival.sequence:
        return Standing.DUPLICATE if known.waiting_id == arrival.event_id else Standing.FORK
    if arrival.sequence == known.sequence + 1:
        return Standing.NEXT
    return Standing.BLOCKED if known.waiting == known.sequence + 1 else Standing.GAP


def _behind(head: Head, arrival: Arrival, margin: float) -> Standing:
    """A number at or below the head: seen before, or from before a late beginning, unless it is a re-used one.

    A store that was put back from a copy of its disk gives numbers again under the same lineage. What it says then has ids
    that were drawn after the head's, so that a lower number with a newer id is a fork. A duplicate whose producer's clock
    was ahead looks the same and is quarantined with it: seen by people, in nobody's way, and not applied twice. The
    other mistake would be to drop a new fact in silence.
    """
    if arrival.lineage > head.lineage:
        return Standing.FORK
    if arrival.sequence == head.sequence and arrival.lineage == head.lineage and head.event_id:
        same = arrival.event_id == head.event_id and arrival.digest == head.digest
        return Standing.DUPLICATE if same else Standing.FORK
    drawn, last = drawn_at(arrival.event_id), drawn_at(head.event_id)
    if drawn is not None and last is not None and drawn > last + margin:
        return Standing.FORK
    return Standing.DUPLICATE


def drawn_at(event_id: str) -> float | None:
    """When a UUIDv7 was drawn, in seconds since 1970; None for any other id."""
    found = _UUID7.fullmatch(event_id)
    return None if found is None else int(found[1] + found[2], 16) / 1000
