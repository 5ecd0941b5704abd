"""search-aggregation-service: what guests find across all tenants. Nothing here says anything about a person."""

from __future__ import annotations

from typing import Literal

from melmastoon.facts.house import service
from melmastoon.facts.property import Amenities
from posthouse import Payload

search_aggregation = service("search_aggregation", owner="discovery")


@search_aggregation.event("listing.indexed.v1", key="property_id", retention="hot", idempotency="required")
class ListingIndexed(Payload):
    """A house is found with these facets. `revision` counts the changes of its listing."""

    property_id: str
    name: str
    city: str
    country: str
    amenities: Amenities
    rooms: int
    """Those that can be sold."""
    nights_sold: int
    """Of all rooms together."""
    nights_closed: int
    """Of all room types together."""
    from_cents: int
    """The lowest price of a night."""
    currency: str
    revision: int


@search_aggregation.event("listing.evicted.v1", key="property_id", retention="hot", idempotency="required")
class ListingEvicted(Payload):
    """A house is not found any more."""

    property_id: str
    reason: Literal["tenant_suspended", "no_rooms", "no_rates"]
    revision: int
