"""What all formats have in common, frozen files as a source, and the list of CloudEvents types."""

from __future__ import annotations

import json
import random

import pytest
from msgspec.structs import replace

from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import read_bundle
from posthouse.governance.envelopes import envelopes_of
from posthouse.governance.exports import FORMATS, Source, export, thawed
from posthouse.governance.freezing import freeze
from posthouse.governance.listing import catalogue_of
from tests.unit.governance.exports.catalogues import POISONED, SERVICES, SHOP

FROZEN = thawed(read_bundle(freeze(SHOP.document, read_bundle({})).files))


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_declarations_give_the_same_files_in_whatever_order(format: str) -> None:
    shuffled = random.Random(7).sample(SERVICES, len(SERVICES))
    other = Source(document=catalogue_of(shuffled), brokers=dict(reversed(list(SHOP.brokers.items()))))
    assert list(export(SHOP, format).items()) == list(export(other, format).items())


@pytest.mark.parametrize("format", FORMATS)
def test_files_end_with_a_newline_and_can_be_written(format: str) -> None:
    for path, text in export(SHOP, format).items():
        assert text.endswith("\n"), path
        assert text.encode()


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_declared_is_nothing_said_and_no_error(format: str) -> None:
    assert isinstance(export(Source(document=catalogue_of([])), format), dict)


def test_envelopes_are_written_as_they_are_frozen() -> None:
    files = export(SHOP, "envelopes")
    assert list(files) == ["envelopes/cloudevents.v1.json", "envelopes/melmastoon.v1.json"]
    assert {path: text.encode() for path, text in files.items()} == envelopes_of(SHOP.document)
    with pytest.raises(ConfigurationError, match="holds the schemas of its envelopes already"):
        export(FROZEN, "envelopes")


def test_an_unknown_format_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match=r"no export format 'asynapi'.*Did you mean 'asyncapi'"):
        export(SHOP, "asynapi")


def test_types_are_listed_with_source_schema_and_terms() -> None:
    types = {entry["type"]: entry for entry in json.loads(export(SHOP, "types")["cloudevents-types.json"])["types"]}
    assert len(types) == len(SHOP.document.events)
    made = types["shop.orders.order.placed.v1"]
    assert (made["source"], made["datacontenttype"], made["key"]) == ("/shop/orders", "application/json", "order_id")
    assert made["dataschema"].startswith("schemas://orders/order/placed/v1#sha256-")
    assert (made["deprecated"], made["successor"]) == ("2027-01-31", "shop.orders.order.placed.v2")
    assert types["hotel.guest.arrived.v1"]["source"] == "/hotel"


def test_a_hostile_list_of_types_is_read_back() -> None:
    types = json.loads(export(POISONED, "types")["cloudevents-types.json"])["types"]
    assert [entry["type"] for entry in types] == [entry.subject for entry in POISONED.document.events]


def test_frozen_files_give_back_events_topics_and_schemas() -> None:
    events = {entry.subject: entry for entry in FROZEN.document.events}
    for entry in SHOP.document.events:
        kept = events[entry.subject]
        names = (
            "service",
            "namespace",
            "aggregate",
            "verb",
            "version",
            "topic",
            "schema_uri",
            "schema",
            "content_type",
        )
        assert [getattr(kept, name) for name in names] == [getattr(entry, name) for name in names]
    assert FROZEN.document.topics == SHOP.document.topics
    assert FROZEN.document.services == SHOP.document.services


def test_a_schema_that_no_lock_knows_is_passed_over() -> None:
    files = dict(freeze(SHOP.document, read_bundle({})).files)
    files["orders/order/forged/v1.json"] = files["orders/order/placed/v1.json"]
    assert thawed(read_bundle(files)).document.events == FROZEN.document.events


def test_what_frozen_files_do_not_hold_is_not_claimed() -> None:
    page = export(FROZEN, "markdown")["catalogue.md"]
    assert "| not known | not known | not known |" in page
    assert "| hot |" not in page
    assert "retention:" not in export(FROZEN, "asyncapi")["asyncapi.json"]
    assert "retention:cold" in export(SHOP, "asyncapi")["asyncapi.json"]
    assert "retentionclass" not in export(FROZEN, "types")["cloudevents-types.json"]
    assert not any(
        "Kept hot" in text or "In no order" in text
        for path, text in export(FROZEN, "eventcatalog").items()
        if "/events/" in path
    )


def test_groups_of_frozen_files_hear_all_of_their_topics() -> None:
    operations = json.loads(export(FROZEN, "asyncapi")["asyncapi.json"])["operations"]
    assert len(operations["billing.receive.shop.orders.order"]["messages"]) == 2
    assert operations["parcels.pack.receive.shop.billing.invoice"]["tags"] == [{"name": "service:parcels"}]


def test_a_source_without_a_namespace_is_titled_by_its_services() -> None:
    events = tuple(replace(entry, namespace=None) for entry in SHOP.document.events)
    source = Source(document=replace(SHOP.document, events=events))
    assert source.title == "billing, hotel, orders, parcels"
