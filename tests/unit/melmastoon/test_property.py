"""property-service: houses, rooms, room types, amenities."""

from __future__ import annotations

import pytest

from melmastoon.facts.property import AmenityChanged, PropertyCreated, RoomAdded, RoomArchived, RoomTypePublished
from melmastoon.property import property
from melmastoon.property.commands import (
    add_room,
    archive_room,
    change_amenities,
    create_property,
    publish_room_type,
)
from posthouse import Reject, Tx
from posthouse.testing import Harness


async def _house(tx: Tx) -> None:
    await create_property(tx, "p1", name="Serena", city="Kabul", country="AF", currency="USD")
    await publish_room_type(tx, "p1", "double", beds=2, most_guests=3)


async def test_a_house_is_created_once() -> None:
    async with Harness(property) as house:
        for created in (True, False):
            async with property.transaction("t1") as tx:
                done = await create_property(tx, "p1", name="Serena", city="Kabul", country="AF", currency="USD")
                assert done is created
        await house.settled()
        assert [(e.data.property_id, e.data.city) for e in await house.published(PropertyCreated)] == [("p1", "Kabul")]


async def test_a_room_type_is_published_again_when_it_changes() -> None:
    async with Harness(property) as house:
        for guests, changed in ((3, True), (3, False), (4, True)):
            async with property.transaction("t1") as tx:
                await create_property(tx, "p1", name="Serena", city="Kabul", country="AF", currency="USD")
                assert await publish_room_type(tx, "p1", "double", beds=2, most_guests=guests) is changed
        await house.settled()
        published = [
            (e.data.room_type_id, e.data.most_guests, e.data.revision) for e in await house.published(RoomTypePublished)
        ]
        assert published == [("p1/double", 3, 1), ("p1/double", 4, 2)]


async def test_a_room_is_added_and_archived_once() -> None:
    async with Harness(property) as house:
        async with property.transaction("t1") as tx:
            await _house(tx)
            assert await add_room(tx, "r1", property_id="p1", room_type="double", number="101")
            assert not await add_room(tx, "r1", property_id="p1", room_type="double", number="101")
            assert await archive_room(tx, "r1", reason="renovation")
            assert not await archive_room(tx, "r1", reason="closed")
        await house.settled()
        assert [(e.data.room_id, e.data.number) for e in await house.published(RoomAdded)] == [("r1", "101")]
        assert [(e.data.room_id, e.data.reason) for e in await house.published(RoomArchived)] == [("r1", "renovation")]


async def test_a_number_belongs_to_one_room_and_a_room_to_a_published_type() -> None:
    async with Harness(property), property.transaction("t1") as tx:
        await _house(tx)
        await add_room(tx, "r1", property_id="p1", room_type="double", number="101")
        with pytest.raises(Reject, match="the number 101 is taken in p1"):
            await add_room(tx, "r2", property_id="p1", room_type="double", number="101")
        with pytest.raises(Reject, match="no room type suite"):
            await add_room(tx, "r3", property_id="p1", room_type="suite", number="301")
        with pytest.raises(Reject, match="no property p9"):
            await add_room(tx, "r4", property_id="p9", room_type="double", number="101")


async def test_amenities_are_said_as_a_whole_list_when_they_change() -> None:
    async with Harness(property) as house:
        async with property.transaction("t1") as tx:
            await _house(tx)
            assert await change_amenities(tx, "p1", ["wifi", "garden"])
            assert not await change_amenities(tx, "p1", ["garden", "wifi", "wifi"])
            assert await change_amenities(tx, "p1", [])
        await house.settled()
        changes = [(e.data.amenities, e.data.revision) for e in await house.published(AmenityChanged)]
        assert changes == [(("garden", "wifi"), 1), ((), 2)]
