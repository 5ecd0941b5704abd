"""Current: on whose behalf code runs here, a request or an event. What is published without a word about it, log lines and outgoing
calls take it from here. It follows tasks and the threads that the library starts; threads of your own begin without."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Self

import msgspec

from posthouse.events import UNNAMED, Actor, Event, Unnamed
from posthouse.events.trace import TraceContext
from posthouse.seam.context import EventContext

SCOPE = "posthouse.correlation"
"""Where the `Current` of a request stands in its ASGI scope or WSGI environment."""


class Current(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known here. In a handler all is the event's; in a request what the edge let in."""

    correlation: str | None = None
    causation: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    tenant: str | None = None
    """Whose everything is that names no tenant; only what code has said, never a header, and nothing in a handler."""
    actor: Actor | None = None
    """Likewise, who caused it."""
    offline_replay: bool = False
    """Whether what is said here was done offline, and is told now; only what code has said, and nothing in a handler."""
    outer_correlation: str | None = None
    """What a caller who is not trusted called it; for the log alone."""
    event: Event[object] | None = None
    """The event in hand; None outside of handlers, and in one of several events at once. Its data may be raw still."""
    batch: Sequence[Event[object]] = ()
    """The events of a handler that is given several at once."""
    payload: type | None = None
    """The declared class of its data, where that is known: it says which fields are personal."""
    consumer: str = ""
    attempt: int = 0
    """Which run this is, from 1; 0 outside of handlers."""


NOTHING = Current()

_current: ContextVar[Current] = ContextVar("posthouse", default=NOTHING)


def current() -> Current:
    """On whose behalf this code runs; NOTHING where nobody knows."""
    return _current.get()


class during:  # reads as the block that it is; written out because it is around every event
    """`with during(x):` code in the block, and the tasks that it starts, run on behalf of x."""

    __slots__ = ("_token", "_what")

    def __init__(self, what: Current) -> None:
        self._what = what

    def __enter__(self) -> Self:
        self._token = _current.set(self._what)
        return self

    def become(self, what: Current) -> None:
        """From here to the end of the block it is this."""
        _current.set(what)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def handling(event: Event[object] | None, consumer: str, attempt: int = 1, payload: type | None = None) -> Current:
    """A run of a handler: nothing of what was current before is left. `event` is None for a frame that cannot be read."""
    if event is None:
        return Current(consumer=consumer, attempt=attempt)
    return Current(
        correlation=event.correlation or event.id,
        causation=event.id,
        traceparent=event.traceparent,
        tracestate=event.tracestate,
        event=event,
        payload=payload,
        consumer=consumer,
        attempt=attempt,
    )


def handling_all(events: Sequence[Event[object]], consumer: str, attempt: int = 1) -> Current:
    """A run of a handler of lists, which goes on with the correlation of its first event, as what it publishes does."""
    if len(events) == 1:
        return handling(events[0], consumer, attempt, type(events[0].data))
    return msgspec.structs.replace(
        handling(events[0], consumer, attempt), event=None, causation=None, batch=tuple(events)
    )


def span_here() -> TraceContext | None:
    """OpenTelemetry's current span; None where nobody has imported it, or no span is current."""
    module = sys.modules.get("opentelemetry.trace")
    if module is None:
        return None
    try:
        span = module.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        state = span.trace_state.to_header() or None
        ids = {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
        return TraceContext(**ids, flags=int(span.trace_flags), tracestate=state)
    except Exception:  # a stranger's span; half imported
        return None


def tenant_here(tenant: str = UNNAMED) -> str:
    """The tenant that was named; else the current one, if code has said whose this is."""
    return _current.get().tenant or tenant if isinstance(tenant, Unnamed) else tenant


def context_here(
    tenant: str,
    *,
    correlation: str | None = None,
    causation: str | None = None,
    actor: Actor | None = None,
    traceparent: str | None = None,
) -> EventContext:
    """What a new event inherits: what the caller says, and for the rest what is current. A trace that was named comes without
    the state of another; one that nobody named is OpenTelemetry's, where a span is current, and else that of the request."""
    here = _current.get()
    span = span_here() if traceparent is None else None
    if here is NOTHING and span is None:
        return EventContext(
            tenant=tenant, correlation=correlation, causation=causation, actor=actor, traceparent=traceparent
        )
    return EventContext(
        tenant=tenant,
        correlation=here.correlation if correlation is None else correlation,
        causation=here.causation if causation is None and correlation is None else causation,
        actor=here.actor if actor is None else actor,
        traceparent=traceparent or (here.traceparent if span is None else span.traceparent),
        tracestate=None if traceparent is not None else here.tracestate if span is None else span.tracestate,
        offline_replay=here.offline_replay,
    )
