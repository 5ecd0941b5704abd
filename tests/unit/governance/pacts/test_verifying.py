"""Expectations against what producers say, within a repository and from pact files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

import msgspec
import pytest

from posthouse import Payload, Service
from posthouse.contracts import json_schema, payload_of
from posthouse.errors import ConfigurationError
from posthouse.governance.listing import catalogue_of
from posthouse.governance.pacts import (
    Expectation,
    expectations_of,
    pacts_of,
    read_pact,
    verify_decoder,
    verify_expectation,
    verify_sample,
)

SUBJECT = "shop.orders.order.placed.v1"


class Placed(Payload):
    order_id: str
    total_cents: int
    state: Literal["PAID", "OPEN"]
    note: str = ""


PLACED = payload_of(Placed)


def billing(payload: type[object], reads: list[str] | None = None) -> Expectation:
    service = Service("billing", namespace="shop")
    declared = service.external(SUBJECT)(payload)

    @service.on(declared, reads=reads)
    async def invoice(event: object) -> None: ...

    (one,) = expectations_of(catalogue_of([service]), {known.name: known for known in service.declared.catalogue})
    return one


def breaches(one: Expectation) -> list[tuple[str, str]]:
    return [(found.path, found.sentence) for found in verify_expectation(one, PLACED.schema.text)]


def test_a_reader_that_needs_less_gets_along() -> None:
    class Order(Payload):
        order_id: str
        state: str
        voucher: str = ""

    assert breaches(billing(Order)) == []


def test_a_reader_that_needs_a_field_that_may_be_missing_is_told_with_an_example() -> None:
    class Order(Payload):
        note: str

    (found,) = verify_expectation(billing(Order), PLACED.schema.text)
    assert (found.path, found.sentence) == ("/note", "It needs this field, and the producer may leave it out.")
    assert found.who.endswith(".invoice (billing)")
    assert isinstance(found.example, dict)
    assert "note" not in found.example


def test_a_field_that_the_producer_does_not_know_may_be_missing_too() -> None:
    class Order(Payload):
        voucher: str

    assert [path for path, _ in breaches(billing(Order))] == ["/voucher"]


def test_a_value_that_the_reader_does_not_know_is_found() -> None:
    class Order(Payload):
        state: Literal["PAID"]

    (found,) = verify_expectation(billing(Order), PLACED.schema.text)
    assert (found.path, found.sentence) == ("/state", "It does not know every value that the producer may send.")
    assert isinstance(found.example, dict)
    assert found.example["state"] == "OPEN"


def test_another_type_is_found() -> None:
    class Order(Payload):
        total_cents: str

    assert breaches(billing(Order)) == [("/total_cents", "It does not take every type that the producer may send.")]


def test_a_stricter_limit_is_found() -> None:
    one = msgspec.structs.replace(
        billing(Placed), schema=json_schema({"properties": {"total_cents": {"minimum": 0}}}).text
    )
    assert breaches(one) == [("/total_cents", "It is stricter here than the producer.")]


def test_fields_that_a_handler_does_not_read_do_not_count() -> None:
    class Order(Payload):
        order_id: str
        note: str

    assert breaches(billing(Order))
    assert breaches(billing(Order, reads=["order_id"])) == []


def test_expectations_travel_as_a_pact_and_come_back_with_the_same_verdict() -> None:
    class Order(Payload):
        order_id: str
        state: Literal["PAID"]

    one = billing(Order)
    ((name, text),) = pacts_of([one]).items()
    assert name == "billing-orders.json"
    assert pacts_of([one])[name] == text
    pact = json.loads(text)
    assert pact["consumer"] == {"name": "billing"}
    assert pact["provider"] == {"name": "orders"}
    assert pact["metadata"]["pactSpecification"]["version"] == "3.0.0"
    (message,) = pact["messages"]
    assert message["contents"] == {"order_id": "a", "state": "PAID"}
    assert message["metaData"]["subject"] == SUBJECT
    assert message["matchingRules"]["body"]["$['order_id']"] == {"combine": "AND", "matchers": [{"match": "type"}]}
    (back,) = read_pact(name, text)
    assert (back.schema, back.handler, back.provider) == (one.schema, one.handler, "orders")
    assert breaches(back) == breaches(one) != []


def foreign(contents: object, rules: Mapping[str, object] | None = None, **meta: object) -> bytes:
    message = {
        "description": "an order",
        "providerStates": [{"name": "an order was placed"}],
        "contents": contents,
        "matchingRules": {"body": rules or {}},
        "metaData": {"contentType": "application/json", "subject": SUBJECT, **meta},
    }
    return json.dumps({"consumer": {"name": "web"}, "provider": {"name": "orders"}, "messages": [message]}).encode()


def test_a_pact_of_another_maker_is_judged_by_its_contents_and_matchers() -> None:
    matched = {"$.total_cents": {"combine": "AND", "matchers": [{"match": "integer"}]}}
    (fine,) = read_pact("web.json", foreign({"order_id": "o1", "total_cents": 1200, "state": "PAID"}, matched))
    assert fine.who == "an order (web)"
    assert breaches(fine) == []
    (needy,) = read_pact("web.json", foreign({"note": "hello"}))
    assert [path for path, _ in breaches(needy)] == ["/note"]


def test_a_value_that_can_never_come_is_found() -> None:
    (never,) = read_pact("web.json", foreign({"state": "SHIPPED"}))
    (found,) = verify_expectation(never, PLACED.schema.text)
    assert found.path == "/state"
    assert found.sentence.startswith("It expects what the producer never sends:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "is not a pact"),
        (b'{"consumer":{"name":"a"},"provider":{"name":"b"},"interactions":[]}', "holds no messages"),
        (foreign({"a": 1}, subject=None), "names no event"),
        (
            foreign({"a": 1}, {"$.a": {"matchers": [{"match": "magic"}]}}),
            "web.json, 'an order': .*'magic' is not known",
        ),
    ],
)
def test_a_file_that_cannot_be_judged_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_pact("web.json", text)


def test_a_sample_is_held_to_the_schema() -> None:
    fine = {"order_id": "o1", "total_cents": 1, "state": "PAID"}
    assert list(verify_sample("a.json", SUBJECT, PLACED.schema.text, fine)) == []
    (found,) = verify_sample("a.json", SUBJECT, PLACED.schema.text, {**fine, "total_cents": "1"})
    assert (found.kind, found.who, found.path) == ("sample", "a.json", "/total_cents")


def test_a_decoder_must_read_what_its_schema_allows() -> None:
    class Narrow(Payload):
        order_id: str
        state: Literal["PAID"]

    assert list(verify_decoder(SUBJECT, PLACED.schema.text, payload_of(Placed))) == []
    found = list(verify_decoder(SUBJECT, PLACED.schema.text, payload_of(Narrow)))
    assert {one.example["state"] for one in found if isinstance(one.example, dict)} == {"OPEN"}
    assert {one.who for one in found} == {"Narrow"}
