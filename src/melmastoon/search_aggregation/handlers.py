"""What search-aggregation-service does about facts: it notes what a listing needs, and makes the listing anew."""

from __future__ import annotations

from datetime import date, timedelta

from melmastoon.facts.inventory import (
    AllocationCommitted,
    AllocationReallocated,
    AllocationReleased,
    StopSellActivated,
    StopSellCleared,
)
from melmastoon.facts.pricing import RatePlanArchived, RatePlanPublished
from melmastoon.facts.property import AmenityChanged, PropertyCreated, RoomAdded, RoomArchived
from melmastoon.facts.search_aggregation import ListingEvicted, ListingIndexed, search_aggregation
from melmastoon.facts.tenant import TenantSuspended
from melmastoon.search_aggregation.listings import refresh
from melmastoon.tables import run, typed
from posthouse import Event, Tx

HOUSE = """INSERT INTO search_house (tenant, property_id, name, city, country, currency) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
AMENITIES = """INSERT INTO search_amenities (tenant, property_id, amenities) VALUES (?, ?, ?)
    ON CONFLICT (tenant, property_id) DO UPDATE SET amenities = excluded.amenities"""
ROOM = """INSERT INTO search_room (tenant, room_id, property_id, room_type, archived) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant, room_id) DO UPDATE SET archived = excluded.archived"""
RATE = """INSERT INTO search_rate (tenant, rate_plan_id, property_id, room_type, night_cents, archived)
    VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT (tenant, rate_plan_id)
    DO UPDATE SET night_cents = excluded.night_cents, archived = 0"""
END_RATE = "UPDATE search_rate SET archived = 1 WHERE tenant = ? AND rate_plan_id = ?"
SOLD = """INSERT INTO search_night (tenant, booking_id, night, room_id, property_id) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
FREED = "DELETE FROM search_night WHERE tenant = ? AND booking_id = ?"
CLOSED = "INSERT INTO search_closed (tenant, property_id, room_type, night) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
OPENED = "DELETE FROM search_closed WHERE tenant = ? AND property_id = ? AND room_type = ? AND night = ?"
TENANT = "INSERT INTO search_tenant (tenant, suspended) VALUES (?, 0) ON CONFLICT DO NOTHING"
LOCK_TENANT = "SELECT 1 FROM search_tenant WHERE tenant = ? FOR UPDATE"
SUSPEND = "UPDATE search_tenant SET suspended = 1 WHERE tenant = ?"
HOUSES = "SELECT property_id FROM search_house WHERE tenant = ? ORDER BY property_id"

Listing = ListingIndexed | ListingEvicted | None


@search_aggregation.on(PropertyCreated)
async def note_house(event: Event[PropertyCreated], tx: Tx) -> Listing:
    house = event.data
    await _lock_tenant(tx)
    await run(tx, HOUSE, tx.tenant, house.property_id, house.name, house.city, house.country, house.currency)
    return await refresh(tx, house.property_id)


@search_aggregation.on(AmenityChanged)
async def note_amenities(event: Event[AmenityChanged], tx: Tx) -> Listing:
    await run(tx, AMENITIES, tx.tenant, event.data.property_id, ",".join(event.data.amenities))
    return await refresh(tx, event.data.property_id)


@search_aggregation.on(RoomAdded, RoomArchived)
async def note_room(event: Event[RoomAdded | RoomArchived], tx: Tx) -> Listing:
    room, archived = event.data, isinstance(event.data, RoomArchived)
    await run(tx, ROOM, tx.tenant, room.room_id, room.property_id, room.room_type, int(archived))
    return await refresh(tx, room.property_id)


@search_aggregation.on(RatePlanPublished)
async def note_rate(event: Event[RatePlanPublished], tx: Tx) -> Listing:
    rate = event.data
    await run(tx, RATE, tx.tenant, rate.rate_plan_id, rate.property_id, rate.room_type, rate.night_cents)
    return await refresh(tx, rate.property_id)


@search_aggregation.on(RatePlanArchived)
async def end_rate(event: Event[RatePlanArchived], tx: Tx) -> Listing:
    await run(tx, END_RATE, tx.tenant, event.data.rate_plan_id)
    return await refresh(tx, event.data.property_id)


@search_aggregation.on(AllocationCommitted, AllocationReallocated)
async def note_nights(event: Event[AllocationCommitted | AllocationReallocated], tx: Tx) -> Listing:
    sold = event.data
    await run(tx, FREED, tx.tenant, sold.booking_id)
    for night in nights_of(sold.check_in, sold.check_out):
        await run(tx, SOLD, tx.tenant, sold.booking_id, night, sold.room_id, sold.property_id)
    return await refresh(tx, sold.property_id)


@search_aggregation.on(AllocationReleased)
async def free_nights(event: Event[AllocationReleased], tx: Tx) -> Listing:
    await run(tx, FREED, tx.tenant, event.data.booking_id)
    return await refresh(tx, event.data.property_id)


@search_aggregation.on(StopSellActivated, StopSellCleared)
async def note_stop_sell(event: Event[StopSellActivated | StopSellCleared], tx: Tx) -> Listing:
    closed = event.data
    statement = CLOSED if isinstance(closed, StopSellActivated) else OPENED
    await run(tx, statement, tx.tenant, closed.property_id, closed.room_type, closed.night.isoformat())
    return await refresh(tx, closed.property_id)


@search_aggregation.on(TenantSuspended)
async def hide_tenant(event: Event[TenantSuspended], tx: Tx) -> list[ListingIndexed | ListingEvicted]:
    """All houses of the tenant; those that come later are not shown either."""
    await _lock_tenant(tx)
    await run(tx, SUSPEND, tx.tenant)
    houses = typed(await run(tx, HOUSES, tx.tenant), tuple[str])
    changed = [await refresh(tx, property_id) for (property_id,) in houses]
    return [listing for listing in changed if listing is not None]


async def _lock_tenant(tx: Tx) -> None:
    """A house that is added while its tenant is suspended is seen by one of the two."""
    await run(tx, TENANT, tx.tenant)
    await run(tx, LOCK_TENANT, tx.tenant)


def nights_of(check_in: date, check_out: date) -> list[str]:
    """The nights of a stay; the day of departure is none."""
    return [(check_in + timedelta(days=day)).isoformat() for day in range((check_out - check_in).days)]
