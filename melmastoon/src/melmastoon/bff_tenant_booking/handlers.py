"""What the front does about facts: the guest's page follows the booking."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.bff_tenant_booking import bff_tenant_booking
from melmastoon.facts.reservation import BookingCancelled, BookingConfirmed, BookingHeld
from melmastoon.tables import run, typed
from posthouse import Event, Tx

SHOW = """INSERT INTO bff_booking (tenant, booking_id, status) VALUES (?, ?, ?)
    ON CONFLICT (tenant, booking_id) DO UPDATE SET status = excluded.status"""
STATUS = "SELECT status FROM bff_booking WHERE tenant = ? AND booking_id = ?"

Status = Literal["unknown", "held", "confirmed", "cancelled"]


@bff_tenant_booking.on(BookingHeld, reads=["booking_id"])
async def show_held(event: Event[BookingHeld], tx: Tx) -> None:
    await run(tx, SHOW, tx.tenant, event.data.booking_id, "held")


@bff_tenant_booking.on(BookingConfirmed, reads=["booking_id"])
async def show_confirmed(event: Event[BookingConfirmed], tx: Tx) -> None:
    await run(tx, SHOW, tx.tenant, event.data.booking_id, "confirmed")


@bff_tenant_booking.on(BookingCancelled, reads=["booking_id"])
async def show_cancelled(event: Event[BookingCancelled], tx: Tx) -> None:
    await run(tx, SHOW, tx.tenant, event.data.booking_id, "cancelled")


async def status(tx: Tx, booking_id: str) -> Status:
    """What the guest's page shows."""
    found = typed(await run(tx, STATUS, tx.tenant, booking_id), tuple[Status])
    return found[0][0] if found else "unknown"
