"""Deprecation: which events are on their way out, in words."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from posthouse.contracts.catalogue import EventType


def deprecations(known: Collection[EventType[object]], today: date, *, past: bool) -> list[str]:
    """A sentence for each event that has a date, sorted; with `past` only for those whose date has come."""
    return [
        _words(event_type, event_type.terms.deprecated, _successor(event_type, known), today)
        for event_type in sorted(known, key=lambda one: one.name)
        if event_type.terms.deprecated is not None and (not past or event_type.terms.deprecated <= today)
    ]


def _words(event_type: EventType[object], day: date, successor: str | None, today: date) -> str:
    since = "is deprecated since" if day <= today else "will be deprecated from"
    way_out = f": move to {successor}" if successor else ""
    return f"{event_type.name} {since} {day:%Y-%m-%d}{way_out}"


def _successor(event_type: EventType[object], known: Collection[EventType[object]]) -> str | None:
    """The next version that is known."""
    subject = event_type.subject
    later = [
        other.subject
        for other in known
        if other.subject.unversioned == subject.unversioned and other.subject.version > subject.version
    ]
    return str(min(later, key=lambda one: one.version)) if later else None
