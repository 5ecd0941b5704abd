"""What cannot work is refused when it is declared, all of it at once."""

from __future__ import annotations

from typing import Annotated

import pytest

from posthouse import Event, Payload, Service, Tx
from posthouse.app import app_of
from posthouse.contracts.personal import Personal
from posthouse.errors import ConfigurationError
from posthouse.processes import Model
from posthouse.processes.projection.model import table_name
from posthouse.testing import Harness

search = Service("search")


@search.event("guest.seen.v1", key="guest_id")
class GuestSeen(Payload):
    guest_id: str
    name: Annotated[str, Personal("identity")] = ""
    city: str = ""


async def feed(event: Event[GuestSeen], model: Model) -> None: ...


def test_a_name_makes_a_table_and_so_must_fit() -> None:
    for name in ("Listings", "my-listings", "", "1st", "a.b"):
        with pytest.raises(ConfigurationError, match="lower-case letters"):
            Service("search").projection(name)
    with pytest.raises(ConfigurationError, match="a table cannot be called 'Drop table x'"):
        table_name("listings", 1, "Drop table x")
    with pytest.raises(ConfigurationError, match="has more than 63 letters"):
        table_name("listings", 1, "x" * 60)


def test_terms_that_cannot_be_are_refused_together() -> None:
    with pytest.raises(ConfigurationError) as raised:
        Service("search").projection("listings", version=0, lag_budget=0.0, keeps=("a",))
    assert len(raised.value.problems) == 3


def test_a_projection_is_declared_once_and_beside_no_consumer_of_its_name() -> None:
    service = Service("search")
    service.projection("listings")
    with pytest.raises(ConfigurationError, match="'listings' is declared twice"):
        service.projection("listings")

    @service.event("room.seen.v1")
    class RoomSeen(Payload):
        room_id: str

    @service.on(RoomSeen, consumer="others")
    async def other(event: Event[RoomSeen], tx: Tx) -> None: ...

    with pytest.raises(ConfigurationError, match=r"there is a consumer search.others already"):
        service.projection("others")


def test_a_handler_takes_an_event_and_a_model_and_returns_nothing() -> None:
    listings = Service("search").projection("listings")

    def plain(event: Event[GuestSeen], model: Model) -> None: ...

    async def short(event: Event[GuestSeen]) -> None: ...

    async def says(event: Event[GuestSeen], model: Model) -> GuestSeen:
        return event.data

    for function, words in ((plain, "make it async"), (short, "and a Model"), (says, "say them by model.publish")):
        with pytest.raises(ConfigurationError, match=words):
            listings.on(GuestSeen)(function)
    with pytest.raises(ConfigurationError, match=r"names no event: write listings.on"):
        listings.on()


def test_an_event_has_one_handler_in_a_projection() -> None:
    listings = Service("search").projection("listings")
    listings.on(GuestSeen)(feed)
    with pytest.raises(ConfigurationError, match="is handled by"):
        listings.on(GuestSeen)(feed)


def test_personal_data_of_all_tenants_is_stripped_or_kept_on_purpose() -> None:
    with pytest.raises(ConfigurationError, match=r"'name' is personal data.*strips=, or in keeps="):
        Service("search").projection("listings", cross_tenant=True).on(GuestSeen)(feed)
    Service("search").projection("listings", cross_tenant=True, strips=("name",)).on(GuestSeen)(feed)
    Service("search").projection("listings", cross_tenant=True, keeps=("name",)).on(GuestSeen)(feed)
    Service("search").projection("listings").on(GuestSeen)(feed)


async def test_fields_that_no_event_has_and_a_model_that_nothing_feeds_are_refused_at_the_start() -> None:
    service = Service("search")
    service.projection("listings", cross_tenant=True, strips=("name", "citty")).on(GuestSeen)(feed)
    service.projection("nothing")
    with pytest.raises(ConfigurationError) as raised:
        async with Harness(service):
            pass
    assert any("strips names 'citty'" in problem and "'city'" in problem for problem in raised.value.problems)
    assert any("'nothing': no handler feeds it" in problem for problem in raised.value.problems)


async def test_a_table_that_was_not_made_is_named_with_a_suggestion() -> None:
    service, raised = Service("search"), list[str]()
    listings = service.projection("listings")

    @listings.setup
    async def tables(model: Model) -> None:
        await model.execute(f"CREATE TABLE {model.table('listing')} (id TEXT)")

    @listings.on(GuestSeen)
    async def wrong(event: Event[GuestSeen], model: Model) -> None:
        try:
            model.table("listng")
        except ConfigurationError as error:
            raised.append(str(error))

    async with Harness(service) as harness:
        await harness.publish(GuestSeen(guest_id="g1"))
        await harness.settled()
    assert raised == ["the projection 'listings' made no table 'listng' in its set-up. Did you mean 'listing'?"]


async def test_a_reader_of_a_service_that_was_never_opened_is_told_what_to_do() -> None:
    service = Service("search")
    listings = service.projection("listings")
    listings.on(GuestSeen)(feed)
    async with Harness(service):
        async with app_of(service).store.begin() as tx:
            await tx.execute("DELETE FROM posthouse_generation")
        async with service.transaction("t1") as mine:
            with pytest.raises(ConfigurationError, match="has no tables yet"):
                await listings.table(mine, "listing")
