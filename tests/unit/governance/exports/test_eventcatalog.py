"""The catalogue as a folder for EventCatalog."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from posthouse import Payload, Service
from posthouse.governance.exports import Source, export
from posthouse.governance.exports.front_matter import front_matter, quoted
from posthouse.governance.exports.names import safe
from posthouse.governance.listing import catalogue_of
from tests.unit.governance.exports.catalogues import HOSTILE, POISONED, SHOP

FOLDER = export(SHOP, "eventcatalog")
PLACED = "domains/shop/services/orders/events/shop.orders.order.placed"


def fields(page: str) -> Any:
    _, head, _ = page.split("---\n", 2)
    return yaml.safe_load(head)


def test_domains_hold_services_and_services_their_events() -> None:
    assert fields(FOLDER["domains/shop/index.mdx"])["services"] == [
        {"id": name, "version": "1.0.0"} for name in ("billing", "orders", "parcels")
    ]
    assert "domains/platform/services/hotel/events/hotel.guest.arrived/index.mdx" in FOLDER
    assert f"{PLACED}/index.mdx" in FOLDER


def test_the_newest_version_is_in_front_and_the_others_are_kept_behind() -> None:
    assert fields(FOLDER[f"{PLACED}/index.mdx"])["version"] == "2.0.0"
    old = fields(FOLDER[f"{PLACED}/versioned/1.0.0/index.mdx"])
    assert old["version"] == "1.0.0"
    assert old["deprecated"] == {"date": "2027-01-31", "message": "Use shop.orders.order.placed.v2."}


def test_which_version_is_the_newest_does_not_depend_on_the_order_of_the_list() -> None:
    turned = replace(SHOP.document, events=tuple(reversed(SHOP.document.events)))
    made = export(replace(SHOP, document=turned), "eventcatalog")
    assert fields(made[f"{PLACED}/index.mdx"])["version"] == "2.0.0"


def test_a_service_names_what_it_sends_and_receives_and_through_which_channel() -> None:
    made = fields(FOLDER["domains/shop/services/billing/index.mdx"])
    sends = {
        "id": "shop.billing.invoice.issued",
        "version": "1.0.0",
        "to": [{"id": "shop.billing.invoice", "version": "1.0.0"}],
    }
    receives = {
        "id": "shop.orders.order.placed",
        "version": "2.0.0",
        "from": [{"id": "shop.orders.order", "version": "1.0.0"}],
    }
    assert (made["sends"], made["receives"]) == ([sends], [receives])


def test_every_reference_leads_to_a_page() -> None:
    pages = {path: fields(text) for path, text in FOLDER.items() if path.endswith(".mdx")}
    known = {(made["id"], made.get("version")) for made in pages.values()}
    ids = {name for name, _ in known}
    for made in pages.values():
        assert set(made.get("owners", [])) <= ids
        for link in [*made.get("sends", []), *made.get("receives", []), *made.get("services", [])]:
            assert (link["id"], link["version"]) in known
            assert {channel["id"] for channel in [*link.get("to", []), *link.get("from", [])]} <= ids


def test_an_event_has_its_schema_beside_it() -> None:
    made = fields(FOLDER[f"{PLACED}/index.mdx"])
    assert sorted(json.loads(FOLDER[f"{PLACED}/{made['schemaPath']}"])["required"]) == ["lines", "order_id", "place"]
    parcel = "domains/shop/services/parcels/events/shop.parcels.parcel.sent"
    assert fields(FOLDER[f"{parcel}/index.mdx"])["schemaPath"] == "schema.avsc"
    assert '<Schema file="schema.avsc" />' in FOLDER[f"{parcel}/index.mdx"]
    assert json.loads(FOLDER[f"{parcel}/schema.avsc"])["name"] == "ParcelSent"


def test_a_channel_says_its_protocols_and_its_order() -> None:
    page = FOLDER["channels/shop.orders.order/index.mdx"]
    assert fields(page)["protocols"] == ["kafka", "sqs"]
    assert "In order per tenant and `order_id`." in page


def test_hostile_text_in_front_matter_is_text() -> None:
    made = yaml.safe_load(
        front_matter({"a": HOSTILE, "b": [HOSTILE, {"c": HOSTILE}], "d": {"e": HOSTILE}}).strip("-\n")
    )
    assert made == {"a": HOSTILE, "b": [HOSTILE, {"c": HOSTILE}], "d": {"e": HOSTILE}}


@pytest.mark.parametrize(
    "said", ["no", "1.0", "~", "'", "#", "a: b", "- x", "\u2028", "\x85", "\ufeff", "\x7f", "😀", "\\", "{}"]
)
def test_a_quoted_text_is_read_back(said: str) -> None:
    assert yaml.safe_load(quoted(said)) == said


def test_a_service_that_is_called_like_a_kind_of_folder_does_not_lie_in_one_of_that_name() -> None:
    services = Service("events", namespace="services")
    services.event("channels.sent.v1")(type("Sent", (Payload,), {"__annotations__": {"id": str}}))
    made = export(Source(document=catalogue_of([services])), "eventcatalog")
    assert "domains/services_/services/events_/events/services.events.channels.sent/index.mdx" in made
    assert fields(made["domains/services_/services/events_/index.mdx"])["id"] == "events"


def test_what_is_empty_is_left_out() -> None:
    assert front_matter({"a": "", "b": [], "c": {}, "d": False}) == "---\nd: false\n---\n"


def test_hostile_names_stay_inside_the_folder_and_their_pages_keep_their_shape() -> None:
    made = export(POISONED, "eventcatalog")
    for path, page in made.items():
        parts = PurePosixPath(path).parts
        assert parts[0] in ("domains", "channels", "teams")
        assert not {"..", "."} & set(parts)
        assert len(parts) <= 9
        if path.endswith(".mdx"):
            assert isinstance(fields(page)["id"], str)
    assert len(made) >= 20


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc", "a b", "é", "x" * 500, ".hidden", "-x", "a\x00"]
)
def test_a_strange_name_becomes_a_safe_one_of_its_own(name: str) -> None:
    made = safe(name)
    assert made != name
    assert made[0].isalnum() or made[0] == "_"
    assert len(made) <= 200
    assert "/" not in made
    assert made.isascii()
    assert made != safe(f"{name}!")


def test_a_plain_name_stays_as_it_is() -> None:
    assert safe("shop.orders.order-placed_v1") == "shop.orders.order-placed_v1"
