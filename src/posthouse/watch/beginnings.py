"""Where traces begin: ids and decisions of an OpenTelemetry SDK for traces that are to have a certain id."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Protocol, cast

from opentelemetry import trace
from opentelemetry.context import Context

MIX, LAST = 0x9E3779B97F4A7C15F39CC0605CEDC835, 2**64 - 1
"""The golden share of 2**128, odd: of a product with it the first 64 bits depend on all of the factor, and are spread evenly."""
SAMPLING = "opentelemetry.sdk.trace.sampling"


class _Ids(Protocol):
    """What an SDK draws ids with."""

    def generate_span_id(self) -> int: ...
    def generate_trace_id(self) -> int: ...
    def is_trace_id_random(self) -> bool: ...


class Sampler(Protocol):
    """What an SDK asks whether a span is recorded."""

    def should_sample(self, parent_context: Context | None, trace_id: int, *about: object) -> object: ...
    def get_description(self) -> str: ...


class Beginning(threading.local):
    """Draws ids and samples as the application's own do, but for a trace that is to have a certain id. It is used by the tracer of
    this library alone. With a made-up parent instead a sampler would take the word of that parent."""

    _id: int | None = None
    _random = True
    """Whether the id is drawn as any other."""

    def __init__(self, ids: _Ids, sampler: Sampler) -> None:
        self._ids = ids
        self.sampler = sampler

    @contextlib.contextmanager
    def of(self, trace_id: int, *, random: bool) -> Iterator[None]:
        """A trace that begins meanwhile has this id."""
        self._id, self._random = trace_id, random
        try:
            yield
        finally:
            self._id, self._random = None, True

    def generate_span_id(self) -> int:
        return self._ids.generate_span_id()

    def generate_trace_id(self) -> int:
        return self._ids.generate_trace_id() if self._id is None else self._id

    def is_trace_id_random(self) -> bool:
        return self._random and self._ids.is_trace_id_random()

    def should_sample(self, parent_context: Context | None, trace_id: int, *about: object) -> object:
        asked = trace_id if self._random else mixed(trace_id)
        return self.sampler.should_sample(parent_context, asked, *about)

    def get_description(self) -> str:
        return self.sampler.get_description()


def beginning_of(tracer: trace.Tracer) -> Beginning | None:
    """What decides on traces that begin with this tracer; None for one of another making than OpenTelemetry's SDK: there a trace
    has an id of its own when it begins."""
    ids, sampler = getattr(tracer, "id_generator", None), getattr(tracer, "sampler", None)
    if isinstance(ids, Beginning):
        return ids  # of another App
    if ids is None or sampler is None:
        return None
    beginning = Beginning(cast("_Ids", ids), cast("Sampler", sampler))
    for name in ("id_generator", "sampler"):
        setattr(tracer, name, beginning)
    return beginning


def mixed(trace_id: int) -> int:
    """What a sampler is asked about an id that is a UUID: those that take a share of all traces look at the last 64 bits, which of
    every UUID begin with the same two, and a share of 1 % would be none."""
    return trace_id * MIX >> 64 & LAST


def follows(sampler: Sampler) -> bool:
    """Whether nothing is ever recorded below a span that is not sampled, so that nobody need be asked: most samplers are such."""
    below = (getattr(sampler, f"_{where}_parent_not_sampled", None) for where in ("remote", "local"))
    return _decides_as("ParentBased", sampler) and all(map(_takes_none, below))


def bound_of(sampler: Sampler) -> int | None:
    """Below which number, of 64 bits, a trace that begins is recorded; None where the sampler has to be asked about each."""
    root = getattr(sampler, "_root", None)
    if not _decides_as("ParentBased", sampler):
        return None
    if _takes_none(root):
        return 0
    bound = getattr(root, "bound", None) if _decides_as("TraceIdRatioBased", root) else None
    return bound if isinstance(bound, int) else None


def _takes_none(sampler: object) -> bool:
    return _decides_as("StaticSampler", sampler) and cast("Sampler", sampler).get_description() == "AlwaysOffSampler"


def _decides_as(name: str, sampler: object) -> bool:
    """Whether it does so as that of the SDK: what is derived from it has its description, and may decide otherwise."""
    theirs = getattr(sys.modules.get(SAMPLING), name, None)
    return theirs is not None and getattr(type(sampler), "should_sample", None) is theirs.should_sample
