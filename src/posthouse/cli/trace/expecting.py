"""Expecting: what of a declared flow came in a trace, and why the rest did not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from posthouse.governance.document import Document, FlowEntry, HandlerEntry
from posthouse.tracing import Trace


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that did not come. `why` holds what can be known of it, one sentence each."""

    subject: str
    why: Sequence[str]


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """`came` are the facts of the flow that are in the trace, `open` those that may still come, `missing` those that must."""

    name: str
    service: str
    started: bool
    came: Sequence[str]
    open: Sequence[str]
    missing: Sequence[Missing]

    @property
    def complete(self) -> bool:
        """It began, and everything that must come is there."""
        return self.started and not self.missing


def expectation(entry: FlowEntry, document: Document, trace: Trace) -> Expectation:
    """Compare a flow with a trace. A fact that is only a timer yet did not come."""
    said = {branch.spot.event.type for branch in trace.branches if branch.spot.place != "timer"}
    return Expectation(
        name=entry.name,
        service=entry.service,
        started=entry.starts in said,
        came=[subject for subject in (entry.starts, *entry.then, *entry.may) if subject in said],
        open=[subject for subject in entry.may if subject not in said],
        missing=[
            Missing(subject=subject, why=list(_why(subject, document, trace, said)))
            for subject in entry.then
            if subject not in said
        ],
    )


def _why(subject: str, document: Document, trace: Trace, said: set[str]) -> Iterator[str]:
    for branch in trace.branches:
        if branch.spot.event.type == subject:
            yield "it will be said later: a timer is set"
    sayers = [handler for handler in document.handlers if subject in handler.publishes]
    for handler in sayers:
        heard = [reading.subject for reading in handler.reads if reading.subject in said]
        if heard:
            yield from _stands(handler, trace, set(heard))
        else:
            causes = " or ".join(reading.subject for reading in handler.reads)
            yield f"{handler.name} would say it on {causes}, which did not come either"
    if not sayers:
        yield "no handler of the services named is known to say it"


def _stands(handler: HandlerEntry, trace: Trace, subjects: set[str]) -> Iterator[str]:
    for branch in trace.branches:
        event = branch.spot.event
        for heard in trace.heard.get(event.id, ()):
            if event.type in subjects and (heard.consumer, heard.handler) == (handler.consumer, handler.name):
                number = "" if heard.held is None else f", held event {heard.held} of {heard.service}"
                outcome = (
                    "has run and did not say it" if heard.state == "applied" else f"stands at {heard.state}{number}"
                )
                yield f"{handler.name} says it on {event.type}, and {outcome}"
