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
import hashlib
import logging
import os
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Protocol, Self, cast

import msgspec
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from posthouse.broker import Frame
from posthouse.events import Event, decode_any
from posthouse.events.trace import RANDOM, SAMPLED, correlation_to_trace_id, is_traceparent, is_tracestate
from posthouse.redaction import words_of
from posthouse.seam.context import EventContext
from posthouse.seam.failures import users_part
from posthouse.seam.spans import Processed, TracerProvider
from posthouse.store.savepoints import Fate

log = logging.getLogger("posthouse.traces")

LINKS = 128
"""A batch is linked to so many of its facts; SDKs keep no more unless they are told to."""
LATE = 3600.0
"""Seconds after which an event that is processed begins a trace of its own, linked to that of its fact: a backlog, a resend, a replay,
a retry by hand. Nobody finds what is added to a trace that long after."""
OPEN = 10_000
"""So many spans wait at most for the end of their transactions; the oldest is let go when there are more."""
NOWHERE = Context()
"""What a relay or a consumer does belongs to no request: not even to the one in which it was started."""
OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"

Attributes = Mapping[str, str | int]


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
        self._beginning = _beginning(tracer)
        self._open: dict[str, trace.Span] = {}
        self._conventions = any(word.strip() in ("messaging", "messaging/dup") for word in _opted_in())
        self._told = False

    def create(self, service: str, topic: str, event: Event[bytes]) -> Event[bytes]:
        """See `Spans`."""
        try:
            attributes = self._named("create", {"posthouse.service": service, **_about(topic, event)})
            span = self._below("posthouse.create", SpanKind.PRODUCER, event, attributes)
            place = span.get_span_context()
            if not place.is_valid:
                return event
            self._keep(event.id, span)
            return msgspec.structs.replace(event, traceparent=_header(place), tracestate=_state(place))
        except Exception as error:
            self.complain(error)
            return event

    def begin(self, saga: str, id: str, correlation: str, context: EventContext) -> str | None:
        """See `Spans`."""
        try:
            about = {"posthouse.saga": saga, "posthouse.saga.id": id, "posthouse.correlation": correlation}
            context = msgspec.structs.replace(context, correlation=correlation)
            span = self._below("posthouse.saga", SpanKind.INTERNAL, context, about)
            place = span.get_span_context()
            if not place.is_valid:
                return context.traceparent
            self._keep(_header(place), span)
            return _header(place)
        except Exception as error:
            self.complain(error)
            return context.traceparent

    def told(self, ids: Sequence[str], fate: Fate, error: BaseException | None = None) -> None:
        """See `Spans`."""
        for id in ids:
            if (span := self._open.pop(id, None)) is None:
                continue
            try:
                span.set_attribute("posthouse.outcome", fate)
                if fate not in ("committed", "written"):
                    _fail(span, error, fate)
                span.end()
            except Exception as failed:
                self.complain(failed)

    def send(self, service: str, frames: Sequence[Frame]) -> RunningSpan:
        """See `Spans`."""
        try:
            topics = {frame.topic for frame in frames}
            about: Attributes = {"posthouse.service": service, "posthouse.batch.size": len(frames)}
            attributes = {**about, "posthouse.topic": topics.pop()} if len(topics) == 1 else about
            span = self._tracer.start_span(
                "posthouse.send", NOWHERE, SpanKind.CLIENT, attributes=self._named("send", attributes)
            )
            if span.is_recording():
                for frame in frames[:LINKS]:
                    with contextlib.suppress(Exception):  # what cannot be read is no reason not to send it
                        event = decode_any(frame.headers, frame.body)
                        if (place := _place(event)) is not None:
                            span.add_link(place, {"posthouse.event.id": event.id})
            return RunningSpan(self, span, "accepted")
        except Exception as error:
            self.complain(error)
            return RunningSpan(self, trace.INVALID_SPAN, "accepted")

    def process(
        self, consumer: str, handler: str, events: Sequence[Processed], attempt: int, now: float
    ) -> RunningSpan:
        """See `Spans`."""
        try:
            by: Attributes = {"posthouse.consumer": consumer, "posthouse.handler": handler}
            first = events[0]
            if len(events) == 1 and first.event is not None:
                attributes = {**by, **_about(first.entry.topic, first.event), "posthouse.attempt": attempt}
                span = self._after(first.event, self._named("process", attributes), now - first.entry.time > LATE)
            else:
                attributes = {**by, "posthouse.topic": first.entry.topic, "posthouse.batch.size": len(events)}
                facts = [one.event for one in events[:LINKS] if one.event is not None]
                links = [_link(fact, place) for fact in facts if (place := _place(fact)) is not None]
                named = self._named("process", attributes)
                span = self._tracer.start_span("posthouse.process", NOWHERE, SpanKind.CONSUMER, named, links)
            return RunningSpan(self, span, "applied")
        except Exception as error:
            self.complain(error)
            return RunningSpan(self, trace.INVALID_SPAN, "applied")

    def complain(self, error: Exception) -> None:
        """Say once that it does not work."""
        if not self._told:
            self._told = True
            log.error("tracing fails, and events go on without it: %s; told once", words_of(error), exc_info=error)

    def _below(self, name: str, kind: SpanKind, given: _Placed, attributes: Attributes) -> trace.Span:
        """A span where the application stands, unless it said that it belongs elsewhere; without either the trace begins."""
        here = trace.get_current_span().get_span_context()
        place = _place(given)
        if place is None and not here.is_valid:
            return self._begun(name, kind, given.correlation, attributes)
        if place is None or place.trace_id == here.trace_id:
            return self._tracer.start_span(name, None, kind, attributes)
        links = [Link(here)] if here.is_valid else ()
        return self._tracer.start_span(name, _below(place), kind, attributes, links)

    def _after(self, event: Event[bytes], attributes: Attributes, late: bool) -> trace.Span:
        """The span of one event: below its fact, or only linked to it when that is long ago."""
        place = _place(event)
        if place is None:
            return self._begun("posthouse.process", SpanKind.CONSUMER, event.correlation, attributes)
        context, links = NOWHERE if late else _below(place), [_link(event, place)]
        return self._tracer.start_span("posthouse.process", context, SpanKind.CONSUMER, attributes, links)

    def _begun(self, name: str, kind: SpanKind, correlation: str | None, attributes: Attributes) -> trace.Span:
        """The first span of a trace, whose id is the correlation where that can be one."""
        id = None if correlation is None else correlation_to_trace_id(correlation)
        if id is None or self._beginning is None:
            return self._tracer.start_span(name, NOWHERE, kind, attributes)
        self._beginning.trace_id = int(id, 16)
        try:
            return self._tracer.start_span(name, NOWHERE, kind, attributes)
        finally:
            self._beginning.trace_id = None

    def _keep(self, id: str, span: trace.Span) -> None:
        if span.is_recording():
            while len(self._open) >= OPEN:
                self.told([next(iter(self._open))], "unknown")
            self._open[id] = span

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


class _Placed(Protocol):
    """What may say where in a trace it belongs."""

    @property
    def correlation(self) -> str | None: ...
    @property
    def traceparent(self) -> str | None: ...
    @property
    def tracestate(self) -> str | None: ...


class _Ids(Protocol):
    """What an SDK draws ids with."""

    def generate_span_id(self) -> int: ...
    def generate_trace_id(self) -> int: ...
    def is_trace_id_random(self) -> bool: ...


class _Beginning(threading.local):
    """Draws ids as the application's generator does, but for a trace that is to have a certain one. It is used by the tracer of
    this library alone: with a made-up parent instead, a sampler would take the word of that parent and decide nothing."""

    trace_id: int | None = None

    def __init__(self, others: _Ids) -> None:
        self._others = others

    def generate_span_id(self) -> int:
        return self._others.generate_span_id()

    def generate_trace_id(self) -> int:
        return self._others.generate_trace_id() if self.trace_id is None else self.trace_id

    def is_trace_id_random(self) -> bool:
        return self.trace_id is None and self._others.is_trace_id_random()


class _Sampler:
    """Decides as the application's sampler does, and about a trace of such an id by the hash of it: those that take a share of
    all traces look at the last 64 bits, which of every UUID begin with the same two. Of these a share of 1 % would be none."""

    def __init__(self, others: _Decides, beginning: _Beginning) -> None:
        self._others = others
        self._beginning = beginning

    def should_sample(self, parent_context: Context | None, trace_id: int, *about: object, **more: object) -> object:
        if self._beginning.trace_id == trace_id:
            trace_id = int.from_bytes(hashlib.blake2b(trace_id.to_bytes(16), digest_size=16).digest())
        return self._others.should_sample(parent_context, trace_id, *about, **more)

    def get_description(self) -> str:
        return self._others.get_description()


class _Decides(Protocol):
    """What an SDK samples with."""

    def should_sample(
        self, parent_context: Context | None, trace_id: int, *about: object, **more: object
    ) -> object: ...
    def get_description(self) -> str: ...


def _beginning(tracer: trace.Tracer) -> _Beginning | None:
    """What decides on the ids of traces that begin with this tracer; None for one of another making than OpenTelemetry's SDK:
    there a trace has an id of its own when it begins."""
    ids, sampler = getattr(tracer, "id_generator", None), getattr(tracer, "sampler", None)
    if ids is None or sampler is None or isinstance(ids, _Beginning):
        return ids
    beginning = _Beginning(cast("_Ids", ids))
    ours: dict[str, object] = {"id_generator": beginning, "sampler": _Sampler(cast("_Decides", sampler), beginning)}
    for name, value in ours.items():
        setattr(tracer, name, value)
    return beginning


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


def _place(given: _Placed) -> SpanContext | None:
    """Where it belongs; None where it does not say so, or not in words that anybody understands."""
    text, state = given.traceparent, given.tracestate
    if text is None or not is_traceparent(text):
        return None
    flags = TraceFlags(int(text[53:55], 16) & (SAMPLED | RANDOM))
    states = TraceState.from_header([state]) if state is not None and is_tracestate(state) else None
    return SpanContext(int(text[3:35], 16), int(text[36:52], 16), True, flags, states)


def _below(place: SpanContext) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(place), NOWHERE)


def _link(event: Event[bytes], place: SpanContext) -> Link:
    return Link(place, {"posthouse.event.id": event.id})


def _header(place: SpanContext) -> str:
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{place.trace_flags & (SAMPLED | RANDOM):02x}"


def _state(place: SpanContext) -> str | None:
    state = place.trace_state.to_header() if place.trace_state else ""
    return state if state and is_tracestate(state) else None


def _fail(span: trace.Span, error: BaseException | None, outcome: str) -> None:
    """Errors are shown without secrets: an SDK would write their own words, and those of all that caused them."""
    if error is None:
        span.set_status(Status(StatusCode.ERROR, outcome))
        return
    words = words_of(error)
    told = {"exception.type": type(error).__qualname__, "exception.message": words}
    stack = "".join(traceback.format_tb(users_part(error.__traceback__)))
    span.add_event("exception", {**told, "exception.stacktrace": stack})
    span.set_status(Status(StatusCode.ERROR, f"{outcome}: {type(error).__name__}: {words}"))
