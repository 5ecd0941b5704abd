"""Places in a trace: as W3C writes them, and as OpenTelemetry has them."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Protocol, Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.span import TraceState

from posthouse.events.trace import RANDOM, SAMPLED, is_traceparent, is_tracestate

NOWHERE = Context()
"""What a relay or a consumer does belongs to no request: not even to the one in which it was started."""
UNSAMPLED = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[02]")
"""A traceparent as this library writes it where nobody records."""


class Placed(Protocol):
    """What may say where in a trace it belongs."""

    @property
    def correlation(self) -> str | None: ...
    @property
    def traceparent(self) -> str | None: ...
    @property
    def tracestate(self) -> str | None: ...


class Unrecorded(NonRecordingSpan):
    """A span that nobody records, by its traceparent: most are never asked for their place, and it is not read before."""

    def __init__(self, header: str, state: str | None) -> None:
        self.header = header
        self.state = state

    def get_span_context(self) -> SpanContext:
        return _read(self.header, self.state)

    def __repr__(self) -> str:
        return f"Unrecorded({self.header!r})"


class UnseenSpan:
    """`Span` of the seam where nobody records: what is done there knows its place, and nobody hears of it."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Unrecorded) -> None:
        self._span = span

    def says(self, outcome: str, error: BaseException | None = None) -> None:
        """To nobody."""

    def __enter__(self) -> Self:
        self._token = contexts.attach(trace.set_span_in_context(self._span, NOWHERE))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        contexts.detach(self._token)


def place_of(given: Placed) -> SpanContext | None:
    """Where it belongs; None where it does not say so, or not in words that anybody understands."""
    text = given.traceparent
    return None if text is None or not is_traceparent(text) else _read(text, given.tracestate)


def _read(header: str, state: str | None) -> SpanContext:
    flags = TraceFlags(int(header[53:55], 16) & (SAMPLED | RANDOM))
    states = None if (state := readable(state)) is None else TraceState.from_header([state])
    return SpanContext(int(header[3:35], 16), int(header[36:52], 16), True, flags, states)


def below(place: SpanContext) -> Context:
    """Where what is done belongs there."""
    return trace.set_span_in_context(NonRecordingSpan(place), NOWHERE)


def header_of(place: SpanContext) -> str:
    """The traceparent."""
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{place.trace_flags & (SAMPLED | RANDOM):02x}"


def state_of(place: SpanContext) -> str | None:
    """The tracestate."""
    return readable(place.trace_state.to_header()) if place.trace_state else None


def readable(state: str | None) -> str | None:
    """A tracestate, unless it breaks W3C's rules."""
    return state if state is not None and is_tracestate(state) else None
