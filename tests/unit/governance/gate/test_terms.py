"""Terms that changed beside the fields: each has its severity."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from posthouse import Service
from posthouse.governance.bundle import Bundle
from posthouse.governance.gate import Severity
from posthouse.governance.listing import catalogue_of
from tests.unit.governance.gate.shop import Placed, billing, frozen, only, orders, placed, report

CHANGES = [
    ({"key": "note"}, "key-changed", Severity.ERROR, "ordered by 'note' now, not by 'order_id'"),
    ({"key": None}, "key-changed", Severity.ERROR, "no longer ordered by 'order_id'"),
    ({"retention": "cold"}, "retention-lengthened", Severity.NOTE, "kept cold now, not warm"),
    ({"retention": "hot"}, "retention-shortened", Severity.WARNING, "kept hot now, not warm"),
    ({"residency": "eu"}, "residency-changed", Severity.WARNING, "may be in eu now, not any region"),
    ({"owner": "finance"}, "owner-changed", Severity.NOTE, "finance answers for it now, not checkout"),
    ({"owner": ""}, "owner-changed", Severity.WARNING, "Nobody answers for it now, not checkout"),
]


@pytest.mark.parametrize(("terms", "rule", "severity", "sentence"), CHANGES)
def test_each_term_has_its_severity(terms: dict[str, object], rule: str, severity: Severity, sentence: str) -> None:
    before = frozen(orders(placed(retention="warm")), billing())
    one = only(report(before, frozen(orders(placed(**{"retention": "warm", **terms})), billing())))
    assert (one.rule, one.severity) == (rule, severity)
    assert sentence in one.sentence
    assert one.path is None
    assert report(before, frozen(orders(placed(**{"retention": "warm", **terms})), billing())).passes is (
        severity is not Severity.ERROR
    )
    assert [who.consumer for who in one.touched] == ["billing"]


def test_an_order_that_is_new_is_an_error_too() -> None:
    one = only(report(frozen(orders(placed(key=None))), frozen(orders(placed()))))
    assert one.rule == "key-changed"
    assert "ordered by 'order_id' now, and was not" in one.sentence


def test_another_topic_is_an_error() -> None:
    moved = Service("orders", namespace="shop", owner="checkout", topics="subject")
    moved.event("order.placed.v1", key="order_id")(Placed)
    one = only(report(frozen(orders()), frozen(catalogue_of([moved]))))
    assert (one.rule, one.severity) == ("topic-changed", Severity.ERROR)
    assert "from the topic shop.orders.order to shop.orders.order.placed" in one.sentence


def test_another_namespace_is_another_name() -> None:
    found = report(frozen(orders()), frozen(orders(namespace="market")))
    assert [one.rule for one in found.standing] == ["subject-renamed", "topic-changed"]
    assert "It was called shop.orders.order.placed.v1" in found.standing[0].sentence


def without_terms(bundle: Bundle) -> Bundle:
    """As a release before this one froze it."""
    older = {
        path: replace(locked, topic="", key=None, owner="", retention="hot", residency=None)
        for path, locked in bundle.lock.schemas.items()
    }
    return replace(bundle, lock=replace(bundle.lock, schemas=older))


def test_an_older_lock_has_no_terms_and_only_the_topics_tell_of_the_order() -> None:
    before = without_terms(frozen(orders(placed(retention="warm"))))
    assert report(before, frozen(orders(placed(retention="cold", owner="finance")))).objections == ()
    one = only(report(before, frozen(orders(placed(key="note")))))
    assert (one.rule, one.file) == ("key-changed", "topics.json")
    assert "ordered by note now, not by order_id" in one.sentence
