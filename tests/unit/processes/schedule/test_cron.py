"""Which moments an expression names, where clocks change too, and what has to run of those that were missed."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from posthouse.errors import ConfigurationError
from posthouse.processes.schedule.cron import COUNTED, Cron, Missed, cron_of, due

BERLIN = ZoneInfo("Europe/Berlin")


def at(*when: int, tz: ZoneInfo | None = None) -> float:
    year, month, day, hour, minute = when
    return datetime(year, month, day, hour, minute, tzinfo=tz or UTC).timestamp()


def times(expression: str, start: float, number: int) -> list[str]:
    """The next moments in Berlin, with their offsets."""
    moments = Cron(expression, "Europe/Berlin").moments(start)
    return [f"{datetime.fromtimestamp(next(moments), BERLIN):%d %H:%M%z}" for _ in range(number)]


def test_an_expression_is_read_in_its_zone() -> None:
    assert Cron("0 6 * * *", "Asia/Kabul").after(at(2026, 11, 16, 0, 0)) == at(2026, 11, 16, 1, 30)


def test_the_next_moment_is_later_than_the_one_before() -> None:
    cron = Cron("0 6 * * *", "UTC")
    assert cron.after(at(2026, 11, 16, 6, 0)) == at(2026, 11, 17, 6, 0)
    assert cron.after(at(2026, 11, 16, 6, 0) - 0.001) == at(2026, 11, 16, 6, 0)
    assert cron.last(at(2026, 11, 16, 6, 0)) == at(2026, 11, 16, 6, 0)
    assert cron.last(at(2026, 11, 16, 5, 59)) == at(2026, 11, 15, 6, 0)


def test_a_time_that_does_not_exist_comes_right_after_the_change() -> None:
    night = at(2026, 3, 28, 12, 0)
    assert times("30 2 * * *", night, 2) == ["29 03:00+0200", "30 02:30+0200"]


def test_a_time_that_exists_twice_comes_once() -> None:
    night = at(2026, 10, 24, 12, 0)
    assert times("30 2 * * *", night, 2) == ["25 02:30+0200", "26 02:30+0100"]
    second = datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1).timestamp()
    assert times("30 2 * * *", second, 1) == ["26 02:30+0100"], "also for whoever looks in the second hour"


def test_every_half_hour_goes_on_in_real_time() -> None:
    assert times("*/30 * * * *", at(2026, 10, 25, 0, 15), 4) == [
        "25 02:30+0200",
        "25 02:00+0100",
        "25 02:30+0100",
        "25 03:00+0100",
    ]
    assert times("*/30 * * * *", at(2026, 3, 29, 0, 45), 2) == ["29 03:00+0200", "29 03:30+0200"]


FIRST, NOW = at(2026, 11, 16, 6, 0), at(2026, 11, 18, 6, 0) + 0.5


@pytest.mark.parametrize(
    ("missed", "now", "moments", "uncounted"),
    [
        ("once", FIRST + 0.5, [0], 0),
        ("all", FIRST + 0.5, [0], 0),
        ("skip", FIRST + 0.5, [0], 0),
        ("once", NOW, [2], 2),
        ("all", NOW, [0, 1, 2], 0),
        ("skip", NOW, [2], 2),
        ("skip", NOW + 3600, [], 3),
        ("once", NOW + 3600, [2], 2),
    ],
)
def test_what_was_missed_runs_by_the_rule(missed: Missed, now: float, moments: list[int], uncounted: int) -> None:
    found = due(Cron("0 6 * * *", "UTC"), FIRST, now, missed)
    assert found.moments == tuple(FIRST + day * 86_400 for day in moments)
    assert found.missed == uncounted
    assert found.next_at == (FIRST + 86_400 if now == FIRST + 0.5 else FIRST + 3 * 86_400)


def test_a_year_of_minutes_is_caught_up_with_at_once_or_in_parts() -> None:
    cron, now = Cron("* * * * *", "Asia/Kabul"), FIRST + 365 * 86_400 + 30
    once = due(cron, FIRST, now, "once")
    assert (once.moments, once.missed, once.next_at) == ((now - 30,), COUNTED - 1, now + 30)
    parts = due(cron, FIRST, now, "all")
    assert len(parts.moments) == 100
    assert parts.next_at == FIRST + 100 * 60


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("61 * * * *", "its minute, '61', cannot be"),
        ("0 25 * * *", "its hour, '25', cannot be"),
        ("0 6 32 * *", "its day-of-month, '32', cannot be"),
        ("0 6 * 13 *", "its month, '13', cannot be"),
        ("0 6 * * Freitag", "its day-of-week, 'Freitag', cannot be"),
        ("0 6 * * 1#9", "its day-of-week, '1#9', cannot be"),
        ("*/0 * * * *", r"its minute, '\*/0', cannot be"),
        ("0 0 30 2 *", "a moment that never comes"),
        ("@daily", r"nicknames are not read: write '0 0 \* \* \*'"),
        ("@reboot", "nicknames are not read: write five fields"),
        ("0 0 6 * * *", "has 6 fields and needs five, minute, hour, .*: seconds are not read"),
        ("0 6 * *", "has 4 fields and needs five"),
        ("", "has 0 fields"),
    ],
)
def test_a_bad_expression_is_refused_with_the_field_that_is_wrong(expression: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        cron_of("hotel.every", expression, "UTC")


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'Asia/Kabul'"):
        cron_of("hotel.every", "0 6 * * *", "Asia/Kabl")


@pytest.mark.parametrize(
    "expression", ["0 6 * * FRI", "0 6 L * *", "0 6 * * 1#2", "0 6 LW * *", "5,35 8-16/2 * JAN,JUL 1-5"]
)
def test_names_lists_ranges_and_the_last_day_are_read(expression: str) -> None:
    assert cron_of("hotel.every", f"  {expression}  ", "Asia/Kabul").expression == expression
