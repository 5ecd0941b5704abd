"""Flows: which event leads to which, through the handlers that hear one and say the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from posthouse.contracts import Document, HandlerEntry


class Flow(NamedTuple):
    """What may follow from one event. `steps` are handlers in the order in which they can be reached."""

    start: str
    steps: tuple[HandlerEntry, ...]

    @property
    def subjects(self) -> list[str]:
        """Every event in it that is heard or said, the start first."""
        said = [subject for step in self.steps for subject in step.publishes]
        heard = [reading.subject for step in self.steps for reading in step.reads]
        reached = {self.start, *said}
        return list(dict.fromkeys([self.start, *said, *(subject for subject in heard if subject in reached)]))


def flows(document: Document) -> list[Flow]:
    """The choreographed ones: those in which some handler says something. Each begins with an event that no handler
    says; where all of them follow from each other, with the first of them by name."""
    speaking = [handler for handler in document.handlers if handler.publishes]
    said = {subject for handler in speaking for subject in handler.publishes}
    heard = {reading.subject for handler in speaking for reading in handler.reads}
    found: list[Flow] = []
    for start in [*sorted(heard - said), *sorted(heard & said)]:
        is_new = start not in said or not any(start in flow.subjects for flow in found)
        if is_new:
            found.append(Flow(start, _following(start, document.handlers)))
    return found


def _following(start: str, handlers: Sequence[HandlerEntry]) -> tuple[HandlerEntry, ...]:
    steps: list[HandlerEntry] = []
    waiting, seen = [start], {start}
    while waiting:
        subject = waiting.pop(0)
        for handler in _readers(subject, handlers):
            if handler not in steps:
                steps.append(handler)
                new = [said for said in handler.publishes if said not in seen]
                seen.update(new)
                waiting += new
    return tuple(steps)


def _readers(subject: str, handlers: Sequence[HandlerEntry]) -> Iterator[HandlerEntry]:
    return (handler for handler in handlers if any(reading.subject == subject for reading in handler.reads))
