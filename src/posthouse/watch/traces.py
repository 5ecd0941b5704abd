"""Traces: spans of OpenTelemetry, behind the port of the seam.

| span | from | to | parent | links |
|---|---|---|---|---|
| `posthouse.create` | a fact is said | its transaction has ended | what led to it | what led to it, where that is another trace |
| `posthouse.saga` | a saga is started | likewise | likewise | likewise |
| `posthouse.send` | a batch goes to the broker | it has answered | none | the facts in it |
| `posthouse.process` | an event is taken up | its transaction has ended | the fact, unless it is old or one of several | the fact, or all |
"""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import Token
from functools import partial
from types import TracebackType
from typing import Self, cast

import msgspec
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, Status, StatusCode

from posthouse.broker import Frame
from posthouse.contracts.personal import personal_fields
from posthouse.events import Event, decode_any
from posthouse.events.trace import RANDOM, correlation_to_trace_id, same_trace, trace_number
from posthouse.redaction import words_of
from posthouse.seam.context import EventContext
from posthouse.seam.current import current
from posthouse.seam.failures import users_part
from posthouse.seam.masking import Mask
from posthouse.seam.spans import Processed, TracerProvider
from posthouse.store.savepoints import Fate
from posthouse.watch.beginnings import LAST, beginning_of, bound_of, follows, mixed
from posthouse.watch.places import (
    NOWHERE,
    UNSAMPLED,
    Placed,
    Unrecorded,
    UnseenSpan,
    below,
    header_of,
    place_of,
    readable,
    state_of,
)

log = logging.getLogger("posthouse.traces")

LINKS = 128
"""A batch is linked to so many of its facts; SDKs keep no more unless they are told to."""
LATE = 3600.0
"""Seconds after which an event that is processed begins a trace of its own, linked to that of its fact: a backlog, a resend, a replay,
a retry by hand. Nobody finds what is added to a trace that long after."""
OPEN = 10_000
"""So many spans wait at most for the end of their transactions; the oldest ends without an outcome when there are more."""
OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"

Attributes = Mapping[str, str | int]
About = Callable[[], Attributes]
"""What a span says from its beginning: it is put together for those that may be recorded."""

_Fact = tuple[type, bytes]
"""What a fact says, and the class that tells which of it is personal."""
_Here = tuple[Context | None, str, str | None]
"""Where the application stands, and the traceparent and tracestate of what is said there; empty where no trace is."""


def spans_of(provider: TracerProvider | None) -> OpenTelemetrySpans | None:
    """Those of a provider, or of the one that the application has set; None where it has set none that does anything."""
    tracing = cast("trace.TracerProvider", provider) if provider is not None else trace.get_tracer_provider()
    if isinstance(tracing, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    tracer = tracing.get_tracer("posthouse")
    return None if isinstance(tracer, trace.NoOpTracer) else OpenTelemetrySpans(tracer)


class OpenTelemetrySpans:
    """`Spans`, begun by a tracer. Whatever goes wrong in it is told once, and leaves events alone."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._beginning = beginning_of(tracer)
        sampler = None if self._beginning is None else self._beginning.sampler
        self._follows = sampler is not None and follows(sampler)
        self._bound = None if sampler is None else bound_of(sampler)
        self._open: dict[str, tuple[trace.Span, _Fact | None]] = {}
        self._conventions = any(word.strip() in ("messaging", "messaging/dup") for word in _opted_in())
        self._told = False
        self._here: _Here = (None, "", None)

    @property
    def waiting(self) -> Collection[str]:
        """See `Spans`."""
        return self._open

    def create(self, service: str, topic: str, event: Event[bytes], payload: type) -> Event[bytes]:
        """See `Spans`."""
        try:
            if self._follows and (unrecorded := self._unrecorded(event)) is not None:
                header, state = unrecorded
                return msgspec.structs.replace(event, traceparent=header, tracestate=state)
            about = partial(self._created, service, topic, event)
            span = self._below("posthouse.create", SpanKind.PRODUCER, event, about)
            place = span.get_span_context()
            if not place.is_valid:
                return event
            self._keep(event.id, span, (payload, event.data) if personal_fields(payload) else None)
            return msgspec.structs.replace(event, traceparent=header_of(place), tracestate=state_of(place))
        except Exception as error:
            self.complain(error)
            return event

    def begin(self, saga: str, id: str, correlation: str, context: EventContext) -> str | None:
        """See `Spans`."""
        try:
            about = {"posthouse.saga": saga, "posthouse.saga.id": id, "posthouse.correlation": correlation}
            context = msgspec.structs.replace(context, correlation=correlation)
            span = self._below("posthouse.saga", SpanKind.INTERNAL, context, lambda: about)
            place = span.get_span_context()
            if not place.is_valid:
                return context.traceparent
            self._keep(header_of(place), span)
            return header_of(place)
        except Exception as error:
            self.complain(error)
            return context.traceparent

    def told(self, ids: Sequence[str], fate: Fate, error: BaseException | None = None) -> None:
        """See `Spans`."""
        ended = [found for id in ids if (found := self._open.pop(id, None)) is not None] if self._open else []
        for span, _ in ended:
            try:
                span.set_attribute("posthouse.outcome", fate)
                if fate not in ("committed", "written"):
                    _fail(span, error, fate, *(fact for _, fact in ended if fact is not None))
                span.end()
            except Exception as failed:
                self.complain(failed)

    def send(self, service: str, frames: Sequence[Frame]) -> RunningSpan | UnseenSpan:
        """See `Spans`."""
        try:
            span = self._begun("posthouse.send", SpanKind.CLIENT, None, partial(self._sent, service, frames))
            if span.is_recording():
                for frame in frames[:LINKS]:
                    with contextlib.suppress(Exception):  # what cannot be read is no reason not to send it
                        event = decode_any(frame.headers, frame.body)
                        if (place := place_of(event)) is not None:
                            span.add_link(place, {"posthouse.event.id": event.id})
            return self._around(span, "accepted")
        except Exception as error:
            self.complain(error)
            return RunningSpan(self, trace.INVALID_SPAN, "accepted")

    def process(
        self, consumer: str, handler: str, events: Sequence[Processed], attempt: int, now: float
    ) -> RunningSpan | UnseenSpan:
        """See `Spans`."""
        try:
            event = events[0].event if len(events) == 1 else None
            late = now - events[0].entry.time > LATE
            if self._follows and event is not None and not late:
                header = event.traceparent
                if header is not None and UNSAMPLED.fullmatch(header):
                    return UnseenSpan(Unrecorded(header, event.tracestate))
            about = partial(self._processed, consumer, handler, events, attempt)
            place = None if event is None else place_of(event)
            if place is None or late:
                correlation = None if event is None or place is not None else event.correlation
                span = self._begun("posthouse.process", SpanKind.CONSUMER, correlation, about, partial(_links, events))
            else:
                links = _links(events)
                span = self._tracer.start_span("posthouse.process", below(place), SpanKind.CONSUMER, about(), links)
            return self._around(span, "applied")
        except Exception as error:
            self.complain(error)
            return RunningSpan(self, trace.INVALID_SPAN, "applied")

    def complain(self, error: Exception) -> None:
        """Say once that it does not work."""
        if not self._told:
            self._told = True
            log.error("tracing fails, and events go on without it: %s; told once", words_of(error), exc_info=error)

    def _unrecorded(self, event: Event[bytes]) -> tuple[str, str | None] | None:
        """The traceparent and tracestate that a fact takes along where it is known that nobody records it."""
        context = contexts.get_current()
        if self._here[0] is not context and not self._look(context):
            return None
        _, header, state = self._here
        given = event.traceparent
        if header:
            return (header, state) if given is None or same_trace(header, given) else None
        if given is not None:
            return (given, readable(event.tracestate)) if UNSAMPLED.fullmatch(given) else None
        if self._bound is None:
            return None
        fresh = event.id.replace("-", "")  # a UUID of ours
        trace_id = fresh if event.correlation is event.id else correlation_to_trace_id(event.correlation or event.id)
        if trace_id is None or mixed(int(trace_id, 16)) < self._bound:
            return None
        return f"00-{trace_id}-{fresh[16:]}-00", None

    def _look(self, context: Context) -> bool:
        """Where the application stands now. Many facts are said in one place: it is remembered, unless it is recorded and would be
        kept alive by that; then False."""
        span = trace.get_current_span(context)
        if isinstance(span, Unrecorded):
            self._here = (context, span.header, readable(span.state))
            return True
        place = span.get_span_context()
        if place.is_valid and place.trace_flags.sampled:
            return False
        self._here = (context, header_of(place), state_of(place)) if place.is_valid else (context, "", None)
        return True

    def _below(self, name: str, kind: SpanKind, given: Placed, about: About) -> trace.Span:
        """A span where the application stands, unless it said that it belongs elsewhere; without either the trace begins."""
        here = trace.get_current_span().get_span_context()
        place = place_of(given)
        if place is None and not here.is_valid:
            return self._begun(name, kind, given.correlation, about)
        if place is None or place.trace_id == here.trace_id:
            if self._follows and not here.trace_flags.sampled:
                return NonRecordingSpan(here)
            return self._tracer.start_span(name, None, kind, about())
        if self._follows and not place.trace_flags.sampled:
            return NonRecordingSpan(place)
        links = [Link(here)] if here.is_valid else ()
        return self._tracer.start_span(name, below(place), kind, about(), links)

    def _begun(
        self,
        name: str,
        kind: SpanKind,
        correlation: str | None,
        about: About,
        links: Callable[[], Sequence[Link]] = tuple,
    ) -> trace.Span:
        """The first span of a trace, whose id is the correlation where that can be one. Whoever takes a share of all traces need
        not be asked: an SDK would take long to begin a span that nobody records."""
        beginning = self._beginning
        if beginning is None:
            return self._tracer.start_span(name, NOWHERE, kind, about(), links())
        id = 0 if correlation is None else trace_number(correlation)
        number = mixed(id) if id else (drawn := beginning.generate_trace_id()) & LAST
        if self._bound is not None and number >= self._bound:
            flags = RANDOM if not id and beginning.is_trace_id_random() else 0
            return Unrecorded(f"00-{id or drawn:032x}-{beginning.generate_span_id():016x}-{flags:02x}", None)
        with beginning.of(id or drawn, random=not id):
            return self._tracer.start_span(name, NOWHERE, kind, about(), links())

    def _around(self, span: trace.Span, outcome: str) -> RunningSpan | UnseenSpan:
        return UnseenSpan(span) if isinstance(span, Unrecorded) else RunningSpan(self, span, outcome)

    def _keep(self, id: str, span: trace.Span, fact: _Fact | None = None) -> None:
        if span.is_recording():
            while len(self._open) >= OPEN:
                self._open.pop(next(iter(self._open)))[0].end()  # its end is not told, which is no failure
            self._open[id] = (span, fact)

    def _created(self, service: str, topic: str, event: Event[bytes]) -> Attributes:
        return self._named("create", {"posthouse.service": service, **_about(topic, event)})

    def _sent(self, service: str, frames: Sequence[Frame]) -> Attributes:
        topics = {frame.topic for frame in frames}
        about: Attributes = {"posthouse.service": service, "posthouse.batch.size": len(frames)}
        return self._named("send", {**about, "posthouse.topic": topics.pop()} if len(topics) == 1 else about)

    def _processed(self, consumer: str, handler: str, events: Sequence[Processed], attempt: int) -> Attributes:
        by: Attributes = {"posthouse.consumer": consumer, "posthouse.handler": handler}
        event, topic = events[0].event, events[0].entry.topic
        if len(events) == 1 and event is not None:
            return self._named("process", {**by, **_about(topic, event), "posthouse.attempt": attempt})
        return self._named("process", {**by, "posthouse.topic": topic, "posthouse.batch.size": len(events)})

    def _named(self, operation: str, attributes: Attributes) -> Attributes:
        """With OpenTelemetry's own names besides, for those who asked for them."""
        if not self._conventions:
            return attributes
        theirs = {theirs: attributes[ours] for ours, theirs in CONVENTIONS.items() if ours in attributes}
        said = {"messaging.operation.type": operation, "messaging.operation.name": operation}
        return {**attributes, "messaging.system": "posthouse", **said, **theirs}


CONVENTIONS = {
    "posthouse.topic": "messaging.destination.name",
    "posthouse.event.id": "messaging.message.id",
    "posthouse.correlation": "messaging.message.conversation_id",
    "posthouse.consumer": "messaging.consumer.group.name",
    "posthouse.batch.size": "messaging.batch.message_count",
}
"""Our names, and those of OpenTelemetry's conventions for messaging, which are not stable."""


class RunningSpan:
    """The current span between entering and leaving it."""

    __slots__ = ("_error", "_outcome", "_span", "_spans", "_token")

    def __init__(self, spans: OpenTelemetrySpans, span: trace.Span, outcome: str) -> None:
        self._spans = spans
        self._span = span
        self._outcome = outcome
        self._error: BaseException | None = None
        self._token: Token[Context] | None = None

    def says(self, outcome: str, error: BaseException | None = None) -> None:
        """See `Span`."""
        self._outcome, self._error = outcome, error

    def __enter__(self) -> Self:
        try:
            self._token = contexts.attach(trace.set_span_in_context(self._span, NOWHERE))
        except Exception as error:
            self._spans.complain(error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._token is not None:
                contexts.detach(self._token)
            if self._span.is_recording():
                self._end(error)
        except Exception as failed:
            self._spans.complain(failed)

    def _end(self, raised: BaseException | None) -> None:
        outcome, error = (self._outcome, self._error) if raised is None else ("unknown", raised)
        self._span.set_attribute("posthouse.outcome", outcome)
        if error is not None or outcome == "refused":
            _fail(self._span, error, outcome)
        self._span.end()


def _opted_in() -> list[str]:
    return os.environ.get(OPT_IN, "").split(",")


def _about(topic: str, event: Event[bytes]) -> dict[str, str | int]:
    """What a span says of an event. Never its data, and no tenant: in many systems that is a person."""
    about: dict[str, str | int] = {
        "posthouse.topic": topic,
        "posthouse.type": event.type,
        "posthouse.event.id": event.id,
        "posthouse.correlation": event.correlation or event.id,
    }
    if event.key is not None:
        about["posthouse.key"] = event.key
    return about


def _links(events: Sequence[Processed]) -> list[Link]:
    facts = [one.event for one in events[:LINKS] if one.event is not None]
    return [Link(place, {"posthouse.event.id": fact.id}) for fact in facts if (place := place_of(fact)) is not None]


def _fail(span: trace.Span, error: BaseException | None, outcome: str, *facts: _Fact) -> None:
    """Errors are shown without secrets, and without what the event in hand and these facts say about a person: an SDK would write
    their own words, and those of all that caused them. Of several events each tells its own words when it is run by itself."""
    if error is None:
        span.set_status(Status(StatusCode.ERROR, outcome))
        return
    words = "" if outcome == "one by one" else Mask(current(), *facts).words_of(error)
    told = {"exception.type": type(error).__qualname__, "exception.message": words}
    stack = "".join(traceback.format_tb(users_part(error.__traceback__)))
    span.add_event("exception", {**told, "exception.stacktrace": stack})
    span.set_status(Status(StatusCode.ERROR, f"{outcome}: {type(error).__name__}: {words}"))
