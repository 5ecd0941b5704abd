"""Wiring: the front of the booking site on the services of this process. In another house this would be HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from melmastoon.bff_tenant_booking.front import NewProperty, NewTenant, Request, RoomType, Wish
from melmastoon.facts.reservation import BookingHeld
from melmastoon.pricing import commands as pricing_commands
from melmastoon.pricing import pricing
from melmastoon.property import commands as property_commands
from melmastoon.property import property
from melmastoon.reservation import commands as reservation_commands
from melmastoon.reservation import reservation
from melmastoon.tenant import commands as tenant_commands
from melmastoon.tenant import tenant as tenants
from posthouse import Actor, Service, Tx

FRONT = Actor(kind="service", id="bff_tenant_booking")


class InProcess:
    """Every port of the front at once. Each command runs in a transaction of the service that owns it."""

    def __init__(self, refundable: Callable[[Wish], int] = lambda wish: wish.amount_cents) -> None:
        self._refundable = refundable
        """What a guest who cancels gets back at most, by the policy of the house."""

    async def create_tenant(self, request: Request, tenant: NewTenant) -> None:
        async with _asking(tenants, request) as tx:
            await tenant_commands.create_tenant(tx, name=tenant.name, plan=tenant.plan, country=tenant.country)

    async def create_property(self, request: Request, house: NewProperty) -> None:
        async with _asking(property, request) as tx:
            await property_commands.create_property(
                tx,
                house.property_id,
                name=house.name,
                city=house.city,
                country=house.country,
                currency=house.currency,
            )

    async def publish_room_type(self, request: Request, property_id: str, room_type: RoomType) -> None:
        async with _asking(property, request) as tx:
            await property_commands.publish_room_type(
                tx, property_id, room_type.name, beds=room_type.beds, most_guests=room_type.most_guests
            )

    async def add_room(self, request: Request, room_id: str, property_id: str, room_type: str, number: str) -> None:
        async with _asking(property, request) as tx:
            await property_commands.add_room(tx, room_id, property_id=property_id, room_type=room_type, number=number)

    async def change_amenities(self, request: Request, property_id: str, amenities: Sequence[str]) -> None:
        async with _asking(property, request) as tx:
            await property_commands.change_amenities(tx, property_id, amenities)

    async def publish_rate(self, request: Request, rate_plan_id: str, house: NewProperty, room_type: RoomType) -> None:
        async with _asking(pricing, request) as tx:
            await pricing_commands.publish_rate_plan(
                tx,
                rate_plan_id,
                property_id=house.property_id,
                room_type=room_type.name,
                night_cents=room_type.night_cents,
                currency=house.currency,
            )

    async def hold(self, request: Request, booking_id: str, wish: Wish) -> None:
        wanted = BookingHeld(
            booking_id=booking_id,
            property_id=wish.property_id,
            room_type=wish.room_type,
            check_in=wish.check_in,
            check_out=wish.check_out,
            guest=wish.guest,
            rail=wish.rail,
            amount_cents=wish.amount_cents,
            currency=wish.currency,
            refundable_cents=self._refundable(wish),
        )
        async with _asking(reservation, request) as tx:
            await reservation_commands.hold(tx, wanted)


def _asking(service: Service, request: Request) -> AbstractAsyncContextManager[Tx]:
    """A transaction in the name of a request: everything that follows from it carries its id."""
    return service.transaction(request.tenant, correlation=request.id, actor=FRONT)
