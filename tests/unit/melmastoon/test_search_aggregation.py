"""search-aggregation-service: what guests find, across tenants."""

from __future__ import annotations

import itertools
from datetime import date, timedelta

import pytest

from melmastoon.facts.inventory import StopSellActivated, StopSellCleared
from melmastoon.facts.pricing import RatePlanArchived, RatePlanPublished
from melmastoon.facts.property import AmenityChanged, PropertyCreated, RoomAdded, RoomArchived
from melmastoon.facts.search_aggregation import ListingEvicted, ListingIndexed
from melmastoon.facts.tenant import TenantSuspended
from melmastoon.search_aggregation import search_aggregation
from melmastoon.search_aggregation.queries import LONGEST, Offer, find
from melmastoon.search_aggregation.tables import listings
from posthouse import Reject
from posthouse.app import app_of
from posthouse.contracts.personal import personal_fields
from posthouse.testing import Harness
from tests.unit.melmastoon.samples import ARRIVAL, DEPARTURE, committed, reallocated, released

CREATED = PropertyCreated(property_id="p1", name="Serena", city="Kabul", country="AF", currency="USD")
ROOM = RoomAdded(room_id="p1-1", property_id="p1", room_type="double", number="1")
SECOND_ROOM = RoomAdded(room_id="p1-2", property_id="p1", room_type="double", number="2")
RATE = RatePlanPublished(rate_plan_id="bar", property_id="p1", room_type="double", night_cents=10_000, currency="USD")
OFFERED = AmenityChanged(property_id="p1", amenities=("garden", "wifi"), revision=1)
SUSPENDED = TenantSuspended(tenant_id="t1", reason="compliance")


async def _open(house: Harness, *facts: object, tenant: str = "t1") -> None:
    for fact in (CREATED, ROOM, RATE, *facts):
        await house.publish(fact, tenant=tenant)
        await house.settled()


async def _found(check_in: date = ARRIVAL, check_out: date = DEPARTURE, city: str = "Kabul") -> list[Offer]:
    async with search_aggregation.transaction("platform") as tx:
        return await find(tx, city, check_in, check_out)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_house_is_listed_once_it_has_a_name_a_room_and_a_price_whichever_comes_first(
    order: tuple[int, ...],
) -> None:
    facts = (CREATED, ROOM, RATE)
    async with Harness(search_aggregation) as house:
        for number in order:
            assert await house.published(ListingIndexed) == []
            await house.publish(facts[number])
            await house.settled()
        [listed] = await house.published(ListingIndexed)
        assert listed.data == ListingIndexed(
            property_id="p1",
            name="Serena",
            city="Kabul",
            country="AF",
            amenities=(),
            rooms=1,
            nights_sold=0,
            nights_closed=0,
            from_cents=10_000,
            currency="USD",
            revision=int(house.clock.now() * 1000),
        )
        assert await house.published(ListingEvicted) == []
        await house.assert_replay_safe()


async def test_a_listing_is_indexed_anew_with_every_change_that_a_guest_can_see() -> None:
    cheaper = RatePlanPublished(
        rate_plan_id="saver", property_id="p1", room_type="double", night_cents=8_000, currency="USD"
    )
    closed = StopSellActivated(property_id="p1", room_type="double", night=ARRIVAL)
    opened = StopSellCleared(property_id="p1", room_type="double", night=ARRIVAL)
    changes = (OFFERED, SECOND_ROOM, cheaper, committed(), closed, opened, released())
    async with Harness(search_aggregation) as house:
        await _open(house, *changes)
        seen = [
            (len(e.data.amenities), e.data.rooms, e.data.from_cents, e.data.nights_sold, e.data.nights_closed)
            for e in await house.published(ListingIndexed)
        ]
        assert seen == [
            (0, 1, 10_000, 0, 0),
            (2, 1, 10_000, 0, 0),
            (2, 2, 10_000, 0, 0),
            (2, 2, 8_000, 0, 0),
            (2, 2, 8_000, 3, 0),
            (2, 2, 8_000, 3, 1),
            (2, 2, 8_000, 3, 0),
            (2, 2, 8_000, 0, 0),
        ]
        revisions = [e.data.revision for e in await house.published(ListingIndexed)]
        assert revisions == sorted(set(revisions))


async def test_what_a_guest_cannot_see_is_not_said() -> None:
    again = StopSellCleared(property_id="p1", room_type="double", night=ARRIVAL)
    async with Harness(search_aggregation) as house:
        await _open(house, again, released("b9"))
        assert len(await house.published(ListingIndexed)) == 1


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (RoomArchived(room_id="p1-1", property_id="p1", room_type="double", reason="closed"), "no_rooms"),
        (RatePlanArchived(rate_plan_id="bar", property_id="p1"), "no_rates"),
        (SUSPENDED, "tenant_suspended"),
    ],
)
async def test_a_house_without_rooms_or_prices_or_of_a_suspended_tenant_is_evicted(fact: object, reason: str) -> None:
    async with Harness(search_aggregation) as house:
        await _open(house)
        assert len(await _found()) == 1
        await house.publish(fact)
        await house.settled()
        await house.publish(OFFERED)
        await house.settled()
        [listed], [evicted] = await house.published(ListingIndexed), await house.published(ListingEvicted)
        assert (evicted.data.property_id, evicted.data.reason) == ("p1", reason)
        assert evicted.data.revision == listed.data.revision + 1
        assert await _found() == []
        await house.assert_replay_safe()


async def test_a_house_that_was_evicted_comes_back_with_a_price() -> None:
    async with Harness(search_aggregation) as house:
        await _open(house, RatePlanArchived(rate_plan_id="bar", property_id="p1"), RATE)
        first, second = (e.data.revision for e in await house.published(ListingIndexed))
        assert second == first + 2
        assert len(await _found()) == 1


async def test_houses_that_a_suspended_tenant_adds_later_are_not_shown() -> None:
    async with Harness(search_aggregation) as house:
        await house.publish(SUSPENDED)
        await house.settled()
        await _open(house)
        assert await house.published(ListingIndexed) == []
        assert await _found() == []


async def test_a_search_spans_tenants_and_shows_the_cheapest_first() -> None:
    cheaper = RatePlanPublished(
        rate_plan_id="bar", property_id="p1", room_type="double", night_cents=9_000, currency="USD"
    )
    async with Harness(search_aggregation) as house:
        await _open(house, tenant="t1")
        await _open(house, cheaper, tenant="t2")
        assert [(offer.tenant, offer.from_cents) for offer in await _found()] == [("t2", 9_000), ("t1", 10_000)]
        assert await _found(city="Herat") == []


async def test_a_house_is_found_while_one_room_is_free_for_all_nights() -> None:
    async with Harness(search_aggregation) as house:
        await _open(house, SECOND_ROOM, committed("b1", room_id="p1-1"))
        assert len(await _found()) == 1
        await house.publish(committed("b2", room_id="p1-2"))
        await house.settled()
        assert await _found() == []
        assert len(await _found(DEPARTURE, date(2027, 2, 6))) == 1, "the night of departure is free"
        await house.publish(reallocated("b2", check_in=date(2027, 3, 1), check_out=date(2027, 3, 2)))
        await house.settled()
        assert len(await _found()) == 1, "b2 has left these nights"
        assert len(await _found(date(2027, 3, 1), date(2027, 3, 2))) == 1, "and is in the other room on its new ones"
        await house.publish(committed("b3", room_id="p1-2"))
        await house.settled()
        assert await _found() == []
        await house.publish(released("b1"))
        await house.settled()
        assert len(await _found()) == 1


async def test_a_closed_night_hides_its_room_type() -> None:
    async with Harness(search_aggregation) as house:
        await _open(house, StopSellActivated(property_id="p1", room_type="double", night=date(2027, 2, 2)))
        assert await _found() == []
        assert len(await _found(ARRIVAL, date(2027, 2, 2))) == 1


async def test_a_closed_night_of_another_room_type_hides_nothing() -> None:
    async with Harness(search_aggregation) as house:
        await _open(house, StopSellActivated(property_id="p1", room_type="suite", night=ARRIVAL))
        assert len(await _found()) == 1


@pytest.mark.parametrize("night", [1, 2, 3])
async def test_one_taken_night_is_enough_to_hide_the_only_room(night: int) -> None:
    taken = date(2027, 2, night)
    async with Harness(search_aggregation) as house:
        await _open(house, reallocated("b1", check_in=taken, check_out=taken + timedelta(days=1)))
        assert await _found() == []


async def test_a_stay_without_nights_or_with_too_many_is_refused() -> None:
    async with Harness(search_aggregation):
        for departure in (ARRIVAL, date(2026, 1, 1), date(2028, 1, 1)):
            with pytest.raises(Reject, match=f"1 to {LONGEST} nights"):
                await _found(ARRIVAL, departure)


def test_nothing_about_a_person_comes_as_far_as_a_listing() -> None:
    assert personal_fields(ListingIndexed) == personal_fields(ListingEvicted) == frozenset()
    assert listings.terms.cross_tenant
    heard = {known.subject.service for known in listings.event_types}
    assert heard == {"property", "inventory", "pricing", "tenant"}, "neither guests nor payments are heard"


async def test_a_model_that_is_built_anew_shows_the_same_and_says_nothing() -> None:
    async with Harness(search_aggregation) as house:
        await _open(house, OFFERED, SECOND_ROOM, committed())
        before, said = await _found(), len(await house.published(ListingIndexed))
        await app_of(search_aggregation).projections.rebuild("listings")
        await house.settled()
        assert await _found() == before != []
        assert len(await house.published(ListingIndexed)) == said
        house.clock.advance(1)
        await house.publish(released())
        await house.settled()
        revisions = [e.data.revision for e in await house.published(ListingIndexed)]
        assert len(revisions) == said + 1
        assert revisions == sorted(set(revisions)), "the new one goes on where the old one was"
