"""Cron: the moments that an expression names, in a time zone. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec

from posthouse.clock import SystemClock
from posthouse.errors import ConfigurationError
from posthouse.processes.calendar import no_zone

Missed = Literal["once", "all", "skip"]
"""What becomes of moments that passed while nobody ran: one run for all of them, one run each, or none."""

LATE = 60.0
"""Seconds after which a moment is missed."""
AT_ONCE = 100
"""At most so many runs are begun in one transaction, but those of one moment together."""
COUNTED = 1000
"""At most so many missed moments are counted, where one run stands for all."""

FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Cron(msgspec.Struct, frozen=True):
    """Five fields of cron in a time zone, as Debian's cron reads them. Where clocks change, a fixed time that does not exist
    comes right after the change, and one that exists twice comes once, the first time; expressions whose minute or hour begins
    with `*` go on in real time."""

    expression: str
    tz: str

    def after(self, moment: float) -> float:
        """The next one, later than a moment in seconds since 1970."""
        return next(self.moments(moment))

    def moments(self, after: float) -> Iterator[float]:
        """All that are later, in order. ConfigurationError where there is none within 50 years."""
        for found in _simulated(self.expression, datetime.fromtimestamp(after, ZoneInfo(self.tz))):
            if found.timestamp() > after:  # in an hour that comes twice it may begin with the first
                after = found.timestamp()
                yield after
        raise ConfigurationError(f"{self.expression!r} names a moment that never comes")

    def last(self, until: float) -> float | None:
        """The latest one that is not after a moment."""
        end = datetime.fromtimestamp(until, ZoneInfo(self.tz)) + timedelta(seconds=1)
        before = (found.timestamp() for found in _simulated(self.expression, end, reverse=True))
        return next((moment for moment in before if moment <= until), None)


class Due(msgspec.Struct, frozen=True):
    """What has to run: the moments, how many were missed and have no run of their own, and what comes next."""

    moments: tuple[float, ...]
    missed: int
    next_at: float


def due(cron: Cron, first: float, now: float, missed: Missed, most: int = AT_ONCE) -> Due:
    """What has to run at a time when `first`, and perhaps more, has come; with "all" at most so many moments, and the rest next
    time."""
    moments, found = cron.moments(first), [first]
    while (moment := next(moments)) <= now and len(found) < (most if missed == "all" else COUNTED):
        found.append(moment)
    if missed == "all":
        return Due(tuple(found), 0, moment)
    latest = found[-1] if moment > now else max(found[-1], cron.last(now) or 0.0)
    runs = missed == "once" or now - latest <= LATE
    return Due((latest,) if runs else (), len(found) - runs, cron.after(latest))


def cron_of(owner: str, expression: str, tz: str) -> Cron:
    """Five fields and a zone. ConfigurationError with the field that is wrong."""
    problems = [zone] if (zone := no_zone(owner, tz)) else []
    if wrong := _wrong(expression):
        problems.append(f"{owner}({expression!r}): {wrong}")
    if problems:
        raise ConfigurationError(*problems)
    cron = Cron(" ".join(expression.split()), tz)
    cron.after(SystemClock().now())
    return cron


def _wrong(expression: str) -> str:
    fields = expression.split()
    if fields and fields[0].startswith("@"):
        written = NICKNAMES.get(expression.strip().lower())
        return "nicknames are not read: write " + (repr(written) if written else "five fields, as in '0 6 * * *'")
    if len(fields) != len(FIELDS):
        more = ": seconds are not read" if len(fields) == len(FIELDS) + 1 else ""
        return f"it has {len(fields)} fields and needs five, {', '.join(FIELDS)}{more}"
    for number, (name, field) in enumerate(zip(FIELDS, fields, strict=True)):
        alone = " ".join(field if place == number else "*" for place in range(len(FIELDS)))
        if not _has_moments(alone):
            return f"its {name}, {field!r}, cannot be"
    return "" if _has_moments(expression) else "it names a moment that never comes"


def _has_moments(expression: str) -> bool:
    from cronsim import CronSimError  # as below

    try:
        return next(_simulated(expression, datetime(2000, 1, 1, tzinfo=UTC)), None) is not None
    except (CronSimError, AssertionError, ValueError):
        return False


def _simulated(expression: str, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    from cronsim import CronSim  # only whoever has schedules needs it

    found: Iterator[datetime] = CronSim(expression, start, reverse)
    return found
