"""bff-tenant-booking-service: one request of a client is one call, composed of commands of others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec
import pytest

from melmastoon.bff_tenant_booking import bff_tenant_booking
from melmastoon.bff_tenant_booking.front import (
    NewProperty,
    NewTenant,
    Request,
    RoomType,
    Wish,
    hold_booking,
    open_tenant,
)
from melmastoon.bff_tenant_booking.handlers import status
from melmastoon.facts.everything import facts_of
from posthouse import Reject
from posthouse.testing import Harness
from tests.unit.melmastoon.samples import ARRIVAL, DEPARTURE, cancelled, confirmed, guest, held

REQUEST = Request(tenant="t1", id="req-1")
DOUBLE = RoomType(name="double", beds=2, most_guests=3, numbers=("1", "2"), night_cents=10_000)
HOUSE = NewProperty(
    property_id="p1",
    name="Serena",
    city="Kabul",
    country="AF",
    currency="USD",
    amenities=("wifi",),
    room_types=(DOUBLE,),
)
WISH = Wish(
    property_id="p1",
    room_type="double",
    check_in=ARRIVAL,
    check_out=DEPARTURE,
    guest=guest(),
    rail="card",
    amount_cents=30_000,
    currency="USD",
)


class Platform:
    """Every service that the front asks, noting what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def create_tenant(self, request: Request, tenant: NewTenant) -> None:
        self.asked.append(("tenant", request.tenant, tenant.name))

    async def create_property(self, request: Request, house: NewProperty) -> None:
        self.asked.append(("property", house.property_id))

    async def publish_room_type(self, request: Request, property_id: str, room_type: RoomType) -> None:
        self.asked.append(("room type", property_id, room_type.name))

    async def add_room(self, request: Request, room_id: str, property_id: str, room_type: str, number: str) -> None:
        self.asked.append(("room", room_id, property_id, room_type, number))

    async def change_amenities(self, request: Request, property_id: str, amenities: Sequence[str]) -> None:
        self.asked.append(("amenities", property_id, *amenities))

    async def publish_rate(self, request: Request, rate_plan_id: str, house: NewProperty, room_type: RoomType) -> None:
        self.asked.append(("rate", rate_plan_id, str(room_type.night_cents)))

    async def hold(self, request: Request, booking_id: str, wish: Wish) -> None:
        self.asked.append(("hold", request.id, booking_id, wish.property_id))


async def test_a_hotelier_joins_with_everything_and_prices_come_last() -> None:
    platform = Platform()
    tenant = NewTenant(name="Serena Hotels", country="AF", properties=(HOUSE,))
    await open_tenant(REQUEST, tenant, tenants=platform, properties=platform, rates=platform)
    assert platform.asked == [
        ("tenant", "t1", "Serena Hotels"),
        ("property", "p1"),
        ("amenities", "p1", "wifi"),
        ("room type", "p1", "double"),
        ("room", "p1-1", "p1", "double", "1"),
        ("room", "p1-2", "p1", "double", "2"),
        ("rate", "p1-double-bar", "10000"),
    ]


async def test_a_guest_who_presses_pay_twice_gets_the_same_booking() -> None:
    platform = Platform()
    first = await hold_booking(REQUEST, WISH, bookings=platform)
    assert await hold_booking(REQUEST, WISH, bookings=platform) == first == "bk-req-1"
    assert platform.asked == [("hold", "req-1", "bk-req-1", "p1")] * 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"check_out": ARRIVAL}, "ends after it begins"), ({"amount_cents": 0}, "costs something")],
)
async def test_nonsense_is_refused_before_anybody_is_asked(change: dict[str, date | int], reason: str) -> None:
    platform = Platform()
    with pytest.raises(Reject, match=reason):
        await hold_booking(REQUEST, msgspec.structs.replace(WISH, **change), bookings=platform)
    assert platform.asked == []


async def test_the_guests_page_follows_the_booking() -> None:
    async with Harness(bff_tenant_booking) as house:
        seen = []
        for fact in (None, held(), confirmed(), cancelled()):
            if fact is not None:
                await house.publish(fact)
                await house.settled()
            async with bff_tenant_booking.transaction("t1") as tx:
                seen.append(await status(tx, "b1"))
        assert seen == ["unknown", "held", "confirmed", "cancelled"]
        async with bff_tenant_booking.transaction("t2") as tx:
            assert await status(tx, "b1") == "unknown"


def test_the_front_owns_no_fact() -> None:
    assert facts_of([bff_tenant_booking]) == []
