"""Flows: which event leads to which, through the handlers that hear one and say the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from posthouse.governance.document import Document, FlowEntry, HandlerEntry


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


class Expected(NamedTuple):
    """A declared flow as the handlers of a catalogue make it. `steps` lie on a way from its start to one of its facts;
    `between` are facts on such a way that it does not name. `unheard` are its own facts that no way leads to although a
    listed service owns them; `unlisted` those of services that are not there."""

    entry: FlowEntry
    steps: tuple[HandlerEntry, ...]
    between: tuple[str, ...]
    unheard: tuple[str, ...]
    unlisted: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether a way leads to everything that must come, as far as it can be known."""
        return not set(self.unheard) & set(self.entry.then)

    def remarks(self, subject: str) -> list[str]:
        """What a reader should know of one of its facts."""
        remarks = ["may come"] if subject in self.entry.may else []
        remarks += ["no handler leads here"] if subject in self.unheard else []
        remarks += ["its service is not listed"] if subject in self.unlisted else []
        return remarks


def expected(document: Document, entry: FlowEntry) -> Expected:
    """Follow what handlers hear and say from the start of a declared flow to its facts."""
    reached = Flow(entry.starts, _following(entry.starts, document.handlers))
    said = {subject for step in reached.steps for subject in step.publishes}
    wanted = {*entry.then, *entry.may}
    steps, leads = _leading(reached, wanted & said)
    missing = [subject for subject in (*entry.then, *entry.may) if subject not in said]
    return Expected(
        entry=entry,
        steps=steps,
        between=tuple(subject for subject in reached.subjects if subject in leads - wanted - {entry.starts}),
        unheard=tuple(subject for subject in missing if document.event(subject) is not None),
        unlisted=tuple(subject for subject in missing if document.event(subject) is None),
    )


def _leading(flow: Flow, wanted: set[str]) -> tuple[tuple[HandlerEntry, ...], set[str]]:
    """Those steps that lead to what is wanted, and the facts on their ways."""
    leads, steps = set(wanted), set[str]()
    heard = set(flow.subjects)
    grown = True
    while grown:
        new = [step for step in flow.steps if step.name not in steps and leads.intersection(step.publishes)]
        steps.update(step.name for step in new)
        leads.update(reading.subject for step in new for reading in step.reads if reading.subject in heard)
        grown = bool(new)
    return tuple(step for step in flow.steps if step.name in steps), leads


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
