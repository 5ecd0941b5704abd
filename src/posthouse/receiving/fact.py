"""Fact: what several versions of an event have in common when they are published together, or all that one timer says, so that it is
applied once."""

from __future__ import annotations

import msgspec

from posthouse.events import DUAL_OF, Event
from posthouse.seam.outward import DUAL_VERSION, FIRST_ID
from posthouse.store import InboxEntry


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`entry` is how a consumer's inbox remembers that the fact was applied, in whatever version. `newer` are the
    subjects of the later versions that it may have been published in."""

    entry: InboxEntry
    newer: tuple[str, ...] = ()


def fact_of(event: Event[bytes], entry: InboxEntry) -> Fact | None:
    """The fact that an event is one of several versions of, or that its timer says however often it is made to fire: its id is drawn
    anew each time. None for one that was published alone."""
    first = event.extensions.get(DUAL_OF) or event.extensions.get(FIRST_ID)
    newest = event.extensions.get(DUAL_VERSION)
    unversioned, _, version = event.type.rpartition(".v")
    if not isinstance(first, str) or not first or not unversioned or not version.isdecimal():
        return None
    remembered = InboxEntry(
        topic=f"{unversioned}.v*",
        tenant=entry.tenant,
        event_id=f"{unversioned}#{first}",
        digest=b"",
        time=entry.time,
        said=entry.said,
    )
    return Fact(entry=remembered, newer=_newer(unversioned, int(version), newest))


MOST_VERSIONS = 100
"""A number from the wire is not believed further than this."""


def _newer(unversioned: str, version: int, newest: object) -> tuple[str, ...]:
    if not isinstance(newest, str) or not newest.isdecimal() or len(newest) > 9:
        return ()
    last = min(int(newest), version + MOST_VERSIONS)
    return tuple(f"{unversioned}.v{number}" for number in range(version + 1, last + 1))
