"""What guests ask: houses with a room that is free for all nights of a stay, whoever they belong to."""

from __future__ import annotations

from datetime import date

import msgspec

from melmastoon.search_aggregation.handlers import nights_of
from melmastoon.search_aggregation.tables import read
from melmastoon.tables import typed
from posthouse import Reject, Tx

LONGEST = 90
"""Nights."""

FREE = """SELECT l.tenant, l.property_id, l.name, l.city, l.country, l.amenities, l.from_cents, l.currency
    FROM {listing} l WHERE l.gone = '' AND l.city = ? AND EXISTS (
        SELECT 1 FROM {room} r WHERE r.tenant = l.tenant AND r.property_id = l.property_id AND r.archived = 0
        AND NOT EXISTS (SELECT 1 FROM {night} n WHERE n.tenant = r.tenant AND n.room_id = r.room_id
            AND n.night >= ? AND n.night <= ?)
        AND NOT EXISTS (SELECT 1 FROM {closed} c WHERE c.tenant = r.tenant AND c.property_id = r.property_id
            AND c.room_type = r.room_type AND c.night >= ? AND c.night <= ?))
    ORDER BY l.from_cents, l.tenant, l.property_id LIMIT ?"""


class Offer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One house that a guest finds."""

    tenant: str
    property_id: str
    name: str
    city: str
    country: str
    amenities: str
    from_cents: int
    currency: str


async def find(tx: Tx, city: str, check_in: date, check_out: date, *, most: int = 50) -> list[Offer]:
    """The cheapest first. What is found was true a moment ago: whether it still is, inventory says when it is booked."""
    nights = nights_of(check_in, check_out)
    if not 0 < len(nights) <= LONGEST:
        raise Reject(f"a stay has 1 to {LONGEST} nights, not {len(nights)}")
    window = (nights[0], nights[-1])
    return typed(await read(tx, FREE, city, *window, *window, most), Offer)
