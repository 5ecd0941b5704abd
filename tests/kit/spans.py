"""Spans as trees: what a process told a collector, in words that a test can compare."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanContext


class Collected:
    """A provider, and the spans that have ended."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler or ParentBased(ALWAYS_ON), shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def tree(self, *without: str) -> list[str]:
        """Every span under its parent, two blanks deeper each, siblings by the alphabet; without those of some names."""
        return tree([span for span in self.spans if span.name not in without])


def tree(spans: Sequence[ReadableSpan]) -> list[str]:
    known = {place(span).span_id for span in spans}
    lines: list[str] = []

    def draw(parent: int | None, depth: int) -> None:
        for span in sorted(spans, key=label):
            above = span.parent.span_id if span.parent is not None and span.parent.span_id in known else None
            if above == parent:
                lines.append("  " * depth + label(span))
                draw(place(span).span_id, depth + 1)

    draw(None, 0)
    return lines


def label(span: ReadableSpan) -> str:
    """`create order.placed.v1`, `process issue`, `saga booking`, `send`, and spans of others by their names; how it ended in
    brackets unless it went well."""
    about = span.attributes or {}
    word = span.name.removeprefix("posthouse.")
    said = {
        "create": about.get("posthouse.type"),
        "process": about.get("posthouse.handler"),
        "saga": about.get("posthouse.saga"),
    }
    what = str(said.get(word) or "")
    parts = what.rpartition(".<locals>.")[2].split(".")
    what = ".".join(parts[-2:] if word == "process" else parts[-3:])
    outcome = about.get("posthouse.outcome")
    went = "" if outcome in (None, "applied", "committed", "accepted") else f" [{outcome}]"
    return f"{word} {what}".strip() + went


def place(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def linked(span: ReadableSpan) -> list[int]:
    """The ids of the spans that it is linked to."""
    return [link.context.span_id for link in span.links]


def trace_id(span: ReadableSpan) -> str:
    return f"{place(span).trace_id:032x}"
