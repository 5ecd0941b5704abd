"""property-service: the houses, their rooms and what they offer."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from melmastoon.facts.house import service
from posthouse import Payload

property = service("property", owner="properties")

Amenities = Annotated[tuple[str, ...], msgspec.Meta(max_length=64)]


@property.event("property.created.v1", key="property_id", retention="warm", idempotency="required")
class PropertyCreated(Payload):
    """A house is on the platform."""

    property_id: str
    name: str
    city: str
    country: str
    currency: str


@property.event("room.added.v1", key="room_id", retention="warm", idempotency="required")
class RoomAdded(Payload):
    """A room can be sold."""

    room_id: str
    property_id: str
    room_type: str
    number: str


@property.event("room.archived.v1", key="room_id", retention="warm", idempotency="required")
class RoomArchived(Payload):
    """A room is not sold any more; stays that are booked are kept."""

    room_id: str
    property_id: str
    room_type: str
    reason: Literal["closed", "renovation", "merged"]


@property.event("room_type.published.v1", key="room_type_id", retention="warm", idempotency="required")
class RoomTypePublished(Payload):
    """What a guest gets who books this type. `room_type_id` is unique in the tenant, `room_type` in the house."""

    room_type_id: str
    property_id: str
    room_type: str
    beds: int
    most_guests: int
    revision: int


@property.event("amenity.changed.v1", key="property_id", retention="warm", idempotency="required")
class AmenityChanged(Payload):
    """What a house offers beside its rooms; the whole list, in order."""

    property_id: str
    amenities: Amenities
    revision: int
