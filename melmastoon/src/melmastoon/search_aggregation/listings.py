"""Listings: one per house, made anew from what is known about it whenever that changes. Whichever fact comes first, the last
one completes it."""

from __future__ import annotations

from typing import Literal

import msgspec

from melmastoon.facts.search_aggregation import ListingEvicted, ListingIndexed
from melmastoon.search_aggregation.tables import write
from posthouse import Event, Model

FIRST_SIGHT = """INSERT INTO {listing} (tenant, property_id, name, city, country, amenities, rooms, nights_sold,
    nights_closed, from_cents, currency, revision, gone) VALUES (?, ?, '', '', '', '', 0, 0, 0, 0, '', 0, 'new')
    ON CONFLICT DO NOTHING"""
LISTED = """SELECT name, city, country, amenities, rooms, nights_sold, nights_closed, from_cents, currency, revision, gone
    FROM {listing} WHERE tenant = ? AND property_id = ? FOR UPDATE"""
KNOWN = """SELECT h.name, h.city, h.country, COALESCE(a.amenities, ''),
    (SELECT COUNT(*) FROM {room} r WHERE r.tenant = h.tenant AND r.property_id = h.property_id AND r.archived = 0),
    (SELECT COUNT(*) FROM {night} n WHERE n.tenant = h.tenant AND n.property_id = h.property_id),
    (SELECT COUNT(*) FROM {closed} c WHERE c.tenant = h.tenant AND c.property_id = h.property_id),
    (SELECT COALESCE(MIN(p.night_cents), -1) FROM {rate} p
        WHERE p.tenant = h.tenant AND p.property_id = h.property_id AND p.archived = 0),
    h.currency, (SELECT COUNT(*) FROM {tenant} t WHERE t.tenant = h.tenant AND t.suspended = 1)
    FROM {house} h LEFT JOIN {amenities} a ON a.tenant = h.tenant AND a.property_id = h.property_id
    WHERE h.tenant = ? AND h.property_id = ?"""
SHOW = """UPDATE {listing} SET name = ?, city = ?, country = ?, amenities = ?, rooms = ?, nights_sold = ?,
    nights_closed = ?, from_cents = ?, currency = ?, revision = ?, gone = '' WHERE tenant = ? AND property_id = ?"""
HIDE = "UPDATE {listing} SET revision = ?, gone = ? WHERE tenant = ? AND property_id = ?"

Gone = Literal["tenant_suspended", "no_rooms", "no_rates"]


class Shown(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a guest may find of a house."""

    name: str
    city: str
    country: str
    amenities: str
    rooms: int
    nights_sold: int
    nights_closed: int
    from_cents: int
    currency: str


async def refresh(model: Model, event: Event[object], property_id: str) -> None:
    """Make the listing of a house anew, and say so when a guest would see a difference. Facts about one house are taken one
    after the other: the row of its listing is held until the commit."""
    tenant = event.tenant
    await write(model, FIRST_SIGHT, tenant, property_id)
    [(*fields, before, gone)] = await write(model, LISTED, tenant, property_id)
    known = await write(model, KNOWN, tenant, property_id)
    if not known:
        return
    shown, suspended = msgspec.convert(known[0][:-1], Shown), bool(known[0][-1])
    revision = _next_revision(msgspec.convert(before, int), event)
    if (why := why_gone(shown, suspended=suspended)) is not None:
        if not gone:
            await write(model, HIDE, revision, why, tenant, property_id)
            model.publish(ListingEvicted(property_id=property_id, reason=why, revision=revision))
    elif gone or msgspec.convert(fields, Shown) != shown:
        await write(model, SHOW, *msgspec.structs.astuple(shown), revision, tenant, property_id)
        model.publish(_indexed(property_id, shown, revision))


def _next_revision(before: int, event: Event[object]) -> int:
    """Higher than the one before, and no lower than the time of the fact in milliseconds: so that a model that was built anew,
    with fewer steps, goes on where the old one was."""
    return max(before + 1, int(event.occurred_at.timestamp() * 1000))


def why_gone(shown: Shown, *, suspended: bool) -> Gone | None:
    """Why a house is not found; None when it is."""
    if suspended:
        return "tenant_suspended"
    if not shown.rooms:
        return "no_rooms"
    return "no_rates" if shown.from_cents < 0 else None


def _indexed(property_id: str, shown: Shown, revision: int) -> ListingIndexed:
    return ListingIndexed(
        property_id=property_id,
        name=shown.name,
        city=shown.city,
        country=shown.country,
        amenities=tuple(filter(None, shown.amenities.split(","))),
        rooms=shown.rooms,
        nights_sold=shown.nights_sold,
        nights_closed=shown.nights_closed,
        from_cents=shown.from_cents,
        currency=shown.currency,
        revision=revision,
    )
