"""Retirement: versions that are gone for good, with the day, in a file beside the frozen schemas; and when that may be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

import msgspec

from posthouse.errors import ConfigurationError
from posthouse.events.limits import UNREADABLE

RETIRED = "retired.json"
QUIET_DAYS = 7
DUAL_DAYS = 14
"""So long both versions are published, so that readers have time to move."""
DAY = 86_400.0


class RetiredList(msgspec.Struct, frozen=True):
    """What retired.json holds: the day by subject."""

    retired: Mapping[str, date] = {}


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """That `who` did something (`what`: published, applied) with a subject, last at `at`, in seconds since 1970."""

    who: str
    what: str
    at: float


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Since when a service was watched; None when it never was."""

    service: str
    since: float | None


class Dual(msgspec.Struct, frozen=True, kw_only=True):
    """How long a version was published beside a newer one: from `since`, when that was first published (None: it never was), to
    `until`, when the old one was last; in seconds since 1970."""

    newer: str
    since: float | None
    until: float

    @property
    def days(self) -> float:
        return 0.0 if self.since is None else max(0.0, self.until - self.since) / DAY


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the use of one subject. `beside` are the services whose code still publishes it beside a newer
    version; `unasked` the consumers of its topic that were not asked; `held` how many events of it a consumer holds; `dual` how long it was published beside its
    successor, None where it has none or was never published."""

    subject: str
    uses: Sequence[Use] = ()
    watched: Sequence[Watch] = ()
    beside: Sequence[str] = ()
    unasked: Sequence[str] = ()
    held: Mapping[str, int] = {}
    dual: Dual | None = None


def obstacles(evidence: Evidence, now: float, *, early: bool = False) -> list[str]:
    """Why a subject may not be retired yet, one sentence each; empty when seven days were quiet and, unless it is `early`, both
    versions were published for two weeks."""
    quiet_since = now - QUIET_DAYS * DAY
    subject = evidence.subject
    problems = [f"{name} still publishes it beside a newer version: remove its downcast" for name in evidence.beside]
    problems += [
        f"{use.who} {use.what} it {ago(now - use.at)}, on {day_of(use.at)}: {QUIET_DAYS} quiet days are needed"
        for use in sorted(evidence.uses, key=lambda use: (use.who, use.what))
        if use.at > quiet_since
    ]
    problems += [
        _unwatched(watch, now) for watch in evidence.watched if watch.since is None or watch.since > quiet_since
    ]
    problems += [
        f"{name} reads its topic and was not asked: name its service too, or vouch for it with --unseen {name}"
        for name in sorted(evidence.unasked)
    ]
    problems += [
        f"{name} holds {number:,} of its events: apply or skip them, see `posthouse held list TARGET`"
        for name, number in sorted(evidence.held.items())
    ]
    if evidence.dual is not None and evidence.dual.days < DUAL_DAYS and not early:
        problems.append(_too_short(evidence.dual))
    return [f"{subject}: {problem}" for problem in problems]


def read_retired(text: bytes | None) -> Mapping[str, date]:
    """The day by subject; nothing where there is no file. Raises ConfigurationError."""
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=RetiredList).retired
    except UNREADABLE as error:
        raise ConfigurationError(f"{RETIRED} cannot be read: {error}; resolve the merge or restore it") from error


def retired_file(retired: Mapping[str, date]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(RetiredList(dict(sorted(retired.items())))), indent=2) + b"\n"


def refusal(subject: str, retired: Mapping[str, date]) -> str | None:
    """Why a subject may not be declared by its owner any more; None when it may."""
    day = retired.get(subject)
    if day is None:
        return None
    return f"{subject} was retired on {day:%Y-%m-%d} and cannot be published any more: declare a later version"


def ago(seconds: float) -> str:
    """`today`, or a number of days."""
    days = int(seconds // DAY)
    return "today" if days < 1 else f"{days} day{'s' if days > 1 else ''} ago"


def day_of(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def _too_short(dual: Dual) -> str:
    if dual.since is None:
        found = f"{dual.newer} was never published beside it"
    else:
        found = f"it was published beside {dual.newer} for {dual.days:.0f} days, from {day_of(dual.since)} on"
    return f"{found}: readers have {DUAL_DAYS} days to move, so publish both for so long, or say --early with --why"


def _unwatched(watch: Watch, now: float) -> str:
    if watch.since is None:
        return f"{watch.service} has not run since versions are watched: nothing is known about its use"
    return f"{watch.service} is watched since {day_of(watch.since)} only: {QUIET_DAYS} days are needed"
