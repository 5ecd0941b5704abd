"""Waiting: what an early event waits for, and whose turn has come. Pure functions of a row."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from posthouse.processes.saga.declared import SagaType
from posthouse.processes.saga.transition import takes_in_time
from posthouse.store.sagas import SagaRow, Waiting

MOST_WAITING = 1_000
"""Events that may wait for one saga: what comes on top is held in the order of its key, as if it had failed."""


def obstacle(of: SagaType, row: SagaRow, one: Waiting) -> str:
    """What an event has to wait for, in words; empty when it may be taken now."""
    if row.status == "awaited":
        return "its start"
    if takes_in_time(row) and (missing := of.missing(one.method, row.steps)):
        return ", ".join(missing)
    first = next(iter(_before(row, one)), None)
    return "" if first is None or _lets_pass(of, row, first, one) else f"{first.type}, which came before it"


def woken(of: SagaType, row: SagaRow) -> SagaRow:
    """The row with those awake whose turn has come."""
    if all(one.woken for one in row.waiting):
        return row
    return replace(
        row, waiting=tuple(replace(one, woken=one.woken or not obstacle(of, row, one)) for one in row.waiting)
    )


def without(row: SagaRow, event_id: str) -> SagaRow:
    """The row without one that waited."""
    return replace(row, waiting=tuple(one for one in row.waiting if one.event_id != event_id))


def _before(row: SagaRow, one: Waiting) -> Sequence[Waiting]:
    """What waits of its key and came before it."""
    ids = [other.event_id for other in row.waiting]
    earlier = row.waiting[: ids.index(one.event_id)] if one.event_id in ids else row.waiting
    return [other for other in earlier if one.key and other.key == one.key]


def _lets_pass(of: SagaType, row: SagaRow, other: Waiting, one: Waiting) -> bool:
    """Whether `other`, the first in line, waits for the very step that `one` does: behind it, none would ever be taken."""
    return takes_in_time(row) and one.method not in row.steps and one.method in of.needed(other.method)
