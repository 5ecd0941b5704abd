"""Here: what is known about the code that runs, as fields: the event or request in hand, and the span that is current."""

from __future__ import annotations

from posthouse.events.trace import TraceContext
from posthouse.seam.current import Current, span_here


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
