"""What property-service can be asked to do. Each answers whether anything changed: what was done before is not done
again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from melmastoon.facts.property import AmenityChanged, PropertyCreated, RoomAdded, RoomArchived, RoomTypePublished
from melmastoon.tables import run, typed
from posthouse import Reject, Tx

NEW_HOUSE = """INSERT INTO property_house (tenant, property_id, name, city, country, currency, amenities, revision)
    VALUES (?, ?, ?, ?, ?, ?, '', 0) ON CONFLICT DO NOTHING"""
HOUSE = "SELECT amenities, revision FROM property_house WHERE tenant = ? AND property_id = ? FOR UPDATE"
OFFER = "UPDATE property_house SET amenities = ?, revision = ? WHERE tenant = ? AND property_id = ?"
NEW_ROOM = """INSERT INTO property_room (tenant, room_id, property_id, room_type, number, archived)
    VALUES (?, ?, ?, ?, ?, '') ON CONFLICT DO NOTHING"""
ROOM = "SELECT property_id, room_type, number FROM property_room WHERE tenant = ? AND room_id = ?"
ARCHIVE = """UPDATE property_room SET archived = ? WHERE tenant = ? AND room_id = ? AND archived = ''
    RETURNING property_id, room_type"""
ROOM_TYPE = """SELECT beds, most_guests, revision FROM property_room_type
    WHERE tenant = ? AND property_id = ? AND room_type = ?"""
PUBLISH_TYPE = """INSERT INTO property_room_type (tenant, property_id, room_type, beds, most_guests, revision)
    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, property_id, room_type)
    DO UPDATE SET beds = excluded.beds, most_guests = excluded.most_guests, revision = excluded.revision"""


async def create_property(tx: Tx, property_id: str, *, name: str, city: str, country: str, currency: str) -> bool:
    """Bring a house onto the platform."""
    if not (await run(tx, NEW_HOUSE, tx.tenant, property_id, name, city, country, currency)).rowcount:
        return False
    created = PropertyCreated(property_id=property_id, name=name, city=city, country=country, currency=currency)
    tx.publish(created, idempotency_key=f"property:create:{property_id}")
    return True


async def publish_room_type(tx: Tx, property_id: str, room_type: str, *, beds: int, most_guests: int) -> bool:
    """Say what a guest gets who books this type; again when that changes."""
    await _house(tx, property_id)
    found = typed(await run(tx, ROOM_TYPE, tx.tenant, property_id, room_type), tuple[int, int, int])
    if found and found[0][:2] == (beds, most_guests):
        return False
    revision = found[0][2] + 1 if found else 1
    await run(tx, PUBLISH_TYPE, tx.tenant, property_id, room_type, beds, most_guests, revision)
    published = RoomTypePublished(
        room_type_id=f"{property_id}/{room_type}",
        property_id=property_id,
        room_type=room_type,
        beds=beds,
        most_guests=most_guests,
        revision=revision,
    )
    tx.publish(published, idempotency_key=f"property:room-type:{property_id}/{room_type}:{revision}")
    return True


async def add_room(tx: Tx, room_id: str, *, property_id: str, room_type: str, number: str) -> bool:
    """Add a room of a published type."""
    await _house(tx, property_id)
    if not await run(tx, ROOM_TYPE, tx.tenant, property_id, room_type):
        raise Reject(f"{property_id} has no room type {room_type}: publish it first")
    if not (await run(tx, NEW_ROOM, tx.tenant, room_id, property_id, room_type, number)).rowcount:
        if typed(await run(tx, ROOM, tx.tenant, room_id), tuple[str, str, str]) == [(property_id, room_type, number)]:
            return False
        raise Reject(f"{room_id} or the number {number} is taken in {property_id}")
    added = RoomAdded(room_id=room_id, property_id=property_id, room_type=room_type, number=number)
    tx.publish(added, idempotency_key=f"property:room:{room_id}")
    return True


async def archive_room(tx: Tx, room_id: str, *, reason: Literal["closed", "renovation", "merged"]) -> bool:
    """Sell a room no more."""
    ended = typed(await run(tx, ARCHIVE, reason, tx.tenant, room_id), tuple[str, str])
    for property_id, room_type in ended:
        archived = RoomArchived(room_id=room_id, property_id=property_id, room_type=room_type, reason=reason)
        tx.publish(archived, idempotency_key=f"property:archive:{room_id}")
    return bool(ended)


async def change_amenities(tx: Tx, property_id: str, amenities: Iterable[str]) -> bool:
    """Say what a house offers beside its rooms: the whole list."""
    known, revision = await _house(tx, property_id)
    offered = tuple(sorted(set(amenities)))
    if offered == known:
        return False
    await run(tx, OFFER, ",".join(offered), revision + 1, tx.tenant, property_id)
    changed = AmenityChanged(property_id=property_id, amenities=offered, revision=revision + 1)
    tx.publish(changed, idempotency_key=f"property:amenities:{property_id}:{revision + 1}")
    return True


async def _house(tx: Tx, property_id: str) -> tuple[tuple[str, ...], int]:
    """What it offers, and in which revision; locked, so that changes of one house come one after the other."""
    found = typed(await run(tx, HOUSE, tx.tenant, property_id), tuple[str, int])
    if not found:
        raise Reject(f"there is no property {property_id} in this tenant: create it first")
    amenities, revision = found[0]
    return tuple(filter(None, amenities.split(","))), revision
