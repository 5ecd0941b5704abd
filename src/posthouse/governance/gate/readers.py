"""Readers: which consumers a change touches, from what their handlers say they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posthouse.governance.bundle import Bundle
from posthouse.governance.gate.objection import Touched


class Readers:
    """What is known from bundles: before the change, because those consumers are at work, and after it.

    A group that subscribes to a topic, and of which nothing else is known, may read everything there.
    """

    def __init__(self, *bundles: Bundle) -> None:
        self._bundles = bundles
        self._known = {entry.consumer for bundle in bundles for entry in bundle.consumers}

    def of(self, subject: str, path: str | None = None) -> tuple[Touched, ...]:
        """Those that a change at a JSON Pointer touches; without one, all that read the subject."""
        found: dict[tuple[str, str], Touched] = {}
        for one in self._all(subject, path):
            place = (one.consumer, one.handler)
            if place not in found or one.certain:
                found[place] = one
        return tuple(found[place] for place in sorted(found))

    def _all(self, subject: str, path: str | None) -> Iterator[Touched]:
        for bundle in self._bundles:
            for entry in bundle.consumers:
                for reading in entry.reads:
                    unsaid = path is not None and reading.fields is None
                    if reading.subject == subject and (unsaid or _touches(path, reading.fields)):
                        yield Touched(consumer=entry.consumer, handler=entry.handler, certain=not unsaid)
            for topic in bundle.topics:
                if subject in topic.subjects:
                    yield from (Touched(consumer=group) for group in topic.consumers if group not in self._known)


def _touches(path: str | None, fields: Sequence[str] | None) -> bool:
    """Whether the one lies inside the other: who reads `customer` reads `customer.name` too."""
    if path is None or fields is None:
        return True
    changed = _names(step.replace("~1", "/").replace("~0", "~") for step in path.split("/"))
    return any(_nested(changed, _names(iter(field.split(".")))) for field in fields)


def _names(steps: Iterator[str]) -> list[str]:
    """The names on the way; items of lists do not count."""
    return [step for step in steps if step not in ("", "*")]


def _nested(one: Sequence[str], other: Sequence[str]) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]
