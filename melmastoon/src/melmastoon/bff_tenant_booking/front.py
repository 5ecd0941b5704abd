"""Front: the requests that a booking site and a hotelier's back office make, each composed of commands of the services that
own what they change. Those come in through a port: the front knows no other service.

Every request has an id that the client made. What a request makes is named after it or by the client itself, so a request that
is sent again finds everything done and changes nothing; one that broke off is sent again and goes on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Literal, Protocol

import msgspec

from melmastoon.facts.house import Guest, Rail
from posthouse import Reject


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: the tenant, and the id of the request, which everything that follows from it carries as its correlation."""

    tenant: str
    id: str


class RoomType(msgspec.Struct, frozen=True, kw_only=True):
    """Rooms of one kind: their numbers, and what a night costs."""

    name: str
    beds: int
    most_guests: int
    numbers: Sequence[str]
    night_cents: int


class NewProperty(msgspec.Struct, frozen=True, kw_only=True):
    """A house as its owner describes it."""

    property_id: str
    name: str
    city: str
    country: str
    currency: str
    amenities: Sequence[str] = ()
    room_types: Sequence[RoomType] = ()


class NewTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A hotelier who joins, with everything that is to be sold."""

    name: str
    country: str
    plan: Literal["starter", "growth", "chain"] = "starter"
    properties: Sequence[NewProperty] = ()


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a guest wants when they press Pay."""

    property_id: str
    room_type: str
    check_in: date
    check_out: date
    guest: Guest
    rail: Rail
    amount_cents: int
    currency: str


class Tenants(Protocol):
    """tenant-service, as the front needs it."""

    async def create_tenant(self, request: Request, tenant: NewTenant) -> None: ...


class Properties(Protocol):
    """property-service, as the front needs it."""

    async def create_property(self, request: Request, house: NewProperty) -> None: ...

    async def publish_room_type(self, request: Request, property_id: str, room_type: RoomType) -> None: ...

    async def add_room(self, request: Request, room_id: str, property_id: str, room_type: str, number: str) -> None: ...

    async def change_amenities(self, request: Request, property_id: str, amenities: Sequence[str]) -> None: ...


class Rates(Protocol):
    """pricing-service, as the front needs it."""

    async def publish_rate(
        self, request: Request, rate_plan_id: str, house: NewProperty, room_type: RoomType
    ) -> None: ...


class Bookings(Protocol):
    """reservation-service, as the front needs it."""

    async def hold(self, request: Request, booking_id: str, wish: Wish) -> None: ...


async def open_tenant(
    request: Request, tenant: NewTenant, *, tenants: Tenants, properties: Properties, rates: Rates
) -> None:
    """A hotelier joins with houses, rooms and rates. Prices come last: nothing is found before everything is there."""
    await tenants.create_tenant(request, tenant)
    for house in tenant.properties:
        await properties.create_property(request, house)
        await properties.change_amenities(request, house.property_id, house.amenities)
        for room_type in house.room_types:
            await properties.publish_room_type(request, house.property_id, room_type)
            for number in room_type.numbers:
                room_id = f"{house.property_id}-{number}"
                await properties.add_room(request, room_id, house.property_id, room_type.name, number)
    for house in tenant.properties:
        for room_type in house.room_types:
            await rates.publish_rate(request, f"{house.property_id}-{room_type.name}-bar", house, room_type)


async def hold_booking(request: Request, wish: Wish, *, bookings: Bookings) -> str:
    """A guest presses Pay. Returns the id of the booking, which is the same when the request is sent again."""
    if wish.check_out <= wish.check_in:
        raise Reject(f"a stay ends after it begins: {wish.check_in} to {wish.check_out}")
    if wish.amount_cents <= 0:
        raise Reject(f"a stay costs something, not {wish.amount_cents} cents")
    booking_id = f"bk-{request.id}"
    await bookings.hold(request, booking_id, wish)
    return booking_id
