"""Flows as they are declared: what is checked, and what stands in the catalogue."""

from __future__ import annotations

import pytest

from posthouse import Payload, Service
from posthouse.errors import ConfigurationError
from posthouse.governance.document import from_json, to_json
from posthouse.governance.listing import catalogue_of

orders = Service("orders", namespace="shop")


@orders.event("order.placed.v1")
class Placed(Payload):
    order_id: str


@orders.event("order.paid.v1")
class Paid(Payload):
    order_id: str


@orders.event("order.sent.v1")
class Sent(Payload):
    order_id: str


def test_a_flow_stands_in_the_catalogue_with_what_must_and_what_may_follow() -> None:
    service = Service("desk", namespace="shop")
    service.flow("selling", starts=Placed, then=(Paid,), may=[Sent], description="From order to parcel.")
    (entry,) = catalogue_of([service, orders]).flows
    assert (entry.name, entry.service, entry.starts) == ("selling", "desk", "shop.orders.order.placed.v1")
    assert (entry.then, entry.may) == (("shop.orders.order.paid.v1",), ("shop.orders.order.sent.v1",))
    assert entry.subjects == (entry.starts, *entry.then, *entry.may)
    assert entry.description == "From order to parcel."


def test_a_catalogue_with_flows_is_read_back_as_it_was() -> None:
    service = Service("desk", namespace="shop")
    service.flow("selling", starts=Placed, then=(Paid,))
    document = catalogue_of([service])
    assert from_json(to_json(document)) == document


def test_a_catalogue_of_before_flows_had_facts_can_be_read() -> None:
    old = b'{"flows": [{"name": "selling", "service": "desk", "subjects": ["shop.orders.order.placed.v1"]}]}'
    (entry,) = from_json(old).flows
    assert (entry.starts, entry.then, entry.subjects) == ("", (), ("shop.orders.order.placed.v1",))


def test_every_problem_of_a_flow_is_said_at_once() -> None:
    service = Service("desk", namespace="shop")
    with pytest.raises(ConfigurationError) as refused:
        service.flow("Late Checkout", starts=Placed, then=(), may=(str, Placed))
    assert refused.value.problems == (
        "flow 'Late Checkout': str is not an event: a flow is made of event classes",
        "flow 'Late Checkout': shop.orders.order.placed.v1 stands in it more than once",
        "flow 'Late Checkout': nothing follows from it: name the facts that must come in then=(…)",
        "flow 'Late Checkout': its name must be lower-case letters, digits, hyphens and underscores, as in 'late-checkout'",
    )
    assert service.declared.flows == {}


def test_a_second_flow_of_the_same_name_is_refused_and_the_first_stays() -> None:
    service = Service("desk", namespace="shop")
    service.flow("selling", starts=Placed, then=(Paid,))
    with pytest.raises(ConfigurationError, match=r"declared already, from shop\.orders"):
        service.flow("selling", starts=Paid, then=(Sent,))
    assert service.declared.flows["selling"].starts.name == "shop.orders.order.placed.v1"
