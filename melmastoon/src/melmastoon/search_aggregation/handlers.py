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
from melmastoon.facts.tenant import TenantSuspended
from melmastoon.search_aggregation.listings import refresh
from melmastoon.search_aggregation.tables import listings, write
from melmastoon.tables import typed
from posthouse import Event, Model

HOUSE = """INSERT INTO {house} (tenant, property_id, name, city, country, currency) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
AMENITIES = """INSERT INTO {amenities} (tenant, property_id, amenities) VALUES (?, ?, ?)
    ON CONFLICT (tenant, property_id) DO UPDATE SET amenities = excluded.amenities"""
ROOM = """INSERT INTO {room} (tenant, room_id, property_id, room_type, archived) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant, room_id) DO UPDATE SET archived = excluded.archived"""
RATE = """INSERT INTO {rate} (tenant, rate_plan_id, property_id, room_type, night_cents, archived)
    VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT (tenant, rate_plan_id)
    DO UPDATE SET night_cents = excluded.night_cents, archived = 0"""
END_RATE = "UPDATE {rate} SET archived = 1 WHERE tenant = ? AND rate_plan_id = ?"
SOLD = """INSERT INTO {night} (tenant, booking_id, night, room_id, property_id) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
FREED = "DELETE FROM {night} WHERE tenant = ? AND booking_id = ?"
CLOSED = "INSERT INTO {closed} (tenant, property_id, room_type, night) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
OPENED = "DELETE FROM {closed} WHERE tenant = ? AND property_id = ? AND room_type = ? AND night = ?"
TENANT = "INSERT INTO {tenant} (tenant, suspended) VALUES (?, 0) ON CONFLICT DO NOTHING"
LOCK_TENANT = "SELECT 1 FROM {tenant} WHERE tenant = ? FOR UPDATE"
SUSPEND = "UPDATE {tenant} SET suspended = 1 WHERE tenant = ?"
HOUSES = "SELECT property_id FROM {house} WHERE tenant = ? ORDER BY property_id"


@listings.on(PropertyCreated)
async def note_house(event: Event[PropertyCreated], model: Model) -> None:
    house = event.data
    await _lock_tenant(model, event.tenant)
    await write(model, HOUSE, event.tenant, house.property_id, house.name, house.city, house.country, house.currency)
    await refresh(model, event, house.property_id)


@listings.on(AmenityChanged)
async def note_amenities(event: Event[AmenityChanged], model: Model) -> None:
    await write(model, AMENITIES, event.tenant, event.data.property_id, ",".join(event.data.amenities))
    await refresh(model, event, event.data.property_id)


@listings.on(RoomAdded, RoomArchived)
async def note_room(event: Event[RoomAdded | RoomArchived], model: Model) -> None:
    room, archived = event.data, isinstance(event.data, RoomArchived)
    await write(model, ROOM, event.tenant, room.room_id, room.property_id, room.room_type, int(archived))
    await refresh(model, event, room.property_id)


@listings.on(RatePlanPublished)
async def note_rate(event: Event[RatePlanPublished], model: Model) -> None:
    rate = event.data
    await write(model, RATE, event.tenant, rate.rate_plan_id, rate.property_id, rate.room_type, rate.night_cents)
    await refresh(model, event, rate.property_id)


@listings.on(RatePlanArchived)
async def end_rate(event: Event[RatePlanArchived], model: Model) -> None:
    await write(model, END_RATE, event.tenant, event.data.rate_plan_id)
    await refresh(model, event, event.data.property_id)


@listings.on(AllocationCommitted, AllocationReallocated)
async def note_nights(event: Event[AllocationCommitted | AllocationReallocated], model: Model) -> None:
    sold = event.data
    await write(model, FREED, event.tenant, sold.booking_id)
    for night in nights_of(sold.check_in, sold.check_out):
        await write(model, SOLD, event.tenant, sold.booking_id, night, sold.room_id, sold.property_id)
    await refresh(model, event, sold.property_id)


@listings.on(AllocationReleased)
async def free_nights(event: Event[AllocationReleased], model: Model) -> None:
    await write(model, FREED, event.tenant, event.data.booking_id)
    await refresh(model, event, event.data.property_id)


@listings.on(StopSellActivated, StopSellCleared)
async def note_stop_sell(event: Event[StopSellActivated | StopSellCleared], model: Model) -> None:
    closed = event.data
    statement = CLOSED if isinstance(closed, StopSellActivated) else OPENED
    await write(model, statement, event.tenant, closed.property_id, closed.room_type, closed.night.isoformat())
    await refresh(model, event, closed.property_id)


@listings.on(TenantSuspended)
async def hide_tenant(event: Event[TenantSuspended], model: Model) -> None:
    """All houses of the tenant; those that come later are not shown either."""
    await _lock_tenant(model, event.tenant)
    await write(model, SUSPEND, event.tenant)
    for (property_id,) in typed(await write(model, HOUSES, event.tenant), tuple[str]):
        await refresh(model, event, property_id)


async def _lock_tenant(model: Model, tenant: str) -> None:
    """A house that is added while its tenant is suspended is seen by one of the two."""
    await write(model, TENANT, tenant)
    await write(model, LOCK_TENANT, tenant)


def nights_of(check_in: date, check_out: date) -> list[str]:
    """The nights of a stay; the day of departure is none."""
    return [(check_in + timedelta(days=day)).isoformat() for day in range((check_out - check_in).days)]
