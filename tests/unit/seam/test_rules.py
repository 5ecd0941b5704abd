"""What may be published at all: each rule by its name."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from posthouse import Payload, Service
from posthouse.contracts import EventType, event_type_of
from posthouse.contracts.terms import Terms
from posthouse.errors import ContractError, RuleBroken
from posthouse.seam import Rules

shop = Service("orders", namespace="shop", residency="eu")


@shop.event("order.placed.v1", key="order_id")
class OrderPlaced(Payload):
    order_id: str


@shop.event("report.made.v1", cross_tenant=True, residency="eu")
class ReportMade(Payload):
    tenants: list[str]


@shop.event("platform.moved.v1")
class PlatformMoved(Payload):
    number: int


def broken(rules: Rules, cls: type[object], tenant: str = "t1", region: str = "") -> str:
    """The rule that a fact breaks; empty when it breaks none."""
    return broken_by(rules, event_type_of(cls), tenant, region)


def broken_by(rules: Rules, event_type: EventType[object], tenant: str = "t1", region: str = "") -> str:
    try:
        rules.check(event_type, tenant, region)
    except RuleBroken as error:
        named = error.rule in str(error) and event_type.name in str(error)
        return error.rule if named else str(error)
    return ""


def changed(cls: type[object], **fields: object) -> EventType[object]:
    return dataclasses.replace(event_type_of(cls), **fields)  # type: ignore[arg-type]


def with_terms(cls: type[object], **terms: object) -> EventType[object]:
    event_type = event_type_of(cls)
    return dataclasses.replace(event_type, terms=msgspec.structs.replace(event_type.terms, **terms))


def test_a_fact_of_a_tenant_breaks_no_rule_unless_somebody_said_one() -> None:
    assert broken(Rules(), OrderPlaced) == ""
    assert broken(Rules(), PlatformMoved) == ""


def test_a_fact_of_no_tenant_must_be_on_the_list() -> None:
    assert broken(Rules(), OrderPlaced, "platform") == "platform"
    assert broken(Rules(platform=["shop.orders.order.*"]), OrderPlaced, "platform") == ""
    assert broken(Rules(), PlatformMoved, "platform") == "", "its name says that it is the platform's own"
    assert broken(Rules(platform=[]), PlatformMoved, "platform") == "platform"


def test_a_fact_about_several_tenants_must_be_in_a_topic_on_the_list() -> None:
    assert broken(Rules(), ReportMade) == "cross-tenant"
    assert broken(Rules(cross_tenant=["shop.reporting.*"]), ReportMade) == "cross-tenant"
    assert broken(Rules(cross_tenant=["shop.orders.report"]), ReportMade) == ""


@pytest.mark.parametrize(
    ("rules", "sheet", "rule"),
    [
        (Rules(), "", ""),
        (Rules(), "eu", ""),
        (Rules(), "us-east-1", "residency"),
        (Rules(region="us-east-1"), "", "residency"),
        (Rules(region="eu"), "us-east-1", ""),
        (Rules(region="europe-west1", residency={"eu": ["europe-west1"]}), "", ""),
        (Rules(residency={"eu": ["europe-west1"]}), "asia-south1", "residency"),
        (Rules(residency={"us": ["us-east-1"]}), "us-east-1", "residency"),
    ],
)
def test_a_fact_that_must_not_leave_a_region_is_not_given_to_a_broker_elsewhere(
    rules: Rules, sheet: str, rule: str
) -> None:
    assert broken(rules, OrderPlaced, region=sheet) == rule
    assert broken_by(rules, with_terms(OrderPlaced, residency=None), region=sheet) == "", "it may be anywhere"


def test_a_fact_that_a_model_makes_must_have_a_field_for_its_provenance() -> None:
    rules = Rules(provenance=["shop.orders.order.*"])
    assert broken(rules, OrderPlaced) == "provenance"
    assert broken_by(rules, changed(OrderPlaced, provenance="order_id")) == ""
    assert broken(rules, PlatformMoved) == ""


def test_a_retention_class_must_be_one_and_the_one_on_the_list() -> None:
    assert broken_by(Rules(), with_terms(OrderPlaced, retention="lukewarm")) == "retention"
    rules = Rules(retention={"shop.orders.order.*": "cold", "shop.*": "warm"})
    assert broken(rules, OrderPlaced) == "retention"
    assert broken_by(rules, with_terms(OrderPlaced, retention="cold")) == ""
    assert broken_by(rules, with_terms(PlatformMoved, retention="warm")) == ""


def test_what_the_library_says_to_itself_is_under_no_rule() -> None:
    assert broken_by(Rules(), changed(OrderPlaced, internal=True), "platform") == ""


def test_a_broken_rule_is_a_breach_of_contract_that_no_second_try_cures() -> None:
    assert issubclass(RuleBroken, ContractError)
    assert Terms().cross_tenant is False
