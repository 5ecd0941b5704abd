"""What sync-service does about facts: those that a front desk works with become deltas in the tenant's log."""

from __future__ import annotations

import msgspec

from melmastoon.facts.billing import ChargePosted, FolioClosed, FolioOpened, RefundPosted
from melmastoon.facts.housekeeping import RoomStatusChanged
from melmastoon.facts.iam import DeviceBound, DeviceUnbound
from melmastoon.facts.reservation import (
    BookingCancelled,
    BookingConfirmed,
    BookingDatesChanged,
    BookingHeld,
    BookingModified,
    CheckedIn,
    CheckedOut,
    CheckInStarted,
    CheckOutStarted,
    NoShow,
)
from melmastoon.facts.sync import sync
from melmastoon.tables import run, typed
from posthouse import Event, Tx

FIRST_SIGHT = "INSERT INTO sync_head (tenant, position) VALUES (?, 0) ON CONFLICT DO NOTHING"
NEXT = "UPDATE sync_head SET position = position + 1 WHERE tenant = ? RETURNING position"
LOG = """INSERT INTO sync_delta (tenant, position, thing, thing_id, booking_id, property_id, fact, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
PLACE = "INSERT INTO sync_booking (tenant, booking_id, property_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
BIND = """INSERT INTO sync_device (tenant, device_id, property_id, reached, bound) VALUES (?, ?, ?, 0, 1)
    ON CONFLICT DO NOTHING"""
UNBIND = "UPDATE sync_device SET bound = 0 WHERE tenant = ? AND device_id = ?"

BOOKING = (
    BookingHeld,
    BookingConfirmed,
    BookingCancelled,
    BookingModified,
    BookingDatesChanged,
    CheckInStarted,
    CheckedIn,
    CheckOutStarted,
    CheckedOut,
    NoShow,
)
AboutBooking = (
    BookingHeld
    | BookingConfirmed
    | BookingCancelled
    | BookingModified
    | BookingDatesChanged
    | CheckInStarted
    | CheckedIn
    | CheckOutStarted
    | CheckedOut
    | NoShow
)


@sync.on(*BOOKING)
async def log_booking(event: Event[AboutBooking], tx: Tx) -> None:
    booking_id = event.data.booking_id
    if isinstance(event.data, BookingHeld):
        await run(tx, PLACE, tx.tenant, booking_id, event.data.property_id)
    await _log(tx, event, "booking", booking_id, booking_id=booking_id)


@sync.on(FolioOpened, ChargePosted, RefundPosted, FolioClosed)
async def log_folio(event: Event[FolioOpened | ChargePosted | RefundPosted | FolioClosed], tx: Tx) -> None:
    await _log(tx, event, "folio", event.data.folio_id, booking_id=event.data.booking_id)


@sync.on(RoomStatusChanged)
async def log_room(event: Event[RoomStatusChanged], tx: Tx) -> None:
    await _log(tx, event, "room", event.data.room_id, property_id=event.data.property_id)


@sync.on(DeviceBound)
async def bind(event: Event[DeviceBound], tx: Tx) -> None:
    await run(tx, BIND, tx.tenant, event.data.device_id, event.data.property_id)


@sync.on(DeviceUnbound)
async def unbind(event: Event[DeviceUnbound], tx: Tx) -> None:
    await run(tx, UNBIND, tx.tenant, event.data.device_id)


async def _log(
    tx: Tx, event: Event[object], thing: str, thing_id: str, *, booking_id: str = "", property_id: str = ""
) -> None:
    """Positions have no gaps, and appear in their order: the row of the head is held until the commit."""
    await run(tx, FIRST_SIGHT, tx.tenant)
    [(position,)] = typed(await run(tx, NEXT, tx.tenant), tuple[int])
    body = msgspec.json.encode(event.data).decode()
    await run(tx, LOG, tx.tenant, position, thing, thing_id, booking_id, property_id, event.type, body)
