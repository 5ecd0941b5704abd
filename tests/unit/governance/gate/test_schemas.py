"""Schemas that changed, came or went between two bundles."""

from __future__ import annotations

from datetime import date

import pytest
from msgspec.structs import replace

from posthouse import Payload, Service
from posthouse.contracts import avro
from posthouse.contracts.schema import Schema
from posthouse.governance.evolution import Mode
from posthouse.governance.gate import Severity
from tests.unit.governance.gate.shop import (
    PLACED,
    SUBJECT,
    Declare,
    Placed,
    PlacedByOwner,
    PlacedWithoutTotal,
    PlacedWithVoucher,
    billing,
    frozen,
    only,
    orders,
    placed,
    report,
)


def second(payload: type = PlacedWithVoucher) -> Declare:
    return lambda service: service.event("order.placed.v2", key="order_id")(payload)


def dual(service: Service) -> None:
    """Every v2 is also said as a v1."""
    service.downcast(PlacedWithVoucher, to=Placed)(lambda new: Placed(order_id=new.order_id, total_cents=0))


def test_what_did_not_change_passes_without_a_word() -> None:
    found = report(frozen(orders()), frozen(orders()))
    assert found.objections == ()
    assert found.passes
    assert (found.schemas, found.changed) == (1, 0)


def test_an_added_optional_field_passes() -> None:
    found = report(frozen(orders()), frozen(orders(), orders(placed(PlacedWithVoucher))))
    assert found.passes
    assert found.changed == 1


def test_a_removed_field_names_place_rule_victims_example_and_way_out() -> None:
    one = only(report(frozen(orders(), billing()), frozen(orders(placed(PlacedWithoutTotal)), billing())))
    assert (one.severity, one.rule, one.path, one.file) == (Severity.ERROR, "field-removed", "/total_cents", PLACED)
    assert one.subject == SUBJECT
    assert one.breaks == "old readers of new data"
    assert one.example == {"order_id": "a"}
    assert "leave v1 as it was, declare shop.orders.order.placed.v2 beside it, and publish both" in one.way_out
    assert [(who.consumer, who.certain) for who in one.touched] == [("billing", True)]


def test_the_mode_decides() -> None:
    before, after = frozen(orders()), frozen(orders(), orders(placed(PlacedWithoutTotal)))
    assert report(before, after, Mode.BACKWARD).passes
    assert not report(before, after, Mode.FORWARD).passes


def test_what_cannot_be_judged_does_not_pass_and_says_so() -> None:
    before = frozen(orders())
    schema = before.schemas[PLACED]
    other = Schema("json", schema.schema.text.replace('"type":"string"', '"format":"x-own","type":"string"', 1))
    assert other != schema.schema
    after = replace(before, schemas={PLACED: replace(schema, schema=other)})
    unjudged = [one for one in report(before, after).objections if one.rule == "format-narrowed"]
    assert [one.severity for one in unjudged] == [Severity.ERROR]
    assert unjudged[0].breaks.endswith("it could not be proven that it does not")


def test_a_schema_that_is_none_is_an_objection_and_no_crash() -> None:
    before = frozen(orders())
    schema = before.schemas[PLACED]
    bad = replace(schema, schema=Schema("json", '{"type":"nonsense"}'))
    found = report(before, replace(before, schemas={PLACED: bad}))
    assert "schema-unusable" in [one.rule for one in found.standing]


def test_a_new_version_beside_the_old_passes_and_names_those_to_be_told() -> None:
    one = only(report(frozen(orders(), billing()), frozen(orders(placed(), second(), dual), billing())))
    assert (one.rule, one.severity) == ("version-added", Severity.NOTE)
    assert one.sentence == "v2 is new, with v1 published beside it."
    assert [who.consumer for who in one.touched] == ["billing"]


def test_a_new_version_that_leaves_readers_of_the_old_without_news_is_an_error() -> None:
    one = only(report(frozen(orders(), billing()), frozen(orders(placed(), second()), billing())))
    assert (one.rule, one.severity) == ("dual-publish-missing", Severity.ERROR)
    assert "v1 is not published beside it: its readers would hear nothing" in one.sentence
    assert "with @service.downcast" in one.way_out
    assert [who.consumer for who in one.touched] == ["billing"]


def test_versions_may_be_published_beside_each_other_in_several_steps() -> None:
    class Third(Payload):
        order_id: str

    def third(service: Service) -> None:
        service.event("order.placed.v3", key="order_id")(Third)
        service.downcast(Third, to=PlacedWithVoucher)(
            lambda new: PlacedWithVoucher(order_id=new.order_id, total_cents=0)
        )

    found = report(frozen(orders()), frozen(orders(placed(), second(), dual, third)))
    assert [one.rule for one in found.objections] == ["version-added", "version-added"]


def test_what_was_retired_may_go() -> None:
    before, after = frozen(orders(placed(), second(), dual)), frozen(orders(second()))
    assert report(before, after).standing
    assert report(before, after, retired={SUBJECT: date(2026, 11, 1)}).objections == ()


def test_a_new_version_in_place_of_the_old_asks_for_both() -> None:
    one = only(report(frozen(orders(), billing()), frozen(orders(second()), billing())))
    assert (one.rule, one.severity) == ("dual-publish-missing", Severity.ERROR)
    assert "v2 takes the place of v1" in one.sentence
    assert "publish both until nobody reads v1" in one.way_out
    assert [who.consumer for who in one.touched] == ["billing"]


def test_a_first_version_needs_nothing() -> None:
    assert report(frozen(), frozen(orders())).objections == ()


@pytest.mark.parametrize(("left", "rule"), [((second(),), "version-removed"), ((), "subject-removed")])
def test_a_version_or_an_event_that_is_gone_is_an_error(left: tuple[Declare, ...], rule: str) -> None:
    before = frozen(orders(placed(), *(second(),) * len(left)), billing())
    after = replace(frozen(orders(*left), billing()) if left else frozen(billing()), envelopes=before.envelopes)
    one = only(report(before, after))
    assert (one.rule, one.severity, one.file) == (rule, Severity.ERROR, PLACED)
    assert "posthouse schema retire shop.orders.order.placed.v1" in one.way_out
    assert one.touched


def test_another_format_under_the_same_version_is_an_error() -> None:
    @avro
    class PlacedInAvro(Payload):
        order_id: str
        total_cents: int

    found = report(frozen(orders(placed(PlacedByOwner))), frozen(orders(placed(PlacedInAvro))))
    assert only(found).rule == "format-changed"
    assert "was json and is avro now" in only(found).sentence


def test_avro_is_compared_by_its_own_rules() -> None:
    @avro
    class Before(Payload):
        order_id: str
        total_cents: int

    @avro
    class After(Payload):
        order_id: str

    def named(payload: type) -> type:
        payload.__name__ = payload.__qualname__ = "OrderPlaced"
        return payload

    found = report(frozen(orders(placed(named(Before)))), frozen(orders(placed(named(After)))))
    assert not found.passes
    assert {one.file for one in found.standing} == {"orders/order/placed/v1.avsc"}


def test_a_file_that_was_edited_by_hand_is_found_without_the_code() -> None:
    before = frozen(orders())
    other = frozen(orders(placed(PlacedWithVoucher))).schemas
    one = only(report(before, replace(before, schemas=other)))
    assert one.rule == "lock-differs"
    assert "edited by hand" in one.sentence


def test_code_that_is_not_frozen_is_compared_all_the_same() -> None:
    before = frozen(orders(), billing())
    found = report(before, before, code=orders(placed(PlacedWithoutTotal)))
    assert [one.rule for one in found.objections] == ["code-changed", "field-removed"]
    assert report(before, before, code=orders(placed(Placed))).objections == ()


def test_the_same_objection_to_another_change_has_another_fingerprint() -> None:
    before = frozen(orders())
    one = only(report(before, frozen(orders(placed(PlacedWithoutTotal)))))
    again = only(report(before, frozen(orders(placed(PlacedWithoutTotal)))))

    class Less(Payload):
        order_id: str
        note: str = ""
        place: str = ""

    other = next(
        found for found in report(before, frozen(orders(placed(Less)))).objections if found.path == "/total_cents"
    )
    assert one.fingerprint == again.fingerprint
    assert (one.rule, one.path) == (other.rule, other.path)
    assert one.fingerprint != other.fingerprint


def test_an_older_version_in_place_of_a_newer_one_is_a_removal() -> None:
    one = only(report(frozen(orders(second())), frozen(orders(placed()))))
    assert (one.rule, one.file) == ("version-removed", "orders/order/placed/v2.json")


def test_a_file_that_is_not_in_the_lock_was_put_there_by_hand() -> None:
    bundle = frozen(orders())
    unlisted = replace(bundle, lock=replace(bundle.lock, schemas={}))
    assert "lock-differs" in [one.rule for one in report(unlisted, unlisted).standing]


def test_a_consumer_that_reads_other_fields_is_not_named() -> None:
    after = orders(placed(PlacedWithoutTotal))
    one = only(report(frozen(orders(), billing(["note"])), frozen(after, billing(["note"]))))
    assert one.touched == ()
    assert one.readers == "no consumer that is known here"


def test_a_consumer_that_changes_along_is_named_because_it_is_at_work_as_it_was() -> None:
    after = orders(placed(PlacedWithoutTotal))
    one = only(report(frozen(orders(), billing(["total_cents"])), frozen(after, billing(["note"]))))
    assert [who.consumer for who in one.touched] == ["billing"]


def test_two_places_of_one_change_have_two_fingerprints() -> None:
    class Bare(Payload):
        order_id: str

    found = report(frozen(orders()), frozen(orders(placed(Bare)))).standing
    assert [(one.rule, one.path) for one in found] == [("field-removed", "/note"), ("field-removed", "/total_cents")]
    assert found[0].fingerprint != found[1].fingerprint
