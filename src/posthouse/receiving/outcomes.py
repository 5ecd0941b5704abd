"""Outcomes: what became of the events of one consumer, counted once it is settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from posthouse.clock import Clock
from posthouse.receiving.claim import Claimed
from posthouse.receiving.inbound import InboundEvent
from posthouse.seam import Seam
from posthouse.seam.counting import Count, Histogram
from posthouse.seam.timing import OTHERS

YOUNG, AGES = -6, 23
"""Ages are told apart from 2**-6 seconds on, about 16 milliseconds, by so many bounds, up to 18 hours."""


class _Topic(NamedTuple):
    """What is counted of one topic."""

    ok: Count
    noop: Count
    error: Count
    duplicates: Count
    took: Histogram


class Outcomes:
    """Counts for one consumer of a service. Topics that it does not read, which only a frame that was brought can name, count
    under `OTHERS`."""

    def __init__(self, service: str, consumer: str, topics: Collection[str], seam: Seam, clock: Clock) -> None:
        self._service = service
        self._consumer = consumer
        self._clock = clock
        self._counting = seam.counting
        self._topics = {topic: self._of(topic) for topic in topics}
        self._age = seam.counting.histogram("event_age_seconds", service, consumer, first=YOUNG, bounds=AGES)
        seam.failures.counted[consumer] = self.dead

    def committed(self, events: Sequence[InboundEvent], claimed: Claimed, seconds: float) -> None:
        """The transaction in which these events were claimed, and those that were ours were run, is committed."""
        ours = claimed.events
        if ours:
            self._applied(ours, seconds)
        if len(ours) == len(events):
            return
        for one in claimed.known:
            topic = self._topic(one.entry.topic)
            topic.noop.value += 1
            topic.duplicates.value += 1
        for one in claimed.refused:
            self._topic(one.entry.topic).error.value += 1

    def _applied(self, ours: Sequence[InboundEvent], seconds: float) -> None:
        """Events of one handler, or of none."""
        entries = [one.entry for one in ours]
        topics = Counter([entry.topic for entry in entries]) if len(ours) > 1 else {entries[0].topic: 1}
        if ours[0].handler is None:
            for name, number in topics.items():
                self._topic(name).noop.value += number
            return
        for name, number in topics.items():
            topic = self._topic(name)
            topic.ok.value += number
            topic.took.note(seconds, number)
        now = self._clock.now()
        self._age.note_all([now - (entry.said or entry.time) for entry in entries])

    def failed(self, inbound: InboundEvent, seconds: float) -> None:
        """A run of it failed, and was rolled back."""
        topic = self._topic(inbound.entry.topic)
        topic.error.value += 1
        topic.took.note(seconds)

    def dead(self, topic: str, state: str) -> None:
        """An event was given up until a person decides."""
        topic = topic if topic in self._topics else OTHERS
        self._counting.counter("events_dead_total", self._service, self._consumer, topic, state).value += 1

    def unreadable(self, reason: str) -> None:
        """A frame, or its payload, could not be read."""
        self._counting.counter("schema_failures_total", self._service, self._consumer, reason).value += 1

    def _topic(self, name: str) -> _Topic:
        found = self._topics.get(name)
        if found is None:
            found = self._topics.setdefault(OTHERS, self._of(OTHERS))
        return found

    def _of(self, topic: str) -> _Topic:
        place, counter = (self._service, self._consumer, topic), self._counting.counter
        for state in ("dead", "quarantined"):
            counter("events_dead_total", *place, state)  # there, as 0, before the first one dies
        return _Topic(
            counter("events_consumed_total", *place, "ok"),
            counter("events_consumed_total", *place, "noop"),
            counter("events_consumed_total", *place, "error"),
            counter("inbox_duplicates_total", *place),
            self._counting.histogram("event_processing_seconds", *place),
        )
