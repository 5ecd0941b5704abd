"""Turn: what a method of a saga may say and do while it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.options import Seconds, misfit, moment_of
from posthouse.processes.calendar import Working
from posthouse.sending import Tx
from posthouse.store import Parameters, Rows

Verdict = Literal["complete", "compensate", "partial"]

Wait = float | datetime | Working
"""What a deadline waits for: seconds, a moment, or working time by a calendar."""


class Mark(NamedTuple):
    """What a method said about the saga as a whole, and why."""

    verdict: Verdict
    words: str


class Turn:
    """One turn of a saga: an event, a deadline, its start or an operator's word. Everything here commits together with
    the saga's state, or not at all. What is said about the saga as a whole is done after the method has returned."""

    __slots__ = (
        "_deadlines",
        "_done",
        "_final",
        "_method",
        "_needs",
        "cleared",
        "mark",
        "now",
        "reason",
        "set_for",
        "tx",
    )

    def __init__(
        self,
        tx: Tx,
        *,
        method: str,
        now: float,
        reason: str,
        deadlines: Mapping[str, float | Working | None],
        needs: Mapping[str, Sequence[str]],
        done: Collection[str],
        final: bool = False,
    ) -> None:
        self.tx = tx
        """The transaction, for what is not here, as starting a child: `await service.start_saga(turn.tx, Child(…))`."""
        self.now = now
        """The time in seconds since 1970, by the service's clock."""
        self.reason = reason
        """Why it compensates, or is partial; empty before."""
        self.mark: Mark | None = None
        """What was said about the saga as a whole."""
        self.set_for: dict[str, Wait] = {}
        """Deadlines set in this turn, each with what it waits for."""
        self.cleared: set[str] = set()
        """Deadlines cleared in this turn."""
        self._method = method
        self._deadlines = deadlines
        self._needs = needs
        self._done = done
        self._final = final

    @property
    def tenant(self) -> str:
        """The tenant that the saga belongs to."""
        return self.tx.tenant

    def publish(
        self,
        payload: object,
        *,
        idempotency_key: str | None = None,
        after: float | None = None,
        at: datetime | None = None,
        timer: str | None = None,
    ) -> str:
        """Say a fact when the turn commits, as `Tx.publish` does; returns the event's id."""
        return self.tx.publish(payload, idempotency_key=idempotency_key, after=after, at=at, timer=timer)

    def execute(self, sql: str, parameters: Parameters = ()) -> Coroutine[Any, Any, Rows]:
        """Run one statement of yours in the same transaction, as `Tx.execute` does."""
        return self.tx.execute(sql, parameters)

    def set(self, method: Callable[[Turn], object], after: float | None = None, *, at: datetime | None = None) -> None:
        """Arm a deadline, `turn.set(self.hold_expired)`, or move it when it is armed. It passes `after` seconds from now, or
        `at` a moment with a time zone, at once when it is past; without either, after what it was declared with."""
        name, owner = self._deadline(method, "set"), f"{self._method}: turn.set"
        if at is not None:
            moment_of(owner, at)
            if after is not None:
                raise ConfigurationError(f"{owner}(after={after!r}, at=…) says two times: leave one out")
            self.set_for[name] = at.astimezone(UTC)
            return
        if after is not None and (problem := misfit(owner, "after", after, Seconds)):
            raise ConfigurationError(problem)
        wait = self._deadlines[name] if after is None else after
        if wait is None:
            raise ConfigurationError(f"{owner}({name}) says no time, and @deadline() does not: add after=… or at=…")
        self.set_for[name] = wait

    def clear(self, method: Callable[[Turn], object]) -> None:
        """Stop a deadline; nothing happens when it is not armed."""
        name = self._deadline(method, "clear")
        self.set_for.pop(name, None)
        self.cleared.add(name)

    def missing(self, step: Callable[..., object]) -> list[str]:
        """The names of the steps that a join, or a step with `after=`, still waits for: `turn.missing(self.confirm)`. The
        step whose method runs counts as done."""
        name = getattr(step, "__name__", repr(step))
        if name not in self._needs:
            raise ConfigurationError(
                f"{self._method}: turn.missing({name}) names nothing that waits for steps: give it a method that is marked "
                f"with @join or @step(…, after=…).{did_you_mean(name, self._needs)}"
            )
        return [before for before in self._needs[name] if before not in self._done]

    def complete(self, note: str = "") -> None:
        """The process has reached its goal: it ends, and its deadlines with it."""
        self._say(Mark("complete", note))

    def compensate(self, reason: str) -> None:
        """Undo the steps that were done, last one first."""
        self._say(Mark("compensate", reason))

    def partial(self, reason: str) -> None:
        """A part could not be done: the saga rests for an operator, and still takes events."""
        self._say(Mark("partial", reason))

    def _say(self, mark: Mark) -> None:
        self._refuse_after_the_fact(f"turn.{mark.verdict}()")
        if self.mark is not None and self.mark.verdict != mark.verdict:
            raise ConfigurationError(
                f"{self._method} said turn.{self.mark.verdict}() and then turn.{mark.verdict}(): a turn has one outcome"
            )
        self.mark = mark

    def _deadline(self, method: Callable[[Turn], object], verb: str) -> str:
        self._refuse_after_the_fact(f"turn.{verb}()")
        name = getattr(method, "__name__", repr(method))
        if name not in self._deadlines or not callable(method):
            raise ConfigurationError(
                f"{self._method}: turn.{verb}({name}) names no deadline of this saga: give it a method that is marked with "
                f"@deadline, as in turn.{verb}(self.expired).{did_you_mean(name, self._deadlines)}"
            )
        return name

    def _refuse_after_the_fact(self, call: str) -> None:
        if self._final:
            raise ConfigurationError(
                f"{self._method} calls {call}: an undo decides no more about the saga, nor does what an operator did by hand"
            )
