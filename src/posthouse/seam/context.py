"""The context of an event: what it inherits from the request or the event that led to it."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from posthouse.errors import EventError
from posthouse.events import Actor, Event
from posthouse.events.limits import is_sound, plain, wrong_text
from posthouse.events.trace import is_traceparent, is_tracestate
from posthouse.seam.intent import Cause


class EventContext(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a new event inherits: its tenant, and the request or the event that led to it. An event without a
    correlation begins one, under its own id. EventError for what no reader would take. A `traceparent` or `tracestate`
    that breaks the W3C rules is dropped, as readers do: it comes from strangers, and is no reason to refuse a fact."""

    tenant: str
    correlation: str | None = None
    causation: str | None = None
    actor: Actor | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    offline_replay: bool = False
    """What is said was done offline, and is told now. What follows from it happens now, and does not inherit this."""
    cause: Cause | None = None
    """What the idempotency keys of its facts derive from; None where they have those only that their author gave."""

    def __post_init__(self) -> None:
        if (
            (self.tenant and is_sound(self.tenant))
            and (self.correlation is None or is_sound(self.correlation))
            and (self.causation is None or is_sound(self.causation))
            and self.actor is None
            and self.traceparent is None
            and self.tracestate is None
        ):
            return  # as most are
        texts = (("tenant", self.tenant), ("correlation", self.correlation), ("causation", self.causation))
        if wrong := wrong_text(texts) or self._wrong_actor() or self._wrong_trace():
            raise EventError(f"nothing can be published so: {wrong}")
        if not self.tenant:
            raise EventError("every event needs a tenant: pass tenant=…, that of whoever it is about")
        for field, text in texts:
            if text is not None:
                force_setattr(self, field, plain(text))
        if self.traceparent is not None and not is_traceparent(self.traceparent):
            force_setattr(self, "traceparent", None)
        if self.tracestate is not None and (self.traceparent is None or not is_tracestate(self.tracestate)):
            force_setattr(self, "tracestate", None)

    def _wrong_actor(self) -> str | None:
        actor = self.actor
        if actor is None:
            return None
        if not isinstance(actor, Actor):
            return f"actor={actor!r:.60} is no Actor: write actor=Actor(kind='user', id='…')"
        return wrong_text((("actor", actor.kind), ("actor", actor.id)))

    def _wrong_trace(self) -> str | None:
        for field, text in (("traceparent", self.traceparent), ("tracestate", self.tracestate)):
            if text is not None and not isinstance(text, str):
                return f"{field}={text!r:.60} is {type(text).__name__}, not a text: give the header as it came"
        return None


def context_of(event: Event[object], cause: Cause | None = None) -> EventContext:
    """What follows from an event belongs to its tenant and continues its correlation and trace. With a cause its facts have the
    same idempotency keys whenever they are said."""
    return EventContext(
        tenant=event.tenant,
        correlation=event.correlation or event.id,
        causation=event.id,
        actor=event.actor,
        traceparent=event.traceparent,
        tracestate=event.tracestate,
        cause=cause,
    )
