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
from posthouse.contracts.personal import personal_fields
from posthouse.events import Event, decode_any
from posthouse.events.trace import RANDOM, SAMPLED, is_traceparent, is_tracestate, same_trace, trace_number
from posthouse.redaction import words_of
from posthouse.seam.context import EventContext
from posthouse.seam.current import current
from posthouse.seam.failures import users_part
from posthouse.seam.masking import Mask
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
MIX, ALL = 0x9E3779B97F4A7C15F39CC0605CEDC835, 2**128 - 1
"""The golden share of 2**128, odd: of a product with it the first 64 bits depend on all of the factor, and are spread evenly."""
OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"

Attributes = Mapping[str, str | int]

_Fact = tuple[type, bytes]
"""What a fact says, and the class that tells which of it is personal."""
_Unseen = tuple[SpanContext | None, str, str | None]
"""A place in a trace, and its traceparent and tracestate; empty where what is below may be recorded."""


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
        self._follows = _follows(tracer)
        self._beginning = _beginning(tracer)
        self._open: dict[str, tuple[trace.Span, _Fact | None]] = {}
        self._conventions = any(word.strip() in ("messaging", "messaging/dup") for word in _opted_in())
        self._told = False
        self._last: _Unseen = (None, "", None)

    def create(self, service: str, topic: str, event: Event[bytes], payload: type) -> Event[bytes]:
        """See `Spans`."""
        try:
            if self._follows:
                _, header, state = self._unseen_here()
                if header and (event.traceparent is None or same_trace(header, event.traceparent)):
                    return msgspec.structs.replace(event, traceparent=header, tracestate=state)
            attributes = self._named("create", {"posthouse.service": service, **_about(topic, event)})
            span = self._below("posthouse.create", SpanKind.PRODUCER, event, attributes)
            place = span.get_span_context()
            if not place.is_valid:
                return event
            self._keep(event.id, span, (payload, event.data) if personal_fields(payload) else None)
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
        ended = [found for id in ids if (found := self._open.pop(id, None)) is not None]
        for span, _ in ended:
            try:
                span.set_attribute("posthouse.outcome", fate)
                if fate not in ("committed", "written"):
                    _fail(span, error, fate, *(fact for _, fact in ended if fact is not None))
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
    ) -> RunningSpan | UnseenSpan:
        """See `Spans`."""
        try:
            first = events[0]
            late = now - first.entry.time > LATE
            if self._follows and len(events) == 1 and first.event is not None and not late:
                place = _place(first.event)
                if place is not None and not place.trace_flags & SAMPLED:
                    return UnseenSpan(place)
            by: Attributes = {"posthouse.consumer": consumer, "posthouse.handler": handler}
            if len(events) == 1 and first.event is not None:
                attributes = {**by, **_about(first.entry.topic, first.event), "posthouse.attempt": attempt}
                span = self._after(first.event, self._named("process", attributes), late)
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

    def _unseen_here(self) -> _Unseen:
        """What facts take along from here where nothing is recorded. Many are said in one place: it is written once."""
        here, last = trace.get_current_span().get_span_context(), self._last
        if here is not last[0]:
            unseen = here.is_valid and not here.trace_flags.sampled
            self._last = last = (here, _header(here), _state(here)) if unseen else (here, "", None)
        return last

    def _below(self, name: str, kind: SpanKind, given: _Placed, attributes: Attributes) -> trace.Span:
        """A span where the application stands, unless it said that it belongs elsewhere; without either the trace begins."""
        here = trace.get_current_span().get_span_context()
        place = _place(given)
        if place is None and not here.is_valid:
            return self._begun(name, kind, given.correlation, attributes)
        if place is None or place.trace_id == here.trace_id:
            if self._follows and not here.trace_flags.sampled:
                return NonRecordingSpan(here)
            return self._tracer.start_span(name, None, kind, attributes)
        if self._follows and not place.trace_flags.sampled:
            return NonRecordingSpan(place)
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
        """The first span of a trace, whose id is the correlation where that can be one. The sampler is asked here: an SDK would
        take three times as long to begin a span that nobody records."""
        id = 0 if correlation is None else trace_number(correlation)
        beginning = self._beginning
        if not id or beginning is None:
            return self._tracer.start_span(name, NOWHERE, kind, attributes)
        decided = beginning.sampler.should_sample(NOWHERE, (id * MIX & ALL) >> 64, name, kind, attributes, ())
        if not decided.decision.is_recording():
            return NonRecordingSpan(SpanContext(id, beginning.generate_span_id(), False, None, decided.trace_state))
        beginning.trace_id, beginning.decided = id, decided
        try:
            return self._tracer.start_span(name, NOWHERE, kind, attributes)
        finally:
            beginning.trace_id = beginning.decided = None

    def _keep(self, id: str, span: trace.Span, fact: _Fact | None = None) -> None:
        if span.is_recording():
            while len(self._open) >= OPEN:
                self.told([next(iter(self._open))], "unknown")
            self._open[id] = (span, fact)

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


class UnseenSpan:
    """A place in a trace that is not recorded: what is done there knows it, and nobody hears of it."""

    __slots__ = ("_place", "_token")

    def __init__(self, place: SpanContext) -> None:
        self._place = place

    def says(self, outcome: str, error: BaseException | None = None) -> None:
        """To nobody."""

    def __enter__(self) -> Self:
        self._token = contexts.attach(_below(self._place))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        contexts.detach(self._token)


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


class _Decision(Protocol):
    def is_recording(self) -> bool: ...


class _Decided(Protocol):
    """What became of a question."""

    @property
    def decision(self) -> _Decision: ...
    @property
    def trace_state(self) -> TraceState | None: ...


class _Sampler(Protocol):
    """What an SDK asks whether a span is recorded."""

    def should_sample(self, parent_context: Context | None, trace_id: int, *about: object) -> _Decided: ...
    def get_description(self) -> str: ...


class _Beginning(threading.local):
    """Draws ids and samples as the application's own do, but for a trace that is to have a certain id, about which was decided
    already. It is used by the tracer of this library alone. With a made-up parent instead a sampler would take the word of that
    parent. And about an id that is a UUID it is asked with the bits mixed: those that take a share of all traces look at the
    last 64 bits, which of every UUID begin with the same two, and a share of 1 % would be none."""

    trace_id: int | None = None
    decided: _Decided | None = None

    def __init__(self, ids: _Ids, sampler: _Sampler) -> None:
        self._ids = ids
        self.sampler = sampler

    def generate_span_id(self) -> int:
        return self._ids.generate_span_id()

    def generate_trace_id(self) -> int:
        return self._ids.generate_trace_id() if self.trace_id is None else self.trace_id

    def is_trace_id_random(self) -> bool:
        return self.trace_id is None and self._ids.is_trace_id_random()

    def should_sample(self, parent_context: Context | None, trace_id: int, *about: object) -> _Decided:
        return self.decided or self.sampler.should_sample(parent_context, trace_id, *about)

    def get_description(self) -> str:
        return self.sampler.get_description()


def _beginning(tracer: trace.Tracer) -> _Beginning | None:
    """What decides on traces that begin with this tracer; None for one of another making than OpenTelemetry's SDK: there a trace
    has an id of its own when it begins."""
    ids, sampler = getattr(tracer, "id_generator", None), getattr(tracer, "sampler", None)
    if isinstance(ids, _Beginning):
        return ids  # of another App
    if ids is None or sampler is None:
        return None
    beginning = _Beginning(cast("_Ids", ids), cast("_Sampler", sampler))
    for name in ("id_generator", "sampler"):
        setattr(tracer, name, beginning)
    return beginning


def _follows(tracer: trace.Tracer) -> bool:
    """Whether nothing is ever recorded below a span that is not sampled, so that nobody need be asked: an SDK's sampler says so
    in its description, and most are such."""
    describe = getattr(getattr(tracer, "sampler", None), "get_description", None)
    try:
        words = str(describe()) if callable(describe) else ""
    except Exception:  # one that does not describe itself is asked
        return False
    off = ("remoteParentNotSampled:AlwaysOffSampler", "localParentNotSampled:AlwaysOffSampler")
    return words.startswith("ParentBased{") and all(part in words for part in off)


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
