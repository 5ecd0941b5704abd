"""Telling: what people are told of a saga: its deadlines in words, and which held events are about it."""

from __future__ import annotations

from posthouse.errors import EventError
from posthouse.events import decode_any
from posthouse.processes.saga.declared import SagaType
from posthouse.processes.saga.transition import RETRY_UNDO, UNDO_WITHIN
from posthouse.store import HeldEvent
from posthouse.store.sagas import STOP_WAITING, SagaRow

OWN = {
    RETRY_UNDO: "next try of the undo",
    UNDO_WITHIN: "end of waiting",
    STOP_WAITING: "end of waiting for early events",
}


def called(deadline: str) -> str:
    """A deadline in words: the library's own have names that mean little to people."""
    return OWN.get(deadline, deadline)


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
