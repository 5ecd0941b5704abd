"""Which consumers a change touches."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from posthouse.governance.bundle import Bundle, ConsumerEntry
from posthouse.governance.document import Reading
from posthouse.governance.gate.readers import Readers
from tests.unit.governance.gate.shop import SUBJECT, billing, frozen, orders


def reading(*fields: str) -> Bundle:
    read = Reading(subject=SUBJECT, fields=fields or None)
    entry = ConsumerEntry(handler="shop.invoice", service="billing", consumer="billing", reads=(read,))
    return Bundle(consumers=(entry,))


@pytest.mark.parametrize(
    ("fields", "path", "touched"),
    [
        (("total",), "/total", True),
        (("total",), "/total_cents", False),
        (("customer",), "/customer/name", True),
        (("customer.name",), "/customer", True),
        (("customer.name",), "/customer/name/first", True),
        (("customer.name",), "/customer/street", False),
        (("items.price",), "/items/*/price", True),
        (("items.price",), "/items/*/name", False),
        (("a/b",), "/a~1b", True),
        (("total",), "", True),
    ],
)
def test_who_reads_a_field_is_touched_by_what_happens_in_or_around_it(
    fields: tuple[str, ...], path: str, touched: bool
) -> None:
    assert bool(Readers(reading(*fields)).of(SUBJECT, path)) is touched


def test_who_does_not_say_what_it_reads_may_read_everything() -> None:
    (one,) = Readers(reading()).of(SUBJECT, "/total")
    assert not one.certain
    assert str(one) == "shop.invoice (billing), which may read it"
    (whole,) = Readers(reading()).of(SUBJECT)
    assert str(whole) == "shop.invoice (billing)"


def test_other_events_touch_nobody() -> None:
    assert Readers(reading()).of("shop.orders.order.paid.v1", "/total") == ()


def test_those_at_work_count_as_well_as_those_that_come() -> None:
    before, after = reading("total_cents"), reading("total")
    assert Readers(before, after).of(SUBJECT, "/total_cents")
    assert Readers(before, after).of(SUBJECT, "/total")
    assert len(Readers(before, before).of(SUBJECT, "/total_cents")) == 1


def test_certainty_wins_where_only_one_side_says() -> None:
    for sides in ((reading("total"), reading()), (reading(), reading("total"))):
        (one,) = Readers(*sides).of(SUBJECT, "/total")
        assert one.certain


def test_a_group_of_which_only_the_subscription_is_known_may_read_it() -> None:
    bundle = replace(frozen(orders(), billing(consumer="mail")), consumers=())
    (one,) = Readers(bundle).of(SUBJECT, "/note")
    assert str(one) == "billing.mail, which may read it"
