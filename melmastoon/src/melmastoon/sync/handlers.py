"""What sync-service does about facts: those that a front desk works with become deltas in the tenant's log."""

from __future__ import annotations

import msgspec

from melmastoon.facts.billing import ChargePosted, FolioClosed, FolioOpened, RefundPosted
from melmastoon.facts.house import Guest
from melmastoon.facts.housekeeping import RoomStatusChanged
from melmastoon.facts.iam import DeviceBound, DeviceUnbound, SubjectErased
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
from posthouse import ErasureReceipt, Event, Tx
from posthouse.trust.secrets import ERASED

FIRST_SIGHT = "INSERT INTO sync_head (tenant, position) VALUES (?, 0) ON CONFLICT DO NOTHING"
NEXT = "UPDATE sync_head SET position = position + 1 WHERE tenant = ? RETURNING position"
LOG = """INSERT INTO sync_delta (tenant, position, thing, thing_id, booking_id, property_id, guest_id, fact, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
ABOUT_GUEST = "SELECT position, body FROM sync_delta WHERE tenant = ? AND guest_id = ?"
REWRITE = "UPDATE sync_delta SET body = ? WHERE tenant = ? AND position = ?"
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


@sync.on(SubjectErased)
async def forget_guest(event: Event[ErasureReceipt], tx: Tx) -> None:
    """The log forgets who it was, and every desktop of the tenant is told to do so too."""
    about = typed(await run(tx, ABOUT_GUEST, tx.tenant, event.data.subject), tuple[int, str])
    for position, body in about:
        await run(tx, REWRITE, _without_guest(body), tx.tenant, position)
    await _log(tx, event, "guest", event.data.subject)


def _without_guest(body: str) -> str:
    said = msgspec.json.decode(body)
    said["guest"] = msgspec.convert(said["guest"], Guest).erased()
    if said.get("note"):
        said["note"] = ERASED
    return msgspec.json.encode(said).decode()


async def _log(
    tx: Tx, event: Event[object], thing: str, thing_id: str, *, booking_id: str = "", property_id: str = ""
) -> None:
    """Positions have no gaps, and appear in their order: the row of the head is held until the commit."""
    await run(tx, FIRST_SIGHT, tx.tenant)
    [(position,)] = typed(await run(tx, NEXT, tx.tenant), tuple[int])
    body = msgspec.json.encode(event.data).decode()
    guest: Guest | None = getattr(event.data, "guest", None)
    guest_id = "" if guest is None else guest.guest_id
    await run(tx, LOG, tx.tenant, position, thing, thing_id, booking_id, property_id, guest_id, event.type, body)
