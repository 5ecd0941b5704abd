"""Listings: one per house, made anew from what is known about it whenever that changes. Whichever fact comes first, the last
one completes it."""

from __future__ import annotations

from typing import Literal

import msgspec

from melmastoon.facts.search_aggregation import ListingEvicted, ListingIndexed
from melmastoon.tables import run
from posthouse import Tx

FIRST_SIGHT = """INSERT INTO search_listing (tenant, property_id, name, city, country, amenities, rooms, nights_sold,
    nights_closed, from_cents, currency, revision, gone) VALUES (?, ?, '', '', '', '', 0, 0, 0, 0, '', 0, 'new')
    ON CONFLICT DO NOTHING"""
LISTED = """SELECT name, city, country, amenities, rooms, nights_sold, nights_closed, from_cents, currency, revision, gone
    FROM search_listing WHERE tenant = ? AND property_id = ? FOR UPDATE"""
KNOWN = """SELECT h.name, h.city, h.country, COALESCE(a.amenities, ''),
    (SELECT COUNT(*) FROM search_room r WHERE r.tenant = h.tenant AND r.property_id = h.property_id AND r.archived = 0),
    (SELECT COUNT(*) FROM search_night n WHERE n.tenant = h.tenant AND n.property_id = h.property_id),
    (SELECT COUNT(*) FROM search_closed c WHERE c.tenant = h.tenant AND c.property_id = h.property_id),
    (SELECT COALESCE(MIN(p.night_cents), -1) FROM search_rate p
        WHERE p.tenant = h.tenant AND p.property_id = h.property_id AND p.archived = 0),
    h.currency, (SELECT COUNT(*) FROM search_tenant t WHERE t.tenant = h.tenant AND t.suspended = 1)
    FROM search_house h LEFT JOIN search_amenities a ON a.tenant = h.tenant AND a.property_id = h.property_id
    WHERE h.tenant = ? AND h.property_id = ?"""
SHOW = """UPDATE search_listing SET name = ?, city = ?, country = ?, amenities = ?, rooms = ?, nights_sold = ?,
    nights_closed = ?, from_cents = ?, currency = ?, revision = ?, gone = '' WHERE tenant = ? AND property_id = ?"""
HIDE = "UPDATE search_listing SET revision = ?, gone = ? WHERE tenant = ? AND property_id = ?"

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


async def refresh(tx: Tx, property_id: str) -> ListingIndexed | ListingEvicted | None:
    """Make the listing of a house anew. None when a guest would see no difference. Facts about one house are taken one after
    the other: the row of its listing is held until the commit."""
    await run(tx, FIRST_SIGHT, tx.tenant, property_id)
    [(*fields, revision, gone)] = await run(tx, LISTED, tx.tenant, property_id)
    known = await run(tx, KNOWN, tx.tenant, property_id)
    if not known:
        return None
    shown, suspended = msgspec.convert(known[0][:-1], Shown), bool(known[0][-1])
    number = msgspec.convert(revision, int) + 1
    if (why := why_gone(shown, suspended=suspended)) is not None:
        if gone:
            return None
        await run(tx, HIDE, number, why, tx.tenant, property_id)
        return ListingEvicted(property_id=property_id, reason=why, revision=number)
    if not gone and msgspec.convert(fields, Shown) == shown:
        return None
    await run(tx, SHOW, *msgspec.structs.astuple(shown), number, tx.tenant, property_id)
    return _indexed(property_id, shown, number)


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
