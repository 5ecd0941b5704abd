"""Rates come from two looks, and a place where nobody looked stays empty."""

from __future__ import annotations

import pytest

from posthouse.cli.screen.history import MINUTE, History, Series
from tests.unit.cli.screen.seen import history, line, look


def test_one_look_has_no_rate_and_two_have_one() -> None:
    seen = history(look(0.0, line(applied=100), committed=50))
    assert (seen.applied["billing"].rate, seen.committed["orders"].rate) == (None, None)
    seen.add(look(2.0, line(applied=140), committed=60))
    assert (seen.applied["billing"].rate, seen.committed["orders"].rate) == (20.0, 5.0)


def test_what_was_applied_in_several_topics_is_one_rate() -> None:
    seen = history(look(0.0, line(applied=1), line(applied=2)), look(1.0, line(applied=4), line(applied=6)))
    assert seen.applied["billing"].rate == 7.0


def test_a_rate_is_of_the_last_seconds_and_not_of_the_whole_minute() -> None:
    series = Series()
    for second in range(40):
        series.add(float(second), 1000 * second)
    for second in range(40, 50):
        series.add(float(second), 39_000)
    assert series.rate == 0.0


def test_after_a_look_that_failed_the_rate_starts_anew() -> None:
    """What was done meanwhile was not done in the time between two looks that are known."""
    seen = history(look(0.0, line(applied=0)), look(1.0, line(applied=10)))
    seen.miss("the store is away", 2.0)
    seen.miss("the store is still away", 3.0)
    assert (seen.missed, seen.missed_at) == ("the store is still away", 2.0)
    assert seen.verdict == "cannot tell"
    seen.add(look(30.0, line(applied=5000)))
    assert (seen.missed, seen.applied["billing"].rate) == ("", None)
    seen.add(look(31.0, line(applied=5007)))
    assert seen.applied["billing"].rate == 7.0
    assert max(bar for bar in seen.applied["billing"].bars(60, 31.0) if bar is not None) == 10.0


def test_a_count_that_went_back_is_another_one() -> None:
    series = Series()
    series.add(0.0, 1000)
    series.add(1.0, 3)
    assert series.rate is None
    series.add(2.0, 8)
    assert series.rate == 5.0


def test_the_bars_of_a_minute_hold_all_that_happened_in_it_and_nothing_from_before() -> None:
    series = Series()
    for second in range(200):
        series.add(float(second), 7 * second + (500 if second > 180 else 0))
    bars = [bar for bar in series.bars(20, 199.0) if bar is not None]
    assert len(bars) == 20
    width = MINUTE / 20
    seconds = 199.0 - ((199.0 // width + 1) * width - MINUTE)
    assert sum(bars[:-1]) * width + bars[-1] * (199.0 % width) == pytest.approx(7 * seconds + 500)
    assert max(bars) == pytest.approx(7 + 500 / width)
    assert len(series.points) <= MINUTE + 2


def test_before_the_first_look_the_minute_is_empty() -> None:
    series = Series()
    for second in range(4):
        series.add(100.0 + second, second)
    assert series.bars(60, 103.0)[:-4] == [None] * 56
    assert History().applied == {}
    assert Series().bars(8, 5.0) == [None] * 8


def test_a_bar_keeps_its_height_while_it_wanders() -> None:
    series = Series()
    for second in range(30):
        series.add(float(second), second * second)
    before = series.bars(20, 29.0)
    series.add(30.0, 900)
    series.add(32.5, 1000)
    assert series.bars(20, 32.5)[-3] == pytest.approx(before[-2])
