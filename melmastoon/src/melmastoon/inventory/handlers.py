"""What bookings ask of inventory, and what it answers."""

from __future__ import annotations

from msgspec.structs import replace

from melmastoon.facts.inventory import (
    AllocationCommitted,
    AllocationReallocated,
    AllocationReleased,
    OversellBlocked,
    ReleaseReason,
    inventory,
)
from melmastoon.facts.reservation import BookingCancelled, BookingDatesChanged, BookingHeld, CheckedOut, NoShow
from melmastoon.inventory.allocation import ADD, Allocation, read, release, save, take_room
from melmastoon.pace import seconds
from melmastoon.tables import run
from posthouse import Event, Tx

HOLD_LIVES = 600.0
"""Seconds of the house for which a hold waits for a room."""

KNOW_TYPE = "INSERT INTO room_types (tenant, property_id, room_type) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
HOLD_TYPE = "SELECT 1 FROM room_types WHERE tenant = ? AND property_id = ? AND room_type = ? FOR UPDATE"
KNOWN = "SELECT 1 FROM rooms WHERE tenant = ? AND property_id = ? AND room_type = ? LIMIT 1"


@inventory.on(BookingHeld, publishes=[AllocationCommitted, AllocationReleased, OversellBlocked])
async def held(event: Event[BookingHeld], tx: Tx) -> None:
    """Commit one room for all nights, or say that there is none. Without any room of the type, wait for the first, as long as
    a hold lives."""
    booking = event.data
    window = (booking.check_in.isoformat(), booking.check_out.isoformat())
    await run(tx, ADD, tx.tenant, booking.booking_id, booking.property_id, booking.room_type, *window)
    if not await run(tx, KNOWN, tx.tenant, booking.property_id, booking.room_type):
        await hold_type(tx, booking.property_id, booking.room_type)  # the first room may be coming at this moment
        if not await run(tx, KNOWN, tx.tenant, booking.property_id, booking.room_type):
            await _let_expire(tx, booking.booking_id)
            return
    await allocate(tx, booking.booking_id)


async def _let_expire(tx: Tx, booking_id: str) -> None:
    waiting = await read(tx, booking_id)
    if waiting is not None:
        expiry = released(waiting, "hold_expired")
        tx.publish(expiry, after=seconds(HOLD_LIVES), timer=expiry_of(booking_id))


def expiry_of(booking_id: str) -> str:
    """The timer of a hold that waits for a room."""
    return f"hold {booking_id}"


async def hold_type(tx: Tx, property_id: str, room_type: str) -> None:
    """Let nobody else who asks for it go on until this transaction ends."""
    await run(tx, KNOW_TYPE, tx.tenant, property_id, room_type)
    await run(tx, HOLD_TYPE, tx.tenant, property_id, room_type)


async def allocate_waiting(tx: Tx, booking_id: str) -> None:
    """Give a booking that waited for the first room of its type its room, unless its hold has expired meanwhile."""
    if await tx.cancel(expiry_of(booking_id)):
        await allocate(tx, booking_id)


async def allocate(tx: Tx, booking_id: str) -> None:
    """Give a booking its room, or tell it that there is none."""
    wanted = await read(tx, booking_id)
    if wanted is None or wanted.state != "waiting":
        return
    room_id = await take_room(tx, wanted)
    if room_id is None:
        await save(tx, replace(wanted, state="blocked"))
        tx.publish(_blocked(wanted), idempotency_key=f"inventory:blocked:{booking_id}")
        return
    got = replace(wanted, room_id=room_id, state="committed")
    await save(tx, got)
    tx.publish(
        AllocationCommitted(
            booking_id=booking_id,
            allocation_id=got.id,
            property_id=got.property_id,
            room_id=room_id,
            check_in=got.check_in,
            check_out=got.check_out,
        ),
        idempotency_key=f"inventory:committed:{booking_id}",
    )


@inventory.on(BookingDatesChanged)
async def dates_changed(event: Event[BookingDatesChanged], tx: Tx) -> AllocationReallocated | OversellBlocked | None:
    """Swap old nights for new ones in one step, in the same room if it is free; or leave everything as it was. A retry asks
    for what has been answered already."""
    change = event.data
    before = await read(tx, change.booking_id)
    if change.attempt > 1 or before is None or before.change_id == change.change_id:
        return None
    wanted = replace(before, check_in=change.check_in, check_out=change.check_out, change_id=change.change_id)
    room_id = await take_room(tx, wanted) if before.state == "committed" else None
    if room_id is None:
        await save(tx, replace(before, change_id=change.change_id))
        return _blocked(wanted, change.change_id)
    await save(tx, replace(wanted, room_id=room_id))
    return AllocationReallocated(
        booking_id=change.booking_id,
        change_id=change.change_id,
        allocation_id=before.id,
        property_id=before.property_id,
        old_room_id=before.room_id,
        room_id=room_id,
        check_in=change.check_in,
        check_out=change.check_out,
    )


@inventory.on(BookingCancelled)
async def cancelled(event: Event[BookingCancelled], tx: Tx) -> AllocationReleased | None:
    """Said for a hold that never got a room as well: whoever waits for the end of one hears of it."""
    expired = event.data.reason == "hold_expired"
    return await _end(tx, event.data.booking_id, "hold_expired" if expired else "cancelled")


@inventory.on(NoShow)
async def no_show(event: Event[NoShow], tx: Tx) -> AllocationReleased | None:
    return await _end(tx, event.data.booking_id, "no_show")


@inventory.on(CheckedOut)
async def checked_out(event: Event[CheckedOut], tx: Tx) -> AllocationReleased | None:
    """Nights that a guest who leaves early does not sleep here are for sale again; the others are history."""
    allocation = await read(tx, event.data.booking_id)
    if allocation is None or allocation.state != "committed":
        return None
    await save(tx, replace(allocation, state="stayed"))
    early = await release(tx, allocation.booking_id, since=tx.today.isoformat())
    return released(allocation, "checked_out_early") if early else None


async def _end(tx: Tx, booking_id: str, reason: ReleaseReason) -> AllocationReleased | None:
    """Give everything back and say so, once; a hold that expired by itself has said it."""
    allocation = await read(tx, booking_id)
    if allocation is None or allocation.state in ("released", "stayed"):
        return None
    await save(tx, replace(allocation, state="released"))
    await release(tx, booking_id)
    has_expired = allocation.state == "waiting" and not await tx.cancel(expiry_of(booking_id))
    return None if has_expired else released(allocation, reason)


def released(allocation: Allocation, reason: ReleaseReason) -> AllocationReleased:
    return AllocationReleased(
        booking_id=allocation.booking_id,
        allocation_id=allocation.id,
        property_id=allocation.property_id,
        room_id=allocation.room_id,
        reason=reason,
    )


def _blocked(wanted: Allocation, change_id: str = "") -> OversellBlocked:
    return OversellBlocked(
        booking_id=wanted.booking_id,
        change_id=change_id,
        property_id=wanted.property_id,
        room_type=wanted.room_type,
        check_in=wanted.check_in,
        check_out=wanted.check_out,
    )
