"""Flows and sagas as pages that EventCatalog lets one step through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from msgspec.structs import replace

from posthouse.governance.document import Document
from posthouse.governance.exports import Source, export
from posthouse.governance.listing import catalogue_of
from tests.unit.governance.exports import hotel
from tests.unit.governance.exports.catalogues import HOSTILE
from tests.unit.processes.saga import hotel as stay

FLOWS = catalogue_of([hotel.bookings, hotel.rooms, hotel.money])
SAGAS = catalogue_of([stay.reservation, stay.inventory, stay.payment])
CANCELLATION = "domains/hotel/services/bookings/flows/bookings.cancellation/index.mdx"
BOOKING = "domains/hotel/services/reservation/flows/reservation.booking.saga/index.mdx"


def folder(document: Document) -> Mapping[str, str]:
    return export(Source(document=document), "eventcatalog")


def fields(page: str) -> Any:
    _, head, _ = page.split("---\n", 2)
    return yaml.safe_load(head)


def arrows(page: str) -> set[tuple[str, str, str]]:
    """From, to and label, by titles."""
    steps = {step["id"]: step for step in fields(page)["steps"]}
    return {
        (
            step["title"].rpartition("hotel.")[2],
            steps[after["id"]]["title"].rpartition("hotel.")[2],
            after.get("label", ""),
        )
        for step in steps.values()
        for after in step.get("next_steps", [])
    }


def test_a_declared_flow_leads_from_its_start_through_handlers_to_its_facts() -> None:
    page = folder(FLOWS)[CANCELLATION]
    assert arrows(page) == {
        ("bookings.booking.cancelled.v1", "release", ""),
        ("release", "rooms.allocation.released.v1", ""),
        ("rooms.allocation.released.v1", "settle", ""),
        ("settle", "money.refund.paid.v1", ""),
        ("settle", "money.fee.charged.v1", ""),
    }
    made = fields(page)
    assert made["summary"] == "The room is free again and the money is back."
    remarks = {step["title"]: step.get("summary") for step in made["steps"]}
    assert remarks["hotel.money.fee.charged.v1"] == "may come"
    assert remarks["hotel.money.refund.paid.v1"] is None


def test_a_fact_that_nobody_leads_to_stands_alone_and_says_so() -> None:
    page = folder(catalogue_of([hotel.bookings, hotel.rooms]))[CANCELLATION]
    paid = next(step for step in fields(page)["steps"] if step["title"] == "hotel.money.refund.paid.v1")
    assert paid["summary"] == "its service is not listed"
    assert "message" not in paid
    assert not any("money.refund.paid.v1" in arrow for arrow in arrows(page))


def test_a_saga_leads_from_facts_through_its_methods_to_what_it_says_its_deadlines_and_its_undos() -> None:
    page = folder(SAGAS)[BOOKING]
    found = arrows(page)
    assert {
        ("hold", "reservation.booking.held.v1", ""),
        ("inventory.allocation.committed.v1", "room_committed", ""),
        ("payment.intent.failed.v1", "payment_failed", ""),
        ("Operator", "release_room", "cancel"),
        ("payment_failed", "release_room", "compensate"),
        ("release_room", "drop_hold", "then"),
        ("hold", "hold_expired after 30 s", "sets"),
    } <= found
    assert [arrow for arrow in found if arrow[:2] == ("release_room", "inventory.allocation.released.v1")]
    facts = {step["title"] for step in fields(page)["steps"] if "service" not in step and "actor" not in step}
    assert facts <= {entry.subject for entry in SAGAS.events}
    assert "```mermaid\nstateDiagram-v2\n" in page


def test_every_link_of_a_flow_leads_to_a_page_and_services_lead_to_their_flows() -> None:
    for document in (FLOWS, SAGAS):
        made = [fields(text) for path, text in folder(document).items() if path.endswith(".mdx")]
        known = {(one["id"], one.get("version")) for one in made}
        flows = {(one["id"], one["version"]) for one in made if "steps" in one}
        links = [step.get(kind) for one in made for step in one.get("steps", []) for kind in ("message", "service")]
        assert {(link["id"], link["version"]) for link in links if link} <= known
        assert flows == {(link["id"], link["version"]) for one in made for link in one.get("flows", [])} != set()


def test_a_flow_and_a_saga_of_one_name_have_pages_of_their_own() -> None:
    flow = replace(FLOWS.flows[0], service="reservation", name="booking")
    made = folder(replace(SAGAS, flows=(flow,)))
    assert {path for path in made if "/flows/" in path} >= {BOOKING, BOOKING.replace(".saga", "")}


def test_hostile_names_of_flows_and_sagas_are_text_inside_the_folder() -> None:
    flow = replace(FLOWS.flows[0], name=HOSTILE, starts=HOSTILE, then=(f"{HOSTILE}1",), description=HOSTILE)
    methods = tuple(
        replace(method, name=f"{HOSTILE}{number}", takes=(HOSTILE,), publishes=(HOSTILE,))
        for number, method in enumerate(SAGAS.sagas[0].methods)
    )
    saga = replace(SAGAS.sagas[0], name=HOSTILE, methods=methods, description=HOSTILE)
    made = folder(replace(SAGAS, flows=(flow,), sagas=(saga,)))
    pages = {path: text for path, text in made.items() if "/flows/" in path}
    assert len(pages) == 2
    for path, page in pages.items():
        assert path.isascii()
        assert ".." not in path.split("/")
        assert len(path.split("/")) == 7
        assert HOSTILE in {step["title"] for step in fields(page)["steps"]}
