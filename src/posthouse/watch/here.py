"""Here: what is known about the code that runs, as fields: the event or request in hand, and the span that is current."""

from __future__ import annotations

import sys

from posthouse.events.trace import TraceContext
from posthouse.seam.current import Current


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


def fields_of(here: Current) -> dict[str, object]:
    """What a line of the log says by itself. `span_id` is there where a span is current: that of a `traceparent` is another's."""
    event = here.event
    fields: dict[str, object] = {
        "correlation": here.correlation,
        "outer_correlation": here.outer_correlation,
        "tenant": here.tenant,
        "consumer": here.consumer,
        "attempt": here.attempt,
    }
    if event is not None:
        fields |= {"event_id": event.id, "event_type": event.type, "tenant": event.tenant, "key": event.key}
    if (span := span_here()) is not None:
        fields |= {"trace_id": span.trace_id, "span_id": span.span_id}
    elif (trace := TraceContext.parse(here.traceparent)) is not None:
        fields["trace_id"] = trace.trace_id
    return {name: value for name, value in fields.items() if value}
