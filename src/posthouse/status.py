"""Status: does it add up? Committed = applied + in flight + held, per consumer and topic.

There are three answers, and each can be reached on every broker: it adds up, it does not, or nobody can tell, and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from posthouse.contracts.deprecation import deprecations
from posthouse.service import Service
from posthouse.store import Counts

Verdict = Literal["adds up", "does not add up", "cannot tell"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The conservation line of one consumer in one topic.

    `committed` is counted by the producer's own store. When that was not named (`foreign`) it is the broker's count of
    frames, which has every repeated one in it. `in_flight` is what the outbox has not sent plus what the broker has not
    had acknowledged; `uncounted` says which of that the broker cannot count. `held` counts events by state. `late` marks a
    consumer that may have joined when older events were gone already, `removed` one that the service has no more: what is
    held for it counts all the same, and what was committed for it cannot be told.
    """

    consumer: str
    topic: str
    committed: int
    applied: int
    in_flight: int
    held: Mapping[str, int]
    skipped: int
    foreign: bool
    late: bool
    uncounted: str = ""
    removed: bool = False

    @property
    def difference(self) -> int:
        """What is missing (above 0) or counted twice (below 0); of foreign lines nothing is known. While events move, a few
        are on both sides of a step; when nothing moves and nobody came late it is 0."""
        found = self.applied + self.in_flight + sum(self.held.values()) + self.skipped
        return 0 if self.foreign or self.removed else self.committed - found

    @property
    def verdict(self) -> Verdict:
        """Whatever a broker cannot count could only explain what is missing: a line without a difference adds up all the same,
        and one with too much on its right side never does."""
        if self.foreign or self.removed:
            return "cannot tell"
        if self.difference == 0:
            return "adds up"
        return "cannot tell" if self.difference > 0 and (self.late or self.uncounted) else "does not add up"

    @property
    def reason(self) -> str:
        """Why nobody can tell; empty where somebody can."""
        if self.verdict != "cannot tell":
            return ""
        if self.removed:
            return (
                "nobody reads it any more, and what is held for it stays: retry or skip it, see `posthouse held list`"
            )
        if self.foreign:
            return "the service that says these events was not named"
        reasons = [self.uncounted] if self.uncounted else []
        if self.late:
            reasons.append("the group may have begun after them")
        return f"{self.difference:,} of them not found: {', or '.join(reasons)}"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one or several services. `unsent` and `timers` are per service, `stuck` counts refused outbox rows."""

    lines: Sequence[Line]
    unsent: Mapping[str, int]
    stuck: Mapping[str, int]
    timers: Mapping[str, int]
    notes: Sequence[str]

    @property
    def quiet(self) -> bool:
        """Nothing is on its way as far as anybody can tell, and nothing is known to be missing."""
        return not any(self.unsent.values()) and all(
            line.in_flight == 0 and line.verdict != "does not add up" for line in self.lines
        )

    def lost(self, before: Status) -> Sequence[Line]:
        """Lines that miss events and stand as they stood at a look a moment `before`: what is in flight does not move, so it
        explains nothing."""
        return [
            line
            for line in self.lines
            if line.difference > 0 and line.verdict == "does not add up" and line in before.lines
        ]

    @property
    def verdict(self) -> Verdict:
        """That of all lines: the worst of theirs."""
        verdicts = {line.verdict for line in self.lines}
        if "does not add up" in verdicts:
            return "does not add up"
        return "cannot tell" if "cannot tell" in verdicts else "adds up"


async def status(services: Sequence[Service]) -> Status:
    """Read the figures. Name producers and consumers together to have the producers' own counts in the lines."""
    for service in services:
        await service.projections.learn()  # another process may have swapped a generation in
    counts = {service.name: await service.store.counts() for service in services}
    said = [event_type for service in services for event_type in (*service.catalogue, *service.internal_events)]
    owners = {event_type.topic: event_type.subject.service for event_type in said}
    lines = [line for service in services for line in await _lines(service, counts, owners)]
    return Status(
        lines=lines,
        unsent={name: sum(c.unsent.values()) for name, c in counts.items()},
        stuck={name: c.stuck for name, c in counts.items()},
        timers={name: c.timers for name, c in counts.items()},
        notes=[
            *sorted({note for service in services for note in service.broker.sheet.notes} | {*_ends(services)}),
            *(f"{name}: {note}" for name, c in counts.items() for note in c.notes),
        ],
    )


def _ends(services: Sequence[Service]) -> list[str]:
    """Their events that have a date, in words."""
    known = {event_type.name: event_type for service in services for event_type in service.catalogue}
    return deprecations(list(known.values()), services[0].today, past=False) if services else []


async def drained(*services: Service, timeout: float = 30.0) -> Status:
    """Wait until nothing is on its way between these services, at most `timeout` seconds; held events stay held."""
    async with asyncio.timeout(timeout):
        while not (figures := await status(services)).quiet:  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.01)
    return figures


async def _lines(service: Service, counts: Mapping[str, Counts], owners: Mapping[str, str]) -> list[Line]:
    own = counts[service.name]
    found: list[Line] = []
    for consumer, topics in service.topology().groups.items():
        progress = await service.broker.progress(consumer, topics)
        for topic in topics:
            producer = counts.get(owners[topic])
            found.append(
                Line(
                    consumer=consumer,
                    topic=topic,
                    committed=progress[topic].stored if producer is None else producer.committed.get(topic, 0),
                    applied=own.applied.get((consumer, topic), 0),
                    in_flight=progress[topic].pending + (0 if producer is None else producer.unsent.get(topic, 0)),
                    held={state: n for (name, t, state), n in own.held.items() if (name, t) == (consumer, topic)},
                    skipped=own.skipped.get((consumer, topic), 0),
                    foreign=producer is None,
                    late=progress[topic].truncated,
                    uncounted=progress[topic].uncounted,
                )
            )
    return found + _left_behind(own, {(line.consumer, line.topic) for line in found})


def _left_behind(own: Counts, known: Collection[tuple[str, str]]) -> list[Line]:
    """What is held for consumers that the service has no more, or for topics that they do not read any more: it counts
    wherever it lies."""
    places = sorted({(consumer, topic) for consumer, topic, _ in own.held} - set(known))
    return [
        Line(
            consumer=consumer,
            topic=topic,
            committed=0,
            applied=own.applied.get((consumer, topic), 0),
            in_flight=0,
            held={state: n for (name, t, state), n in own.held.items() if (name, t) == (consumer, topic)},
            skipped=own.skipped.get((consumer, topic), 0),
            foreign=False,
            late=False,
            removed=True,
        )
        for consumer, topic in places
    ]
