"""What handlers look at is seen while they run, whatever their payloads are made of."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest

from posthouse import Event, Payload, Service, Tx
from posthouse.testing import Harness, Reads, recording


class Guest(Payload):
    name: str
    street: str = ""


class Booked(Payload):
    booking_id: str
    guest: Guest
    others: list[Guest]
    total: int = 0
    note: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class BookedAsDataclass:
    booking_id: str
    guest: Guest
    others: list[Guest]
    total: int = 0
    note: str = ""


class BookedAsModel(pydantic.BaseModel):
    booking_id: str = pydantic.Field(serialization_alias="bookingId", validation_alias="bookingId")
    guest: Any = None
    others: list[Any] = []
    total: int = 0
    note: str = ""


class Remark(Payload):
    text: str


class Bundled(Payload):
    remark: Remark


SUBJECT = "stays.booking.booked.v1"


def stays(cls: type[object], reads: list[str] | None = None) -> tuple[Service, list[object]]:
    """A service with a handler that looks at some fields, and what it found there."""
    service = Service("stays")
    declared = service.event("booking.booked.v1")(cls)
    found: list[object] = []

    @service.on(declared, reads=reads)
    async def greet(event: Event[Any], tx: Tx) -> None:
        data = event.data
        found.append((data.guest.name, [other.name for other in data.others], data.total, isinstance(data, cls)))

    return service, found


def handler_of(service: Service) -> str:
    return service.declared.consumers["stays"][SUBJECT].name


async def run(service: Service, payload: object) -> Reads:
    with recording(service) as reads:
        async with Harness(service) as harness:
            await harness.publish(payload)
            await harness.settled()
            assert await harness.held(service) == []
    return reads


@pytest.mark.parametrize("cls", [Booked, BookedAsDataclass])
async def test_fields_are_seen_through_nested_values_and_lists(cls: type[Booked]) -> None:
    service, found = stays(cls)
    reads = await run(service, cls(booking_id="b1", guest=Guest("Ann"), others=[Guest("Bea")], total=3))
    assert found == [("Ann", ["Bea"], 3, True)]
    assert reads.of(handler_of(service), SUBJECT) == ("guest.name", "others.name", "total")
    assert reads.suggestions() == [f'{handler_of(service)} on {SUBJECT}: reads=["guest.name", "others.name", "total"]']


async def test_models_are_seen_by_the_names_that_travel() -> None:
    service = Service("stays")
    declared = service.event("booking.booked.v1")(BookedAsModel)
    found = []

    @service.on(declared)
    async def greet(event: Event[BookedAsModel]) -> None:
        found.append(event.data.booking_id)

    reads = await run(service, BookedAsModel.model_validate({"bookingId": "b1"}))
    assert found == ["b1"]
    assert reads.of(handler_of(service), SUBJECT) == ("bookingId",)


async def test_a_model_that_is_dumped_was_read_as_a_whole() -> None:
    service = Service("stays")
    declared = service.event("booking.booked.v1")(BookedAsModel)

    @service.on(declared)
    async def keep(event: Event[BookedAsModel]) -> None:
        event.data.model_dump()

    reads = await run(service, BookedAsModel.model_validate({"bookingId": "b1"}))
    assert set(reads.of(handler_of(service), SUBJECT)) == {"bookingId", "guest", "others", "total", "note"}


async def test_a_field_that_the_reads_do_not_name_is_told() -> None:
    payload = Booked(booking_id="b1", guest=Guest("Ann"), others=[], total=3)
    service, _ = stays(Booked, reads=["guest", "others"])
    with pytest.raises(AssertionError, match=f"looks at 'total' of {SUBJECT}, which its reads do not name"):
        (await run(service, payload)).assert_declared()
    complete, _ = stays(Booked, reads=["guest.name", "others", "total"])
    (await run(complete, payload)).assert_declared()
    silent, _ = stays(Booked)
    (await run(silent, payload)).assert_declared()


async def test_handlers_of_lists_and_plain_functions_are_seen_and_may_publish_what_they_got() -> None:
    class Noted(Payload):
        text: str

    service = Service("stays")
    booked = service.event("booking.booked.v1")(Booked)
    noted = service.event("booking.noted.v1")(Noted)

    @service.on(booked)
    async def many(events: list[Event[Booked]]) -> None:
        assert [event.data.note for event in events] == ["late"]

    @service.on(noted)
    def plain(event: Event[Noted]) -> None:
        assert event.data.text == "x"

    with recording(service) as reads:
        async with Harness(service) as harness:
            await harness.publish(Booked(booking_id="b1", guest=Guest("Ann"), others=[], note="late"))
            await harness.publish(Noted("x"))
            await harness.settled()
            assert await harness.held(service) == []
    assert [line.partition(": ")[2] for line in reads.suggestions()] == ['reads=["note"]', 'reads=["text"]']


async def test_a_watched_payload_can_be_published_again() -> None:
    service = Service("stays")
    booked = service.event("booking.booked.v1")(Booked)
    again = Service("again")

    class Forwarded(Payload):
        guest: Guest

    forwarded = again.event("guest.forwarded.v1")(Forwarded)

    @again.on(booked)
    async def forward(event: Event[Booked]) -> Forwarded:
        return Forwarded(guest=event.data.guest)

    with recording(again) as reads:
        async with Harness(service, again) as harness:
            await harness.publish(Booked(booking_id="b1", guest=Guest("Ann"), others=[]))
            await harness.settled()
            (event,) = await harness.published(forwarded)
    assert event.data.guest == Guest("Ann")
    assert reads.of(again.declared.consumers["again"][SUBJECT].name, SUBJECT) == ("guest",)


async def test_afterwards_the_handlers_are_as_they_were() -> None:
    service, _ = stays(Booked)
    before = service.declared.consumers["stays"][SUBJECT]
    with recording(service):
        assert service.declared.consumers["stays"][SUBJECT] is not before
    assert service.declared.consumers["stays"][SUBJECT] is before


async def test_names_of_structs_are_those_that_travel() -> None:
    class Renamed(msgspec.Struct, rename="camel"):
        booking_id: str

    service = Service("stays")
    declared = service.event("booking.booked.v1")(Renamed)

    @service.on(declared)
    async def greet(event: Event[Renamed]) -> None:
        assert event.data.booking_id == "b1"

    reads = await run(service, Renamed("b1"))
    assert reads.of(handler_of(service), SUBJECT) == ("bookingId",)


async def test_an_event_inside_of_a_watched_one_can_be_published() -> None:
    service = Service("stays")
    noted = service.event("booking.noted.v1")(Remark)
    bundled = service.event("booking.bundled.v1")(Bundled)

    @service.on(bundled)
    async def unpack(event: Event[Bundled]) -> Remark:
        return event.data.remark

    with recording(service):
        async with Harness(service) as harness:
            await harness.publish(Bundled(remark=Remark("x")))
            await harness.settled()
            assert await harness.held(service) == []
            assert [event.data.text for event in await harness.published(noted)] == ["x"]


async def test_a_value_that_is_only_passed_on_is_covered_by_the_fields_inside_of_it() -> None:
    service = Service("stays")
    booked = service.event("booking.booked.v1")(Booked)

    @service.on(booked, reads=["guest.name"])
    async def pass_on(event: Event[Booked]) -> None:
        assert event.data.guest is not None

    reads = await run(service, Booked(booking_id="b1", guest=Guest("Ann"), others=[]))
    assert reads.of(handler_of(service), SUBJECT) == ("guest",)
    reads.assert_declared()
