"""Telling: what people are told of a saga: its deadlines in words, and which held events are about it."""

from __future__ import annotations

from posthouse.errors import EventError
from posthouse.events import decode_any
from posthouse.processes.saga.declared import SagaType
from posthouse.processes.saga.transition import RETRY_UNDO, UNDO_WITHIN
from posthouse.store import HeldEvent
from posthouse.store.sagas import STOP_WAITING, SagaRow

LONGEST = 200
"""Characters of what a saga failed with."""

OWN = {
    RETRY_UNDO: "next try of the undo",
    UNDO_WITHIN: "end of waiting",
    STOP_WAITING: "end of waiting for early events",
}


def called(deadline: str) -> str:
    """A deadline in words: the library's own have names that mean little to people."""
    return OWN.get(deadline, deadline)


def stands_at(row: SagaRow) -> str:
    """The step that it stands at: the one that it undoes, or whose call was given up, or the last one that was done; empty where
    there is none."""
    if row.undoing is not None:
        return row.undoing.step
    given_up = [call.step for call in row.calls if call.given_up]
    return given_up[0] if given_up else row.steps[-1] if row.done else ""


def failure_of(row: SagaRow) -> str:
    """The same words for sagas that failed alike: of an undo its name and the type of its error, else the reason without what
    has a digit in it, which tells of one saga. Empty where nothing failed."""
    words = row.undoing.error if row.undoing is not None and row.undoing.error else row.reason
    undo, colon, rest = words.strip().partition("\n")[0].partition(": ")
    kind = rest.partition(": ")
    if colon and kind[1] and kind[0].isidentifier():
        return f"{undo}: {kind[0]}"
    alike = [word if not any(map(str.isdigit, word)) else "…" for word in words.partition("\n")[0].split()]
    return " ".join(alike)[:LONGEST]


def is_about(of: SagaType, held: HeldEvent, row: SagaRow) -> bool:
    """Whether a held event is about this saga; one that cannot be read is about none."""
    if held.entry.event_id in {armed.event_id for armed in row.deadlines.values()}:
        return True
    event_type = of.event_types.get(held.type)
    if event_type is None:
        return False
    try:
        event = decode_any(held.headers, held.body)
        return of.id_in(held.type, event.with_data(event_type.payload.decode(event.data))) == row.id
    except EventError:
        return False
