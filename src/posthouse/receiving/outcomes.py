"""Outcomes: what became of the events of one consumer, counted once it is settled."""

from __future__ import annotations

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
        now = self._clock.now()
        for one in claimed.events:
            topic = self._topic(one)
            if one.handler is None:
                topic.noop.value += 1
                continue
            topic.ok.value += 1
            topic.took.note(seconds)
            self._age.note(now - (one.entry.said or one.entry.time))
        if len(claimed.events) == len(events):
            return
        for one in claimed.known:
            topic = self._topic(one)
            topic.noop.value += 1
            topic.duplicates.value += 1
        for one in claimed.refused:
            self._topic(one).error.value += 1

    def failed(self, inbound: InboundEvent, seconds: float) -> None:
        """A run of it failed, and was rolled back."""
        topic = self._topic(inbound)
        topic.error.value += 1
        topic.took.note(seconds)

    def dead(self, topic: str, state: str) -> None:
        """An event was given up until a person decides."""
        topic = topic if topic in self._topics else OTHERS
        self._counting.counter("events_dead_total", self._service, self._consumer, topic, state).value += 1

    def unreadable(self, reason: str) -> None:
        """A frame, or its payload, could not be read."""
        self._counting.counter("schema_failures_total", self._service, self._consumer, reason).value += 1

    def _topic(self, inbound: InboundEvent) -> _Topic:
        found = self._topics.get(inbound.entry.topic)
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
