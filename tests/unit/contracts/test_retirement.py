"""When a version may go for good: a pure decision."""

from __future__ import annotations

from datetime import date

import pytest

from posthouse.contracts.retirement import (
    DAY,
    Dual,
    Evidence,
    Use,
    Watch,
    obstacles,
    read_retired,
    refusal,
    retired_file,
)
from posthouse.errors import ConfigurationError

NOW = 1_800_000_000.0
SUBJECT = "shop.orders.order.placed.v1"
LONG = (Watch(service="orders", since=NOW - 8 * DAY),)


def used(days: float) -> Evidence:
    use = Use(who="billing", what="applied", at=NOW - days * DAY)
    return Evidence(subject=SUBJECT, uses=[use], watched=LONG)


def test_a_version_that_was_quiet_for_seven_days_may_go() -> None:
    assert obstacles(used(7), NOW) == []
    assert obstacles(Evidence(subject=SUBJECT, watched=LONG), NOW) == []


def test_a_version_that_was_used_within_seven_days_may_not_and_the_user_is_named() -> None:
    assert obstacles(used(6.9), NOW) == [
        f"{SUBJECT}: billing applied it 6 days ago, on 2027-01-08: 7 quiet days are needed"
    ]
    assert "it today, on 2027-01-15" in obstacles(used(0.1), NOW)[0]
    assert "it 1 day ago" in obstacles(used(1.5), NOW)[0]


def test_nothing_is_known_of_a_service_that_was_not_watched_for_seven_days() -> None:
    short, never = Watch(service="a", since=NOW - 6.9 * DAY), Watch(service="b", since=None)
    first, second = obstacles(Evidence(subject=SUBJECT, watched=[short, never]), NOW)
    assert "a is watched since 2027-01-08 only" in first
    assert "b has not run since versions are watched" in second


def test_every_obstacle_is_told_at_once() -> None:
    found = obstacles(
        Evidence(subject=SUBJECT, beside=["orders"], unasked=["mail.welcome"], held={"billing": 1200}, watched=LONG),
        NOW,
    )
    assert [sentence.removeprefix(f"{SUBJECT}: ") for sentence in found] == [
        "orders still publishes it beside a newer version: remove its downcast",
        "mail.welcome reads its topic and was not asked: name its service too, or vouch for it with --unseen mail.welcome",
        "billing holds 1,200 of its events: apply or skip them, see `posthouse held list TARGET`",
    ]


@pytest.mark.parametrize(("days", "may"), [(14, True), (13.9, False), (0, False)])
def test_both_versions_are_published_for_two_weeks_unless_it_is_said_that_it_is_early(days: float, may: bool) -> None:
    dual = Dual(newer="shop.orders.order.placed.v2", since=NOW - (days + 8) * DAY, until=NOW - 8 * DAY)
    found = obstacles(Evidence(subject=SUBJECT, watched=LONG, dual=dual), NOW)
    assert (found == []) is may
    assert obstacles(Evidence(subject=SUBJECT, watched=LONG, dual=dual), NOW, early=True) == []
    if not may:
        assert "it was published beside shop.orders.order.placed.v2 for" in found[0]
        assert "14 days to move" in found[0]


def test_a_version_whose_successor_was_never_published_beside_it_may_not_go() -> None:
    dual = Dual(newer="shop.orders.order.placed.v2", since=None, until=NOW - 8 * DAY)
    (found,) = obstacles(Evidence(subject=SUBJECT, watched=LONG, dual=dual), NOW)
    assert "shop.orders.order.placed.v2 was never published beside it" in found


def test_the_list_of_retired_versions_is_read_as_it_was_written() -> None:
    retired = {"b.c.done.v1": date(2027, 1, 2), "a.c.done.v1": date(2026, 1, 2)}
    text = retired_file(retired)
    assert read_retired(text) == retired
    assert text.index(b"a.c.done") < text.index(b"b.c.done")
    assert read_retired(None) == {}


def test_a_list_that_cannot_be_read_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match=r"retired\.json cannot be read.*restore it"):
        read_retired(b"<<<<<<< HEAD")


def test_a_retired_version_may_not_be_declared_and_others_may() -> None:
    retired = {SUBJECT: date(2027, 1, 2)}
    assert refusal(SUBJECT, retired) == (
        f"{SUBJECT} was retired on 2027-01-02 and cannot be published any more: declare a later version"
    )
    assert refusal("shop.orders.order.placed.v2", retired) is None
