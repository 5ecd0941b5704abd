"""Sagas: long-running processes with typed state, deadlines, and compensation declared beside each step."""

from posthouse.processes.saga.book import SagaBook
from posthouse.processes.saga.comparing import Comparison, Finding
from posthouse.processes.saga.declared import SagaType, Taken, Undo
from posthouse.processes.saga.instances import SagaInstances, SagaView
from posthouse.processes.saga.marks import deadline, join, late, on, partial_resume, partial_retry, starts, step, undo
from posthouse.processes.saga.saga import Saga, field
from posthouse.processes.saga.start import SagaStart
from posthouse.processes.saga.tasks import SagaTask
from posthouse.processes.saga.turn import Turn

__all__ = [
    "Comparison",
    "Finding",
    "Saga",
    "SagaBook",
    "SagaInstances",
    "SagaStart",
    "SagaTask",
    "SagaType",
    "SagaView",
    "Taken",
    "Turn",
    "Undo",
    "deadline",
    "field",
    "join",
    "late",
    "on",
    "partial_resume",
    "partial_retry",
    "starts",
    "step",
    "undo",
]
