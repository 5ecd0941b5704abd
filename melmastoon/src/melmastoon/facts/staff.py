"""staff-service: who is at work, and where."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.house import service
from posthouse import Payload

staff = service("staff", owner="people")

Duty = Literal["housekeeping", "front_desk", "maintenance"]


@staff.event("shift.opened.v1", key="staff_id", retention="warm", idempotency="required")
class ShiftOpened(Payload):
    """Somebody clocked in."""

    staff_id: str
    shift_id: str
    property_id: str
    duty: Duty


@staff.event("shift.closed.v1", key="staff_id", retention="warm", idempotency="required")
class ShiftClosed(Payload):
    """Somebody clocked out."""

    staff_id: str
    shift_id: str
    property_id: str
    duty: Duty
    minutes: int
