"""Counting: series that are there from the beginning, and can never be too many."""

from __future__ import annotations

import enum
import logging
import random
from collections.abc import Callable

import pytest

from posthouse.seam.counting import CLASSES, MOST, Counting, TenantClass
from posthouse.seam.timing import OTHERS, Timing


def test_a_series_is_there_as_zero_once_somebody_has_asked_for_it() -> None:
    counting = Counting()
    fenced = counting.counter("relay_fenced_total", "orders")
    assert counting.counts() == [("relay_fenced_total", ("orders",), 0)]

    fenced.value += 2

    assert counting.counter("relay_fenced_total", "orders") is fenced
    assert counting.counts() == [("relay_fenced_total", ("orders",), 2)]


def test_a_million_random_words_make_no_more_series_than_there_may_be() -> None:
    counting, timing, chance = Counting(), Timing(now=lambda: 1.0), random.Random(7)
    known = counting.counter("events_consumed_total", "orders", "mail", "shop.orders", "ok")
    for _ in range(500_000):
        word = f"{chance.getrandbits(64):x}"
        counting.counter("events_consumed_total", "orders", word, "shop.orders", "ok").value += 1
        timing.note("handler", word, 0.0, word)
    for _ in range(5_000):
        counting.histogram("event_processing_seconds", "orders", "mail", f"{chance.getrandbits(64):x}").note(0.1)
    known.value += 1

    counts = counting.counts()
    assert len(counts) <= MOST + 1
    assert sum(number for _, _, number in counts) == 500_001, "nothing is lost by it"
    assert ("events_consumed_total", ("orders", "mail", "shop.orders", "ok"), 1) in counts
    assert next(n for _, labels, n in counts if labels == (OTHERS,) * 4) > 490_000
    assert len(timing.figures()) <= MOST + 1
    assert sum(figure.count for figure in timing.figures()) == 500_000
    assert len(counting.histograms()) <= MOST + 1
    assert sum(sum(one.buckets) for one in counting.histograms()) == 5_000


def test_other_names_are_not_kept_out_by_one_that_has_too_many() -> None:
    counting = Counting()
    for number in range(2 * MOST):
        counting.counter("publish_refused_total", "orders", str(number))

    counting.counter("relay_fenced_total", "orders").value += 1

    assert ("relay_fenced_total", ("orders",), 1) in counting.counts()


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (-1.0, 0), (0.0009, 0), (0.001, 1), (0.9, 10), (63.9, 16), (64.1, 17), (1e9, 17), (1e300, 17)],
)
def test_a_duration_is_noted_in_the_bucket_of_its_power_of_two(seconds: float, bucket: int) -> None:
    one = Counting().histogram("event_processing_seconds", "orders", "mail", "shop.orders")

    one.note(seconds, 2)
    one.note_all([seconds])

    assert [place for place, number in enumerate(one.buckets) if number] == [bucket]
    assert one.buckets[bucket] == 3
    assert one.total == pytest.approx(3 * max(0.0, seconds))


def test_no_duration_is_below_zero_so_their_sum_never_falls() -> None:
    histogram = Counting().histogram("event_age_seconds", "ledger", "ledger")
    histogram.note(-86_400.0)
    histogram.note_all([2.0, -0.5])
    assert histogram.total == 2.0


def test_whoever_listens_is_told_of_each_duration() -> None:
    counting, timing, told = Counting(), Timing(now=lambda: 3.0), list[object]()
    counting.heard = lambda *what: told.append(what)
    timing.heard = lambda *what: told.append(what)

    counting.histogram("event_age_seconds", "orders", "mail").note(2.0)
    counting.histogram("event_age_seconds", "orders", "mail").note_all([3.0, 4.0])
    timing.note("handler", "shop.mail", 1.0)

    assert told == [
        *(("event_age_seconds", ("orders", "mail"), seconds) for seconds in (2.0, 3.0, 4.0)),
        (("handler", "shop.mail", "ok"), 2.0),
    ]


class Size(enum.StrEnum):
    SMALL = "small"


@pytest.mark.parametrize("function", [lambda _: "small", lambda _: Size.SMALL])
def test_a_tenant_has_the_class_that_the_users_function_gives_it(function: TenantClass) -> None:
    word = Counting(function).class_of("t1")

    assert (word, type(word)) == ("small", str)


class Immeasurable(str):
    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError("no length")


def test_a_word_that_does_not_tell_its_length_is_a_word() -> None:
    assert Counting(lambda _: Immeasurable("small")).class_of("t1") == "small"


def test_without_a_function_the_class_is_empty() -> None:
    assert Counting().class_of("t1") == ""


def _raises(tenant: str) -> str:
    raise LookupError(tenant)


@pytest.mark.parametrize(
    "broken",
    [
        _raises,
        lambda _: None,
        lambda _: ["small"],
        lambda _: "",
        lambda _: "x" * 65,
        lambda tenant: tenant,
        lambda _: "gro\udcdf",
        lambda _: "small\x1b[2J",
    ],
)
def test_a_broken_function_is_counted_under_the_others_and_told_once(
    broken: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(broken)
    with caplog.at_level(logging.ERROR, logger="posthouse.counting"):
        assert {counting.class_of(f"tenant-{number}") for number in range(1_000)} == {OTHERS}

    [record] = caplog.records
    assert "tenant_class does not work" in record.getMessage()
    assert "tenant-0" not in record.getMessage()


def test_of_more_than_sixteen_classes_the_later_ones_are_the_others() -> None:
    counting = Counting(lambda tenant: f"class of {tenant}")

    found = {counting.class_of(str(number)) for number in range(10_000)}

    assert len(found - {OTHERS}) == CLASSES
    assert counting.class_of("0") == "class of 0", "those that were first stay"


def test_the_platform_may_be_a_class_of_its_own() -> None:
    assert Counting(lambda tenant: tenant).class_of("platform") == "platform"
