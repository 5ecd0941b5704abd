from __future__ import annotations

from pathlib import Path

import pytest

from posthouse.errors import SubjectError
from posthouse.events import Subject
from posthouse.events.tense import is_past, past_of

MELMASTOON = (Path(__file__).parent / "data" / "melmastoon-subjects.txt").read_text().split()


def test_the_platform_has_82_subjects() -> None:
    assert len(set(MELMASTOON)) == 82


@pytest.mark.parametrize("text", MELMASTOON)
def test_every_subject_of_the_platform_round_trips(text: str) -> None:
    subject = Subject.parse(text, namespace="melmastoon")
    assert (str(subject), subject.namespace) == (text, "melmastoon")
    assert str(Subject.parse(text)) == text
    assert text.startswith(f"melmastoon.{subject.service}.")


def test_five_tokens_have_one_reading() -> None:
    subject = Subject.parse("shop.orders.order.placed.v12")
    assert subject == Subject(namespace="shop", service="orders", aggregate="order", verb="placed", version=12)
    assert subject.topic_by_aggregate == "shop.orders.order"
    assert subject.topic_by_subject == "shop.orders.order.placed.v12"
    assert subject.unversioned == "shop.orders.order.placed"


def test_three_tokens_have_neither_namespace_nor_aggregate() -> None:
    subject = Subject.parse("file.uploaded.v1", namespace="file")
    assert subject == Subject(service="file", verb="uploaded", version=1)
    assert subject.topic_by_aggregate == "file"


def test_four_tokens_are_settled_by_the_namespace_and_the_text_does_not_care() -> None:
    known = Subject.parse("shop.file.uploaded.v1", namespace="shop")
    unknown = Subject.parse("shop.file.uploaded.v1")
    assert (known.namespace, known.service, known.aggregate) == ("shop", "file", None)
    assert (unknown.namespace, unknown.service, unknown.aggregate) == (None, "shop", "file")
    assert str(known) == str(unknown)
    assert known.topic_by_aggregate == unknown.topic_by_aggregate == "shop.file"


@pytest.mark.parametrize(
    ("text", "service", "full"),
    [
        ("order.placed.v1", "orders", "shop.orders.order.placed.v1"),
        ("uploaded.v1", "file", "shop.file.uploaded.v1"),
        ("tenant.created.v1", "tenant", "shop.tenant.tenant.created.v1"),
        ("orders.order.placed.v1", "orders", "shop.orders.order.placed.v1"),
        ("shop.orders.order.placed.v1", "orders", "shop.orders.order.placed.v1"),
        ("shop.file.uploaded.v1", "file", "shop.file.uploaded.v1"),
    ],
)
def test_a_service_writes_its_subjects_short(text: str, service: str, full: str) -> None:
    subject = Subject.relative(text, service=service, namespace="shop")
    assert (str(subject), subject.namespace, subject.service) == (full, "shop", service)


def test_without_a_namespace_the_short_form_gets_the_service_alone() -> None:
    assert str(Subject.relative("order.placed.v1", service="orders")) == "orders.order.placed.v1"


@pytest.mark.parametrize(
    "text", ["billing.order.placed.v1", "shop.billing.order.placed.v1", "x.orders.order.placed.v1"]
)
def test_a_service_cannot_name_another_ones_facts_as_its_own(text: str) -> None:
    with pytest.raises(SubjectError, match=r"not a subject of the service 'shop\.orders'; write 'order\.placed\.v1'"):
        Subject.relative(text, service="orders", namespace="shop")


def test_build_keeps_the_same_rules() -> None:
    assert str(Subject.build(service="file", verb="uploaded", version=2)) == "file.uploaded.v2"
    for change in ({"verb": "place"}, {"version": 0}, {"aggregate": "a.b"}, {"service": "Orders"}):
        with pytest.raises(SubjectError):
            Subject.build(**{"service": "orders", "verb": "placed", **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("shop.orders.order.place.v1", "'place' is not past tense; did you mean 'placed'?"),
        ("booking.check_in.v1", "did you mean 'checked_in'?"),
        ("orders.order.shipping.v1", "did you mean 'shipped'?"),
        ("orders.batch.running.v1", "did you mean 'run'?"),
        ("orders.order.creation.v1", "'creation' is not past tense. An event"),
        ("orders.order.place.v1", "if this is one, say so: Service(…, not_past=['order.place'])"),
        ("a.b", "has 2 tokens; write [namespace.]service.[aggregate.]verb_past.vN"),
        ("a.b.c.d.placed.v1", "has 6 tokens"),
        ("shop.Orders.order.placed.v1", "token 2 ('Orders') is not snake_case"),
        ("shop.orderLine.added.v1", "did you mean 'order_line'?"),
        ("shop.order-line.added.v1", "did you mean 'order_line'?"),
        ("shop.bestellung_ü.added.v1", "token 2"),
        ("shop..placed.v1", "token 2 ('') is empty"),
        ("shop.placed.v1.", "token 4 ('') is empty"),
        ("orders.placed.1", "did you mean 'v1'?"),
        ("orders.order.placed", "did you mean 'orders.order.placed.v1'?"),
        ("orders.placed.v0", "versions are v1, v2"),
        ("orders.placed.v01", "versions are v1, v2"),
        ("orders.placed.v1\n", "token 3"),
        ("x" * 300 + ".placed.v1", "at most 200"),
    ],
)
def test_a_bad_subject_says_what_to_write_instead(text: str, words: str) -> None:
    with pytest.raises(SubjectError) as refused:
        Subject.parse(text)
    assert words in str(refused.value)


def test_facts_that_are_not_past_tense_are_declared() -> None:
    assert Subject.parse("hotel.booking.no_show.v1").verb == "no_show"
    assert Subject.parse("lock.vendor.error.v1").verb == "error"
    with pytest.raises(SubjectError):
        Subject.parse("lock.device.error.v1")
    assert Subject.parse("lock.device.error.v1", exceptions={"device.error"}).verb == "error"
    assert Subject.parse("lock.device.error.v1", exceptions={"error"}).verb == "error"
    assert Subject.relative("device.error.v1", service="lock", exceptions=["device.error"]).verb == "error"


def test_past_tense_is_told_from_words_that_end_alike() -> None:
    past = "placed held sent paid bought built made begun sold lost won left found met agreed freed timed_out "
    past += "check_in_started status_changed local_completed signed_up run set wrote went"
    assert [verb for verb in past.split() if not is_past(verb)] == []
    present = "place hold need feed speed proceed exceed embed red ed bed in out send check_in_start seed"
    assert [verb for verb in present.split() if is_past(verb)] == []


@pytest.mark.parametrize(
    ("verb", "past"),
    [
        ("place", "placed"),
        ("hold", "held"),
        ("holding", "held"),
        ("making", "made"),
        ("ship", "shipped"),
        ("cancel", "cancelled"),
        ("cancels", "cancelled"),
        ("modify", "modified"),
        ("deploy", "deployed"),
        ("proceed", "proceeded"),
        ("fix", "fixed"),
        ("load", "loaded"),
        ("status_change", "status_changed"),
        ("time_out", "timed_out"),
        ("payment", None),
    ],
)
def test_the_past_tense_is_guessed(verb: str, past: str | None) -> None:
    assert past_of(verb) == past
