"""PORT: spans, for whoever watches traces. Nobody does unless the application says so, and then each crossing asks one attribute."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Protocol, Self

from posthouse.broker import Frame
from posthouse.clock import SystemClock
from posthouse.events import Event
from posthouse.redaction import words_of
from posthouse.seam.context import EventContext
from posthouse.store import InboxEntry
from posthouse.store.savepoints import Fate

log = logging.getLogger("posthouse.traces")

AGAIN = 60.0
"""Seconds until whoever failed to say where spans go is asked again."""


class TracerProvider(Protocol):
    """What OpenTelemetry calls so: the SDK's, or one that does as it does."""

    def get_tracer(self, instrumenting_module_name: str, /) -> object:
        """A tracer by the name of who uses it."""
        ...


class Processed(Protocol):
    """An event on its way to its handler, as far as a span tells of it."""

    @property
    def event(self) -> Event[bytes] | None: ...
    @property
    def entry(self) -> InboxEntry: ...


class Span(Protocol):
    """What happens between entering and leaving it; meanwhile it is the current one."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def says(self, outcome: str, error: BaseException | None = None) -> None:
        """How it ended, before it is left."""
        ...


class Spans(Protocol):
    """Begins spans. Nothing here ever raises, or waits for anybody."""

    @property
    def waiting(self) -> Collection[str]:
        """What is to be told of: the ids of facts, and the places of sagas, that somebody records."""
        ...

    def create(self, service: str, topic: str, event: Event[bytes], payload: type) -> Event[bytes]:
        """A fact is said, with data of the class `payload`: as it goes out, in its place in the trace. `told` ends what this begins."""
        ...

    def begin(self, saga: str, id: str, correlation: str, context: EventContext) -> str | None:
        """A saga begins: its place in the trace, a traceparent; None where nobody knows one. `told` ends this too, under that."""
        ...

    def told(self, ids: Sequence[str], fate: Fate, error: BaseException | None = None) -> None:
        """What became of facts, by their ids; of others nothing is known here, and nothing done."""
        ...

    def send(self, service: str, frames: Sequence[Frame]) -> Span:
        """Around a publish of the broker."""
        ...

    def process(self, consumer: str, handler: str, events: Sequence[Processed], attempt: int, now: float) -> Span:
        """Around a run of a handler, with its transaction, for one event or several."""
        ...


class Unseen:
    """No span."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def says(self, outcome: str, error: BaseException | None = None) -> None:
        """To nobody."""


UNSEEN = Unseen()


class Tracing:
    """Whether this process traces. `find` is asked until it has an answer: an application may set its provider up after ours,
    or after a fork. Where it fails nothing is traced, that is told once, and it is asked again a minute later."""

    __slots__ = ("_again", "_now", "_told", "find", "spans")

    def __init__(
        self, find: Callable[[], Spans | None] | None = None, *, now: Callable[[], float] = SystemClock.monotonic
    ) -> None:
        self.find = find
        self.spans: Spans | None = None
        """None: nobody looks."""
        self._now = now
        self._again: float | None = None
        self._told = False

    def look(self) -> None:
        """Find out, where it is not known yet. Nothing that a provider does is raised here."""
        if self.spans is not None or self.find is None or (self._again is not None and self._now() < self._again):
            return
        try:
            self.spans = self.find()
        except Exception as error:
            self._again = self._now() + AGAIN
            if not self._told:
                self._told = True
                log.warning(
                    "nothing is traced, for the tracer provider failed: %s: %s", type(error).__name__, words_of(error)
                )
