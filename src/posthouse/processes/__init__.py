"""What takes its time: timers, sagas, and aggregates with their streams."""

from posthouse.processes.saga import (
    Saga,
    SagaBook,
    SagaDesk,
    SagaType,
    SagaView,
    Turn,
    deadline,
    late,
    on,
    partial_retry,
    starts,
    step,
    undo,
)
from posthouse.processes.stream import Aggregate, AggregateBook, Conflicts, Loaded
from posthouse.processes.timers import Timers

__all__ = [
    "Aggregate",
    "AggregateBook",
    "Conflicts",
    "Loaded",
    "Saga",
    "SagaBook",
    "SagaDesk",
    "SagaType",
    "SagaView",
    "Timers",
    "Turn",
    "deadline",
    "late",
    "on",
    "partial_retry",
    "starts",
    "step",
    "undo",
]
