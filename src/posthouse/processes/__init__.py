"""What takes its time: timers, sagas, aggregates with their streams, and read models."""

from posthouse.processes.calendar import Calendar, WorkWeek
from posthouse.processes.projection import Model, Plan, Projection, Projections, ProjectionStatus
from posthouse.processes.saga import (
    Saga,
    SagaBook,
    SagaInstances,
    SagaStart,
    SagaTask,
    SagaType,
    SagaView,
    Turn,
    deadline,
    field,
    join,
    late,
    on,
    partial_resume,
    partial_retry,
    starts,
    step,
    undo,
)
from posthouse.processes.stream import Aggregate, Conflicts, Loaded
from posthouse.processes.timers import Timers

__all__ = [
    "Aggregate",
    "Calendar",
    "Conflicts",
    "Loaded",
    "Model",
    "Plan",
    "Projection",
    "ProjectionStatus",
    "Projections",
    "Saga",
    "SagaBook",
    "SagaInstances",
    "SagaStart",
    "SagaTask",
    "SagaType",
    "SagaView",
    "Timers",
    "Turn",
    "WorkWeek",
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
