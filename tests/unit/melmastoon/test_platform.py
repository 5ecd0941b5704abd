"""All 22 services together: one request of a guest runs through the house."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from melmastoon.audit import audit
from melmastoon.audit.chain import first_broken
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
from melmastoon.facts.analytics import SnapshotComputed
from melmastoon.facts.everything import facts_of
from melmastoon.facts.notification import MessageDelivered
from melmastoon.facts.reservation import BookingConfirmed
from melmastoon.facts.search_aggregation import ListingIndexed
from melmastoon.platform import SERVICES
from melmastoon.search_aggregation import search_aggregation
from melmastoon.search_aggregation.queries import find
from melmastoon.tables import run, typed
from melmastoon.vendors.world import World, pretending
from melmastoon.wiring import InProcess
from posthouse.testing import Harness
from tests.unit.melmastoon.samples import ARRIVAL, DEPARTURE, guest

HOUSE = NewProperty(
    property_id="p1",
    name="Serena",
    city="Kabul",
    country="AF",
    currency="USD",
    amenities=("garden", "wifi"),
    room_types=(RoomType(name="double", beds=2, most_guests=3, numbers=("1",), night_cents=10_000),),
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


@pytest.fixture
async def house() -> AsyncIterator[Harness]:
    with pretending(World()):
        async with Harness(*SERVICES) as everything:
            yield everything


async def open_house(house: Harness, tenant: str = "t1", *, rooms: Sequence[str] = ("1",)) -> None:
    everything, request = InProcess(), Request(tenant=tenant, id=f"open-{tenant}")
    doubles = msgspec.structs.replace(HOUSE.room_types[0], numbers=rooms)
    properties = (msgspec.structs.replace(HOUSE, room_types=(doubles,)),)
    hotelier = NewTenant(name="Serena Hotels", country="AF", properties=properties)
    await open_tenant(request, hotelier, tenants=everything, properties=everything, rates=everything)
    await house.settled()


async def test_a_hotelier_who_joins_is_found_and_one_who_joins_twice_is_found_once(house: Harness) -> None:
    for _ in range(2):
        await open_house(house)
    async with search_aggregation.transaction("platform") as tx:
        [offer] = await find(tx, "Kabul", ARRIVAL, DEPARTURE)
    assert (offer.tenant, offer.from_cents, offer.amenities) == ("t1", 10_000, "garden,wifi")
    revisions = [e.data.revision for e in await house.published(ListingIndexed)]
    assert revisions == sorted(set(revisions)) != []


async def test_a_guest_who_presses_pay_is_confirmed_written_to_and_everything_carries_the_request(
    house: Harness,
) -> None:
    await open_house(house)
    request = Request(tenant="t1", id="req-1")
    for _ in range(2):
        booking_id = await hold_booking(request, WISH, bookings=InProcess())
        await house.settled()
    [booked] = await house.published(BookingConfirmed)
    assert (booked.data.booking_id, booked.data.room_id, booked.correlation) == (booking_id, "p1-1", "req-1")
    assert {(e.data.kind, e.correlation) for e in await house.published(MessageDelivered)} == {
        ("confirmation", "req-1")
    }
    async with bff_tenant_booking.transaction("t1") as tx:
        assert await status(tx, booking_id) == "confirmed"
    async with search_aggregation.transaction("platform") as tx:
        assert await find(tx, "Kabul", ARRIVAL, DEPARTURE) == [], "the only room is taken"


async def test_everything_that_was_said_stands_in_the_chain_of_its_tenant(house: Harness) -> None:
    for tenant in ("t1", "t2"):
        await open_house(house, tenant)
        await hold_booking(Request(tenant=tenant, id="req-1"), WISH, bookings=InProcess())
    await house.settled()
    said = {fact.name: await house.published(fact.payload.cls) for fact in facts_of(SERVICES)}
    ids = sorted(event.id for events in said.values() for event in events if event.tenant == "t1")
    async with audit.transaction("t1") as tx:
        chain = typed(await run(tx, "SELECT entry_id FROM audit_entry WHERE tenant = ?", "t1"), tuple[str])
        assert await first_broken(tx) is None
    assert sorted(entry for (entry,) in chain) == ids
    assert len(ids) > 20
    assert await house.published(SnapshotComputed) == [], "the day is not over"


async def test_the_whole_platform_is_safe_to_replay(house: Harness) -> None:
    await open_house(house)
    await hold_booking(Request(tenant="t1", id="req-1"), WISH, bookings=InProcess())
    await house.assert_replay_safe()
