"""What takes its time: timers and sagas."""

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
from posthouse.processes.timers import Timers

__all__ = [
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
