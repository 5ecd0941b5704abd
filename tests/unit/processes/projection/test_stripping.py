"""What a read model of all tenants may not see is gone before its handler is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import msgspec
import pydantic
import pytest

from posthouse import Event, Payload, Service
from posthouse.app import app_of
from posthouse.contracts.personal import Personal
from posthouse.events import Actor
from posthouse.processes import Model, Plan
from posthouse.seam.stripping import Stripper
from posthouse.testing import Harness
from tests.unit.processes.projection.listings import Hotel


class Address(msgspec.Struct, frozen=True):
    city: str
    street: Annotated[str, Personal("contact")] = ""


class Stay(msgspec.Struct, frozen=True, rename="camel"):
    room_id: str
    guest_name: Annotated[str, Personal("identity")]
    addresses: list[Address]
    by_label: dict[str, Address]


@dataclasses.dataclass(frozen=True)
class Visit:
    room: str
    guest: Annotated[str, Personal("identity")]


class Booking(pydantic.BaseModel):
    room: str
    guest: Annotated[str, Personal("identity")] = pydantic.Field(alias="guestName")


def event(data: object) -> Event[object]:
    return Event(id="e1", type="a.b.done.v1", source="/a", data=data, time="", actor=Actor(kind="user", id="u1"))


def test_marked_fields_go_wherever_they_are_and_the_rest_stays() -> None:
    stay = Stay("r1", "Ann", [Address("Kabul", "Main"), Address("Herat", "Side")], {"home": Address("Kabul", "Main")})
    found = Stripper((), ()).stripped(event(stay)).data
    assert msgspec.to_builtins(found) == {
        "roomId": "r1",
        "guestName": None,
        "addresses": [{"city": "Kabul", "street": None}, {"city": "Herat", "street": None}],
        "byLabel": {"home": {"city": "Kabul", "street": None}},
    }
    assert stay.guest_name == "Ann"


def test_named_fields_go_too_and_kept_ones_stay() -> None:
    stay = Stay("r1", "Ann", [Address("Kabul", "Main")], {})
    found = Stripper(("addresses.*.city", "unknown.field"), ("guestName", "addresses")).stripped(event(stay)).data
    assert isinstance(found, Stay)
    assert (found.guest_name, found.addresses) == ("Ann", [msgspec.structs.replace(Address("", "Main"), city=None)])


def test_a_whole_part_can_go() -> None:
    found = Stripper(("addresses",), ()).stripped(event(Stay("r1", "Ann", [Address("Kabul")], {}))).data
    assert isinstance(found, Stay)
    assert found.addresses is None


@pytest.mark.parametrize("data", [Visit("r1", "Ann"), Booking(room="r1", guestName="Ann")])
def test_dataclasses_and_pydantic_models_are_stripped_and_left_as_they_were(data: object) -> None:
    found = Stripper((), ()).stripped(event(data)).data
    assert (getattr(found, "room"), getattr(found, "guest")) == ("r1", None)  # noqa: B009 - of two types
    assert getattr(data, "guest") == "Ann"  # noqa: B009
    assert type(found) is type(data)


def test_who_did_it_goes_too() -> None:
    assert Stripper((), ()).stripped(event(Visit("r1", "Ann"))).actor is None


@pytest.mark.parametrize("plan", [Plan(source="log"), Plan(source="streams")])
async def test_neither_the_live_generation_nor_a_rebuild_sees_what_is_stripped(plan: Plan) -> None:
    hotel, hosts = Hotel(cross_tenant=True), list[tuple[int, object]]()

    def watch(events: Sequence[Event[object]], model: Model) -> None:
        hosts.extend((model.generation, getattr(event.data, "host", None)) for event in events)

    hotel.watch = watch
    async with Harness(hotel.service) as harness:
        async with hotel.service.transaction("t1") as tx:
            await hotel.rooms.append(tx, "r1", [hotel.RoomListed(room_id="r1", price=1, host="Ann")], expected=0)
        await harness.settled()
        await app_of(hotel.service).projections.rebuild("listings", plan)
        assert hosts == [(1, None), (2, None)]


async def test_a_model_of_one_tenant_sees_everything() -> None:
    service, names = Service("search"), list[str]()

    @service.event("guest.seen.v1", key="guest_id")
    class GuestSeen(Payload):
        guest_id: str
        name: Annotated[str, Personal("identity")]

    @service.projection("guests").on(GuestSeen)
    async def feed(event: Event[GuestSeen], model: Model) -> None:
        names.append(event.data.name)

    async with Harness(service) as harness:
        await harness.publish(GuestSeen(guest_id="g1", name="Ann"))
        await harness.settled()
    assert names == ["Ann"]


async def test_a_list_of_a_rebuild_holds_events_of_all_tenants_where_the_model_is_for_all() -> None:
    hotel, tenants = Hotel(cross_tenant=True), list[set[str]]()
    async with Harness(hotel.service) as harness:
        for tenant in ("t1", "t2"):
            await hotel.list_room("r1", 7, tenant=tenant)
        await harness.settled()
        hotel.watch = lambda events, model: tenants.append({event.tenant for event in events})
        await app_of(hotel.service).projections.rebuild("listings", Plan(source="streams"))
        assert await hotel.rows() == [("t1", "r1", 7, 1), ("t2", "r1", 7, 1)]
    assert tenants == [{"t1", "t2"}]
