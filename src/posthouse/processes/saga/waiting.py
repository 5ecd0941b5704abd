"""Waiting: what an early event waits for, and whose turn has come. Pure functions of a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from posthouse.processes.saga.declared import SagaType
from posthouse.processes.saga.transition import takes_in_time
from posthouse.store.sagas import SagaRow, Waiting

MOST_WAITING = 10_000
"""Events that may wait for one saga: what comes on top is held in the order of its key, as if it had failed."""


def obstacle(of: SagaType, row: SagaRow, one: Waiting) -> str:
    """What an event has to wait for, in words; empty when it may be taken now."""
    return obstacle_behind(of, row, one, first_of_key(row, one))


def first_of_key(row: SagaRow, one: Waiting) -> Waiting | None:
    """The first of its key that waits; None when it is that itself."""
    first = next((other for other in row.waiting if one.key and other.key == one.key), None)
    return None if first is None or first.is_same(one) else first


def lined_up(waiting: Iterable[Waiting]) -> Iterator[tuple[Waiting, Waiting | None]]:
    """Each, and the first of its key."""
    firsts: dict[str, Waiting] = {}
    for one in waiting:
        first = firsts.setdefault(one.key, one) if one.key else one
        yield one, None if first is one else first


def woken(of: SagaType, row: SagaRow) -> SagaRow:
    """The row with those awake whose turn has come; the very same where there are none."""
    awake = {
        place
        for place, (one, first) in enumerate(lined_up(row.waiting))
        if not one.woken and not obstacle_behind(of, row, one, first)
    }
    if not awake:
        return row
    waiting = (replace(one, woken=True) if place in awake else one for place, one in enumerate(row.waiting))
    return replace(row, waiting=tuple(waiting))


def without(row: SagaRow, gone: Waiting) -> SagaRow:
    """The row without one that waited."""
    return replace(row, waiting=tuple(one for one in row.waiting if not one.is_same(gone)))


def changed(row: SagaRow, one: Waiting) -> SagaRow:
    """The row with one that waits as it is now, in its place; at the end, if it waits since now."""
    if not any(one.is_same(other) for other in row.waiting):
        return replace(row, waiting=(*row.waiting, one))
    return replace(row, waiting=tuple(one if one.is_same(other) else other for other in row.waiting))


def obstacle_behind(of: SagaType, row: SagaRow, one: Waiting, first: Waiting | None) -> str:
    """The same, where that is the first of its key, if there is one."""
    if row.status == "awaited":
        return "its start"
    if takes_in_time(row) and (missing := of.missing(one.method, row.standing)):
        return ", ".join(missing)
    return "" if first is None or _lets_pass(of, row, first, one) else f"{first.type}, which came before it"


def _lets_pass(of: SagaType, row: SagaRow, other: Waiting, one: Waiting) -> bool:
    """Whether `other`, the first in line, waits for the very step that `one` does: behind it, none would ever be taken."""
    return takes_in_time(row) and one.method not in row.standing and one.method in of.needed(other.method)
