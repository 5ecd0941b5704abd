"""Rules about flows look at handlers: a saga owns its process, and is not held to be a choreography."""

from __future__ import annotations

from posthouse.governance.listing import catalogue_of
from posthouse.governance.policies.graph import awaits, flow
from tests.unit.governance.exports import hotel
from tests.unit.processes.saga.hotel import inventory, payment, reservation

STAY = catalogue_of([reservation, inventory, payment])


def test_what_a_saga_says_is_known_and_not_followed() -> None:
    assert any(handler.publishes for handler in STAY.handlers), "it is known"
    assert flow(STAY) == {}
    assert awaits(STAY) == {}


def test_what_plain_handlers_say_is_followed() -> None:
    edges = flow(catalogue_of([hotel.bookings, hotel.rooms, hotel.money]))
    assert edges["hotel.bookings.booking.cancelled.v1"] == {"hotel.rooms.allocation.released.v1"}
