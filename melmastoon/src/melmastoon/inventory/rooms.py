"""What there is to sell, as the property says. A booking may be heard of before the first room of its type: it waits."""

from __future__ import annotations

from melmastoon.facts.inventory import AllocationCommitted, OversellBlocked, inventory
from melmastoon.facts.property import RoomAdded, RoomArchived
from melmastoon.inventory.handlers import allocate_waiting, hold_type
from melmastoon.tables import run
from posthouse import Event, Tx

ADD = """
INSERT INTO rooms (tenant, room_id, property_id, room_type) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, room_id) DO UPDATE SET property_id = excluded.property_id, room_type = excluded.room_type, archived = 0"""
ARCHIVE = "UPDATE rooms SET archived = 1 WHERE tenant = ? AND room_id = ?"
WAITING = """
SELECT booking_id FROM allocations WHERE tenant = ? AND property_id = ? AND room_type = ? AND state = 'waiting'
ORDER BY booking_id"""


@inventory.on(RoomAdded, publishes=[AllocationCommitted, OversellBlocked])
async def added(event: Event[RoomAdded], tx: Tx) -> None:
    """One more room; bookings that came before it, and whose hold lives, get theirs."""
    room = event.data
    await hold_type(tx, room.property_id, room.room_type)
    await run(tx, ADD, tx.tenant, room.room_id, room.property_id, room.room_type)
    for (booking_id,) in await run(tx, WAITING, tx.tenant, room.property_id, room.room_type):
        await allocate_waiting(tx, str(booking_id))


@inventory.on(RoomArchived)
async def archived(event: Event[RoomArchived], tx: Tx) -> None:
    """No new booking gets the room; those that have it keep it."""
    await run(tx, ARCHIVE, tx.tenant, event.data.room_id)
