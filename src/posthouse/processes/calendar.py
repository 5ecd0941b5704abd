"""Calendars: when working time is over. One is a hook; a week with days off, hours and holidays is here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import cached_property
from typing import Literal, Protocol
from zoneinfo import ZoneInfo

import msgspec

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.options import Options

Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
DAYS: tuple[Day, ...] = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

MOST_DAYS = 3660
"""No working time is looked for further ahead."""


class Calendar(Protocol):
    """Which moment it is after some working time. `start` is in UTC; the answer has a time zone and is not before it. Called
    in a transaction while the saga is locked: it looks at tables in memory, and asks nobody."""

    def working_days(self, start: datetime, days: int) -> datetime:
        """The moment that is so many working days later."""
        ...

    def working_hours(self, start: datetime, hours: float) -> datetime:
        """The moment at which so many working hours have passed."""
        ...


class Working(msgspec.Struct, frozen=True, kw_only=True):
    """Working time by a calendar: days, or else hours."""

    days: int | None = None
    hours: float | None = None
    calendar: Calendar

    def __str__(self) -> str:
        if self.days is not None:
            return f"{self.days} working {'day' if self.days == 1 else 'days'}"
        return f"{self.hours:g} working {'hour' if self.hours == 1 else 'hours'}"

    def after(self, start: float) -> datetime:
        """The moment, in UTC. ConfigurationError for an answer of the calendar that is none."""
        begin = datetime.fromtimestamp(start, UTC)
        if self.days is not None:
            found: object = self.calendar.working_days(begin, self.days)
        else:
            found = self.calendar.working_hours(begin, self.hours or 0.0)
        if not isinstance(found, datetime) or found.utcoffset() is None or found < begin:
            raise ConfigurationError(
                f"{type(self.calendar).__name__} says that {self} after {begin:%Y-%m-%d %H:%M} UTC it is {found!r:.60}: that "
                "has to be a datetime with a time zone, and not before"
            )
        return found.astimezone(UTC)


class WorkWeek(Options):
    """A `Calendar`: a week in a time zone, with days off, hours and holidays. A day that the clocks change on has the hours
    that it has. A time of day that does not exist is as much later as the clocks were moved; of two, it is the first."""

    tz: str
    """The name of the time zone, as in `Asia/Kabul`."""
    off: tuple[Day, ...]
    """The days of the week that nobody works on."""
    hours: tuple[str, str] = ("00:00", "24:00")
    """From when to when a working day goes; `24:00` is its end."""
    holidays: Collection[date] | Callable[[date], bool] = ()
    """Days that nobody works on, or what says whether one is."""

    def conflicts(self) -> list[str]:
        found = [zone] if (zone := no_zone("WorkWeek", self.tz)) else []
        if set(DAYS) <= set(self.off):
            found.append("WorkWeek(off=…) leaves no day to work on")
        try:
            begin, end = map(_minutes, self.hours)
        except ValueError:
            found.append(f"WorkWeek(hours={self.hours!r}): write two times of day, as in hours=('08:00', '16:00')")
        else:
            if begin >= end:
                found.append(f"WorkWeek(hours={self.hours!r}): a working day begins before it ends, on one day")
        return found

    def is_working(self, day: date) -> bool:
        """Whether somebody works on that day."""
        if DAYS[day.weekday()] in self.off:
            return False
        return not (self.holidays(day) if callable(self.holidays) else day in self.holidays)

    def working_days(self, start: datetime, days: int) -> datetime:
        """The same time of day, so many working days later; the day of the start does not count."""
        local = start.astimezone(self._zone)
        if days <= 0:
            return local
        for day in self._days(local.date() + timedelta(days=1)):
            days -= self.is_working(day)
            if not days:
                return datetime.combine(day, local.time().replace(fold=0), self._zone).astimezone(UTC)
        raise self._never(start)

    def working_hours(self, start: datetime, hours: float) -> datetime:
        """When so many hours of working days have passed, as a watch counts them."""
        left = timedelta(hours=hours)
        for day in filter(self.is_working, self._days(start.astimezone(self._zone).date())):
            opens, closes = (self._at(day, _minutes(word)) for word in self.hours)
            begin = max(opens, start)
            if left <= closes - begin:
                return begin + left
            left -= max(closes - begin, timedelta())
        raise self._never(start)

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.tz)

    def _days(self, first: date) -> Iterator[date]:
        return (first + timedelta(days=number) for number in range(MOST_DAYS))

    def _at(self, day: date, minutes: int) -> datetime:
        days, rest = divmod(minutes, 24 * 60)
        moment = datetime.combine(day + timedelta(days=days), time(rest // 60, rest % 60), self._zone)
        return moment.astimezone(UTC)

    def _never(self, start: datetime) -> ConfigurationError:
        return ConfigurationError(f"WorkWeek: there is not enough working time in the ten years after {start:%Y-%m-%d}")


def _minutes(word: str) -> int:
    """Minutes since midnight. ValueError for what is no time of day."""
    if word == "24:00":
        return 24 * 60
    found = time.fromisoformat(word)
    if found.second or found.microsecond or found.tzinfo is not None:
        raise ValueError(word)
    return found.hour * 60 + found.minute


def no_zone(owner: str, name: str) -> str:
    """What is wrong with the name of a time zone; empty when there is one."""
    from zoneinfo import available_timezones  # reads the whole database of zones, and only who misspells one needs it

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        close = get_close_matches(name, known := available_timezones(), n=1)
        if not known:
            return f"{owner}(tz={name!r}): this machine has no database of time zones: install the package tzdata"
        return f"{owner}(tz={name!r}): there is no such time zone.{did_you_mean(name, close)}"
    return ""
