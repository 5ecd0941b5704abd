"""Failures: what a service could not do with an event, as one value: for the log, and for a hook of the user's own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Literal

from posthouse.errors import DeadlineExceeded, HandlerSignal
from posthouse.events import timestamp
from posthouse.seam.current import current
from posthouse.seam.deadline import in_thread, on_loop
from posthouse.seam.masking import words_here

log = logging.getLogger("posthouse.failures")

OURS = str(Path(__file__).parents[1])
"""Where our own code is: a traceback is shown from where it leaves it."""

WITHIN = 5.0
"""Seconds that one call of a hook may take; then it is left alone."""
WAITING = 1_000
"""Failures that may wait for a hook that is slow; what comes then is only logged."""
HANGING = 4
"""Calls that were left alone and have not ended; with so many the hook is not called."""
LAST_WORDS = 2.0
"""Seconds for the hook to hear the rest, when everything is closed."""

Outcome = Literal["retry", "dead", "quarantined"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Failure:
    """A handler, a step of a saga, an undo or a publish that failed, for one event. Nothing of its payload is in it."""

    error: BaseException | None = None
    """What was raised, with its traceback; None where nothing was, and `reason` says all: the broker refused a frame, or what
    came could not be read."""
    reason: str
    """In words, without secrets and personal data."""
    outcome: Outcome
    """`retry`: it is tried again at `next_at`. `dead`: never again by itself, its key waits or goes on as the policy says.
    `quarantined`: the same, and its key goes on."""
    consumer: str = ""
    """The consumer group; empty where the relay could not publish."""
    handler: str = ""
    """The function, by module and name."""
    event_type: str = ""
    """The subject; empty where it could not be read."""
    event_id: str = ""
    topic: str = ""
    tenant: str = ""
    key: str | None = None
    correlation: str | None = dataclasses.field(default_factory=lambda: current().correlation)
    """Which story it is part of; None where nobody could read it."""
    attempt: int = 0
    """This was run number …"""
    max_attempts: int | None = None
    """… of so many; None where nothing limits them."""
    next_at: float | None = None
    """When it is tried again, in seconds since 1970; None when it is not."""
    command: str = ""
    """What shows it, when it is tried no more."""
    error_words: str = dataclasses.field(init=False, repr=False)
    """What the error says, without secrets and personal data; empty without one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "error_words", "" if self.error is None else words_here(self.error))

    @property
    def dead(self) -> bool:
        """Whether somebody has to look at it: it is not tried again by itself."""
        return self.outcome != "retry"

    @property
    def message(self) -> str:
        """The line in the log."""
        who = f"{self.consumer}: {self.handler or 'an event'}" if self.consumer else f"{self.topic}: publishing"
        what = f" on {self.event_type}" if self.event_type else ""
        of = "" if self.max_attempts is None else f" of {self.max_attempts}"
        run = f" (attempt {self.attempt}{of})" if self.attempt else ""
        key = "no key" if self.key is None else f"key {self.key}"
        about = f"event {self.event_id} of tenant {self.tenant}, {key}"
        return f"{who} failed{what}{run}: {self._words}; {about}, {self._fate}"

    @property
    def fields(self) -> dict[str, object]:
        """What the record in the log carries, each under its name: see `Failure`."""
        named = (
            "reason",
            "outcome",
            "consumer",
            "handler",
            "event_type",
            "event_id",
            "topic",
            "tenant",
            "key",
            "correlation",
        )
        shown: dict[str, object] = {name: getattr(self, name) for name in named}
        return shown | {
            "attempt": self.attempt,
            "max_attempts": self.max_attempts,
            "next_at": None if self.next_at is None else timestamp(self.next_at),
            "error_type": None if self.error is None else type(self.error).__qualname__,
            "error_message": None if self.error is None else self.error_words,
            "command": self.command or None,
        }

    @property
    def _words(self) -> str:
        if self.error is None:
            return self.reason
        words = self.error_words
        return f"{type(self.error).__name__}: {words}" if words else type(self.error).__name__

    @property
    def _fate(self) -> str:
        if self.outcome == "retry":
            return "is tried again at once" if self.next_at is None else f"is tried next at {timestamp(self.next_at)}"
        state = "dead" if self.outcome == "dead" else "quarantined"
        why = "" if self.error is None or self.reason == self.error_words else f" ({self.reason})"
        return f"is {state}{why}" + (f": see `{self.command}`" if self.command else "")


OnFailure = Callable[[Failure], Awaitable[None] | None]
"""Told of each failure: a function, or a coroutine function. See `App`."""


class Failures:
    """Where every failure is told: one line in the log, and then the hook.

    The hook is called after the line, in order, one call at a time, apart from whoever failed: nothing waits for it, and what
    it raises is logged. A plain function runs in a thread. A call that takes longer than 5 s is left alone; behind a hook that
    is slow 1,000 failures wait, and what comes then is only logged.
    """

    def __init__(self, hook: OnFailure | None = None) -> None:
        self.hook = hook
        self.counted: dict[str, Callable[[str, Outcome], None]] = {}
        """By consumer: who counts its events that are not tried again, by topic and outcome."""
        self._waiting: deque[Failure] = deque()
        self._passed_over = 0
        self._open: set[Failure] = set()
        """Calls that have not ended; all but the last were left alone."""
        self._telling: asyncio.Task[None] | None = None

    def report(self, failure: Failure, to: logging.Logger = log) -> None:
        """Tell it. Returns at once, and never raises: what becomes of the event does not hang on it."""
        try:
            self._report(failure, to)
        except Exception:
            with contextlib.suppress(Exception):
                log.exception("the failure of event %s could not be told", failure.event_id)

    def _report(self, failure: Failure, to: logging.Logger) -> None:
        error = failure.error
        if failure.dead and (count := self.counted.get(failure.consumer)) is not None:
            count(failure.topic, failure.outcome)
        shown = error is not None and (failure.dead or not isinstance(error, HandlerSignal))
        to.log(
            logging.ERROR if failure.dead else logging.WARNING,
            "%s", failure.message,
            extra=failure.fields,
            exc_info=(type(error), error, users_part(error.__traceback__)) if error is not None and shown else None,
        )  # fmt: skip
        if self.hook is not None:
            self._tell(failure)

    async def aclose(self) -> None:
        """Let the hook hear the rest, for a moment."""
        if self._telling is not None and self._telling.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._telling], timeout=LAST_WORDS)
            self._telling.cancel()

    def _tell(self, failure: Failure) -> None:
        if len(self._waiting) >= WAITING:
            self._pass_over()
            return
        self._waiting.append(failure)
        loop = asyncio.get_running_loop()
        if self._telling is None or self._telling.done() or self._telling.get_loop() is not loop:
            # in a context of its own: that of the handler which failed is none of its business
            self._telling = loop.create_task(self._tell_all(), context=contextvars.Context())

    async def _tell_all(self) -> None:
        while self._waiting:
            failure = self._waiting.popleft()
            if len(self._open) >= HANGING:
                self._pass_over()
                continue
            try:
                await self._call(failure)
            except DeadlineExceeded:
                log.error("on_failure took longer than %g s and is left alone, for event %s", WITHIN, failure.event_id)
            except Exception:
                log.exception("on_failure itself failed, for event %s", failure.event_id)

    def _pass_over(self) -> None:
        self._passed_over += 1
        if self._passed_over & (self._passed_over - 1) == 0:  # at 1, 2, 4, 8 …
            log.error("on_failure does not keep up: %d failures were only logged", self._passed_over)

    async def _call(self, failure: Failure) -> None:
        hook, open_calls = self.hook, self._open
        assert hook is not None

        def run() -> object:
            open_calls.add(failure)
            try:
                return hook(failure)
            finally:
                open_calls.discard(failure)

        async def finish(answer: Awaitable[object]) -> None:
            open_calls.add(failure)
            try:
                await answer
            finally:
                open_calls.discard(failure)

        is_async = inspect.iscoroutinefunction(hook)
        answer = hook(failure) if is_async else await in_thread(run, WITHIN, "on_failure")
        if inspect.isawaitable(answer):
            await on_loop(finish(answer), WITHIN, "on_failure")


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from where it leaves our code; all of it where it never does."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename.startswith(OURS):
        part = part.tb_next
    return part or trace
