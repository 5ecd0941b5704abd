"""The context of an event: what it inherits from the request or the event that led to it."""

from __future__ import annotations

import msgspec

from posthouse.events import Actor, Event


class EventContext(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a new event inherits: its tenant, and the request or the event that led to it. An event without a
    correlation begins one, under its own id."""

    tenant: str
    correlation: str | None = None
    causation: str | None = None
    actor: Actor | None = None
    traceparent: str | None = None
    tracestate: str | None = None


def context_of(event: Event[object]) -> EventContext:
    """What follows from an event belongs to its tenant and continues its correlation and trace."""
    return EventContext(
        tenant=event.tenant,
        correlation=event.correlation or event.id,
        causation=event.id,
        actor=event.actor,
        traceparent=event.traceparent,
        tracestate=event.tracestate,
    )
