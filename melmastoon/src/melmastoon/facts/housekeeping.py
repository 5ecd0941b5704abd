"""housekeeping-service: whether a room is ready."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

housekeeping = service("housekeeping", owner="housekeeping")

RoomStatus = Literal["clean", "dirty", "occupied", "out_of_order", "out_of_service"]


@housekeeping.event("task.created.v1", key="task_id", retention="warm", idempotency="required")
class TaskCreated(Payload):
    """A room wants work."""

    task_id: str
    property_id: str
    room_id: str
    booking_id: str
    kind: Literal["turnover", "scheduled"]


@housekeeping.event("task.assigned.v1", key="task_id", retention="warm", idempotency="required")
class TaskAssigned(Payload):
    """Somebody on shift will do it."""

    task_id: str
    property_id: str
    room_id: str
    staff_id: str


@housekeeping.event("task.completed.v1", key="task_id", retention="warm", idempotency="required")
class TaskCompleted(Payload):
    """The room is done."""

    task_id: str
    property_id: str
    room_id: str
    staff_id: str


@housekeeping.event("room.status_changed.v1", key="room_id", retention="warm", idempotency="required")
class RoomStatusChanged(Payload):
    """A room is in another state."""

    room_id: str
    property_id: str
    before: RoomStatus
    after: RoomStatus
