"""Declared flows, followed through the handlers that make them, and drawn."""

from __future__ import annotations

from msgspec.structs import replace

from posthouse.governance.document import Document
from posthouse.governance.exports import Source, export
from posthouse.governance.exports.flows import Expected, expected
from posthouse.governance.exports.mermaid import choreography
from posthouse.governance.listing import catalogue_of
from tests.unit.governance.exports.hotel import bookings, money, rooms

HOTEL = catalogue_of([bookings, rooms, money])

CANCELLED = "hotel.bookings.booking.cancelled.v1"
RELEASED = "hotel.rooms.allocation.released.v1"
PLANNED = "hotel.rooms.cleaning.planned.v1"
REFUNDED = "hotel.money.refund.paid.v1"
CHARGED = "hotel.money.fee.charged.v1"


def cancellation(document: Document = HOTEL, **changes: object) -> Expected:
    return expected(document, replace(document.flows[0], **changes))


def names(flow: Expected) -> list[str]:
    return [step.name.rpartition(".")[2] for step in flow.steps]


def test_a_flow_is_followed_through_the_handlers_of_several_services() -> None:
    flow = cancellation()
    assert names(flow) == ["release", "settle"]
    assert flow.holds
    assert (flow.between, flow.unheard, flow.unlisted) == ((), (), ())


def test_facts_on_the_way_that_the_flow_does_not_name_are_shown() -> None:
    flow = cancellation(then=(REFUNDED,), may=())
    assert flow.between == (RELEASED,)
    assert names(flow) == ["release", "settle"]


def test_handlers_that_lead_to_none_of_its_facts_are_left_out() -> None:
    flow = cancellation(then=(RELEASED,), may=())
    assert names(flow) == ["release"]
    assert flow.between == ()


def test_a_fact_that_must_come_and_that_no_handler_leads_to_breaks_the_flow() -> None:
    flow = cancellation(then=(RELEASED, PLANNED))
    assert flow.unheard == (PLANNED,)
    assert not flow.holds


def test_a_fact_that_only_may_come_breaks_nothing() -> None:
    flow = cancellation(may=(PLANNED,))
    assert flow.unheard == (PLANNED,)
    assert flow.holds


def test_a_fact_of_a_service_that_is_not_listed_is_unknown_and_not_broken() -> None:
    flow = cancellation(catalogue_of([bookings, rooms]))
    assert flow.unlisted == (REFUNDED, CHARGED)
    assert flow.unheard == ()
    assert flow.holds


def test_a_flow_in_a_circle_ends() -> None:
    back = tuple(replace(h, publishes=(*h.publishes, CANCELLED)) if "settle" in h.name else h for h in HOTEL.handlers)
    flow = cancellation(replace(HOTEL, handlers=back))
    assert names(flow) == ["release", "settle"]


def test_the_diagram_shows_what_may_come_and_what_nobody_says() -> None:
    assert choreography(cancellation(then=(RELEASED, REFUNDED, PLANNED))) == (
        "```mermaid\n"
        "flowchart LR\n"
        f'  e0(["{CANCELLED}"])\n'
        f'  e1(["{RELEASED}"])\n'
        f'  e2(["{REFUNDED}"])\n'
        f'  e3(["{PLANNED}<br/>no handler leads here"])\n'
        f'  e4(["{CHARGED}<br/>may come"])\n'
        '  h0["release<br/>rooms"]\n'
        '  h1["settle<br/>money"]\n'
        "  e0 --> h0\n"
        "  h0 --> e1\n"
        "  e1 --> h1\n"
        "  h1 --> e4\n"
        "  h1 --> e2\n"
        "  classDef open stroke-dasharray: 5 5\n"
        "  class e3,e4 open\n"
        "```\n"
    )


def test_a_page_shows_a_declared_flow_in_place_of_the_one_that_was_found() -> None:
    page = export(Source(document=HOTEL), "markdown")["catalogue.md"]
    assert "## Flow cancellation of bookings\n\nThe room is free again and the money is back.\n" in page
    assert f"## Flow: {CANCELLED}" not in page
    undeclared = export(Source(document=replace(HOTEL, flows=())), "markdown")["catalogue.md"]
    assert f"## Flow: {CANCELLED}" in undeclared
