"""Working time: a week with Friday off, holidays, and days on which the clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from posthouse.errors import ConfigurationError
from posthouse.processes import WorkWeek
from posthouse.processes.calendar import Working

KABUL = WorkWeek(tz="Asia/Kabul", off=("friday",), hours=("08:00", "16:00"))
BERLIN = WorkWeek(tz="Europe/Berlin", off=("saturday", "sunday"), hours=("08:00", "16:00"))


def kabul(day: int, hour: int, minute: int = 0) -> datetime:
    """In November 2026, whose 19th is a Thursday."""
    return datetime(2026, 11, day, hour, minute, tzinfo=ZoneInfo("Asia/Kabul"))


def berlin(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=ZoneInfo("Europe/Berlin"))


def test_friday_is_no_working_day_in_kabul() -> None:
    assert KABUL.working_days(kabul(18, 10), 1) == kabul(19, 10)
    assert KABUL.working_days(kabul(18, 10), 2) == kabul(21, 10)
    assert KABUL.working_days(kabul(20, 10), 1) == kabul(21, 10), "begun on a Friday"


def test_the_day_of_the_start_is_the_one_of_the_calendars_zone() -> None:
    start = datetime(2026, 11, 18, 20, 0, tzinfo=UTC)  # half past midnight on Thursday in Kabul
    assert KABUL.working_days(start, 1) == kabul(21, 0, 30)


def test_hours_are_counted_while_the_office_is_open() -> None:
    assert KABUL.working_hours(kabul(18, 10), 2) == kabul(18, 12)
    assert KABUL.working_hours(kabul(18, 5), 2) == kabul(18, 10), "before it opens"
    assert KABUL.working_hours(kabul(18, 15), 2) == kabul(19, 9), "over the night"
    assert KABUL.working_hours(kabul(19, 15, 30), 1) == kabul(21, 8, 30), "over Friday"
    assert KABUL.working_hours(kabul(19, 18), 0.5) == kabul(21, 8, 30), "after it has closed"
    assert KABUL.working_hours(kabul(18, 8), 8) == kabul(18, 16), "a whole day ends with that day"


def test_holidays_are_days_or_what_knows_them() -> None:
    by_table = WorkWeek(tz="Asia/Kabul", off=("friday",), holidays={date(2026, 11, 19)})
    by_function = WorkWeek(tz="Asia/Kabul", off=("friday",), holidays=lambda day: day == date(2026, 11, 19))
    assert by_table.working_days(kabul(18, 10), 1) == by_function.working_days(kabul(18, 10), 1) == kabul(21, 10)


def test_a_working_day_over_the_change_of_clocks_keeps_its_time_of_day() -> None:
    spring = BERLIN.working_days(berlin(3, 27, 10), 1)
    assert spring == berlin(3, 30, 10)
    assert spring - berlin(3, 27, 10).astimezone(UTC) == timedelta(days=3, hours=-1)
    autumn = BERLIN.working_days(berlin(10, 23, 10), 1)
    assert autumn - berlin(10, 23, 10).astimezone(UTC) == timedelta(days=3, hours=1)


def test_a_time_of_day_that_does_not_exist_is_later_and_of_two_it_is_the_first() -> None:
    always = WorkWeek(tz="Europe/Berlin", off=())
    assert always.working_days(berlin(3, 28, 2, 30), 1) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # 3:30 there
    assert always.working_days(berlin(10, 24, 2, 30), 1) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_hours_of_a_day_on_which_the_clocks_change_are_those_that_a_watch_counts() -> None:
    always = WorkWeek(tz="Europe/Berlin", off=())
    assert always.working_hours(berlin(3, 29, 0), 23) == berlin(3, 30, 0), "the day has 23"
    assert always.working_hours(berlin(10, 25, 0), 25) == berlin(10, 26, 0), "the day has 25"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tz": "Asia/Kabull", "off": ()}, "there is no such time zone. Did you mean 'Asia/Kabul'?"),
        ({"tz": "UTC", "off": ("fri",)}, "a tuple, each 'monday' or"),
        ({"tz": "UTC", "off": (), "hours": ("8", "noon")}, "write two times of day"),
        ({"tz": "UTC", "off": (), "hours": ("16:00", "08:00")}, "begins before it ends"),
        (
            {
                "tz": "UTC",
                "off": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
            },
            "leaves no day",
        ),
    ],
)
def test_a_week_that_cannot_be_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words.replace("?", r"\?")):
        WorkWeek(**options)  # type: ignore[arg-type]


def test_a_calendar_without_working_days_ends_the_search() -> None:
    never = WorkWeek(tz="UTC", off=(), holidays=lambda day: True)
    with pytest.raises(ConfigurationError, match="not enough working time"):
        never.working_days(kabul(1, 1), 1)
    with pytest.raises(ConfigurationError, match="not enough working time"):
        never.working_hours(kabul(1, 1), 1)


class Broken:
    """A calendar whose answers are none."""

    def __init__(self, answer: datetime) -> None:
        self.answer = answer

    def working_days(self, start: datetime, days: int) -> datetime:
        return self.answer

    def working_hours(self, start: datetime, hours: float) -> datetime:
        return self.answer


@pytest.mark.parametrize("answer", [datetime(2030, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)])
def test_an_answer_without_a_zone_or_from_before_the_start_is_refused(answer: datetime) -> None:
    with pytest.raises(ConfigurationError, match="Broken says that 3 working days after 2027-01-15"):
        Working(days=3, calendar=Broken(answer)).after(1_800_000_000.0)
