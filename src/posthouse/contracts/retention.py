"""Retention: how long what a class holds stays in the log, and how long altogether. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from itertools import pairwise

from posthouse.contracts.catalogue import EventType
from posthouse.contracts.terms import Retention
from posthouse.options import Options, SomeSeconds

DAY = 86_400.0
CLASSES: tuple[Retention, ...] = ("hot", "warm", "cold")
"""From the shortest to the longest."""


class Kept(Options):
    """How long the facts of one class stay. Durations are seconds."""

    log: SomeSeconds
    """So long a topic keeps them, in which consumers can go back without an archive."""
    archive: SomeSeconds
    """So long they are kept altogether: then nothing of ours has them any more."""

    def conflicts(self) -> list[str]:
        if self.archive < self.log:
            return [
                f"Kept(log={self.log:g}, archive={self.archive:g}): the archive would forget what the log still has: "
                f"archive={self.log:g} at least"
            ]
        return []


class RetentionClasses(Options):
    """What `hot`, `warm` and `cold` mean here."""

    hot: Kept = dataclasses.field(default_factory=lambda: Kept(log=7 * DAY, archive=30 * DAY))
    """For operation."""
    warm: Kept = dataclasses.field(default_factory=lambda: Kept(log=7 * DAY, archive=365 * DAY))
    """For analysis."""
    cold: Kept = dataclasses.field(default_factory=lambda: Kept(log=7 * DAY, archive=7 * 365 * DAY))
    """For the law."""

    def conflicts(self) -> list[str]:
        return [
            f"RetentionClasses: {longer} is kept {self.of(longer).archive:g} s altogether and {shorter} "
            f"{self.of(shorter).archive:g} s: a class is kept at least as long as the one before it ({', '.join(CLASSES)})"
            for shorter, longer in pairwise(CLASSES)
            if self.of(longer).archive < self.of(shorter).archive
        ]

    def of(self, name: Retention) -> Kept:
        found: Kept = getattr(self, name)
        return found

    def of_topics(self, events: Iterable[EventType[object]]) -> Mapping[str, Kept]:
        """By topic: as long as the class of its events that asks for most, in the log and altogether."""
        topics: dict[str, Kept] = {}
        for one in events:
            kept, before = self.of(one.terms.retention), topics.get(one.topic)
            topics[one.topic] = kept if before is None else longest(kept, before)
        return topics


def longest(one: Kept, other: Kept) -> Kept:
    """Both are kept long enough."""
    return Kept(log=max(one.log, other.log), archive=max(one.archive, other.archive))
