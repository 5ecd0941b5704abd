"""Marks: the decorators that say what a method of a saga is for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Literal, TypeVar, overload

import msgspec

from posthouse.contracts import events_of
from posthouse.errors import ConfigurationError
from posthouse.events import Event
from posthouse.options import Count, SomeSeconds, Wait, misfit
from posthouse.processes.calendar import Calendar
from posthouse.processes.saga.turn import Turn
from posthouse.receiving import Calling, Policy

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
P = TypeVar("P")
Q = TypeVar("Q")
A = TypeVar("A")
B = TypeVar("B")

Alone = Callable[[S, Turn], R]
"""A method that is given its turn."""
With = Callable[[S, Event[P], Turn], R]
"""A method that is given an event and its turn."""
Answered = Callable[[S, Event[P], Turn, A], R]
"""A method that is given an event, its turn, and what the outside answered."""

Early = Literal["wait", "ignore"]
"""What becomes of an event whose saga was not started: it is held and tried again, or passed over."""

Late = Literal["undo", "ignore"]
"""What becomes of an event of a step that comes when the saga compensates or has ended: the undo of the step is run with it,
where it has one; or it is only noted."""

After = Callable[..., object] | tuple[Callable[..., object], ...]
"""The step, or the steps, that must be done before."""

Kind = Literal["starts", "step", "join", "on", "late", "undo", "deadline", "partial_retry", "partial_resume"]

MARKS = "__posthouse_saga_marks__"


class MethodMark(msgspec.Struct, frozen=True, kw_only=True):
    """What was said about one method."""

    kind: Kind
    events: tuple[type, ...] = ()
    correlate: str | None = None
    early: Early = "wait"
    early_within: float | None = None
    """None: as the saga says."""
    late: Late = "undo"
    step: Callable[..., object] | None = None
    """Of an undo: the step."""
    after: tuple[Callable[..., object], ...] = ()
    """Of a step or a join: the steps that must be done before."""
    unless: type | None = None
    """Of an undo: the event that says that it failed."""
    same: tuple[str, ...] = ()
    """Of an undo: the fields that both have in common with the event of the step."""
    by: str | None = None
    """Of a step: the role of those who bring it about."""
    seconds: float = 0.0
    """Of a deadline, or within which an undo's fact must come."""
    working_days: int | None = None
    working_hours: float | None = None
    """Of a deadline by a calendar."""
    untimed: bool = False
    """Of a deadline that says when only as it is set."""
    calendar: Calendar | None = None
    """None: that of the service."""
    policy: Policy | None = None
    """How its failures are answered; None: as those of the saga."""
    calling: Callable[..., object] | None = None
    """Of a step or an undo: what is asked before."""


def marks_of(function: object) -> tuple[MethodMark, ...]:
    """What was said about a function."""
    found: tuple[MethodMark, ...] = getattr(function, MARKS, ())
    return found


F = TypeVar("F", bound=Callable[..., object])


def _classes(mark: str, *given: object) -> tuple[type, ...]:
    """What was given to a mark; ConfigurationError unless they are classes, which is asked for more when the saga is declared."""
    if not given or not all(isinstance(one, type) for one in given):
        events_of(mark, given)
    return tuple(one for one in given if isinstance(one, type))


def _steps(mark: str, option: str, given: tuple[Callable[..., object], ...]) -> tuple[Callable[..., object], ...]:
    """What was given as steps; ConfigurationError unless each is a method with a mark, which is asked for more later."""
    for one in given:
        if not marks_of(one):
            raise ConfigurationError(
                f"@{mark} names steps in {option}: write them as they are called above, without quotes, not {_named(one)}"
            )
    return given


def _policy(mark: str, given: Policy | None) -> Policy | None:
    if given is not None and not isinstance(given, Policy):
        raise ConfigurationError(f"@{mark}(policy={given!r:.60}): write policy=Policy(max_attempts=3)")
    return given


def _function(mark: str, given: Callable[..., object] | None) -> Callable[..., object] | None:
    if given is not None and not inspect.isroutine(given):
        raise ConfigurationError(
            f"@{mark}(calling={given!r:.60}): it is a function that takes the event, `async def` or `def`"
        )
    return given


def _patience(mark: str, seconds: float | None) -> float | None:
    if seconds is not None and (problem := misfit(mark, "early_within", seconds, Wait)):
        raise ConfigurationError(problem)
    return seconds


def _named(given: object) -> str:
    return f"{getattr(given, '__name__', given)!r:.60}"


def _marked(mark: MethodMark) -> Callable[[F], F]:
    def note(function: F) -> F:
        setattr(function, MARKS, (*marks_of(function), mark))
        return function

    return note


@overload
def starts(method: Alone[S, R], /) -> Alone[S, R]: ...
@overload
def starts(
    event: type[P], /, *, correlate: str | None = None, late: Late = "undo", policy: Policy | None = None
) -> Callable[[With[S, P, R]], With[S, P, R]]: ...
def starts(
    given: Callable[..., object],
    /,
    *,
    correlate: str | None = None,
    late: Late = "undo",
    policy: Policy | None = None,
) -> Callable[..., object]:
    """The first step. `@starts` alone: `start_saga` runs it. `@starts(Event)`: the event starts a saga, whose other fields
    begin with their defaults. Another such event for a saga that was started starts nothing; where the start has an undo, it
    is run for that event too: with the other undos while the saga runs, at once when it has ended. With `late="ignore"` the
    latter is noted."""
    if inspect.isroutine(given):
        return _marked(MethodMark(kind="starts"))(given)
    events = _classes("starts", given)
    return _marked(
        MethodMark(kind="starts", events=events, correlate=correlate, late=late, policy=_policy("starts", policy))
    )


@overload
def step(
    event: type[P],
    /,
    *,
    after: After = (),
    by: str | None = None,
    correlate: str | None = None,
    early: Early = "wait",
    early_within: float | None = None,
    late: Late = "undo",
    policy: Policy | None = None,
) -> Callable[[With[S, P, R]], With[S, P, R]]: ...
@overload
def step(
    event: type[P],
    or_event: type[Q],
    /,
    *,
    after: After = (),
    by: str | None = None,
    correlate: str | None = None,
    early: Early = "wait",
    early_within: float | None = None,
    late: Late = "undo",
    policy: Policy | None = None,
) -> Callable[[With[S, P | Q, R]], With[S, P | Q, R]]: ...
@overload
def step(
    event: type[P],
    /,
    *,
    calling: Calling,
    after: After = (),
    by: str | None = None,
    correlate: str | None = None,
    early: Early = "wait",
    early_within: float | None = None,
    late: Late = "undo",
    policy: Policy | None = None,
) -> Callable[[Answered[S, P, A, R]], Answered[S, P, A, R]]: ...
@overload
def step(
    event: type[P],
    or_event: type[Q],
    /,
    *,
    calling: Calling,
    after: After = (),
    by: str | None = None,
    correlate: str | None = None,
    early: Early = "wait",
    early_within: float | None = None,
    late: Late = "undo",
    policy: Policy | None = None,
) -> Callable[[Answered[S, P | Q, A, R]], Answered[S, P | Q, A, R]]: ...
def step(
    *events: type,
    calling: Calling | None = None,
    after: After = (),
    by: str | None = None,
    correlate: str | None = None,
    early: Early = "wait",
    early_within: float | None = None,
    late: Late = "undo",
    policy: Policy | None = None,
) -> Callable[..., object]:
    """Take an event (or one of two). When the method returns, the step is done: compensation will run its undo. `after`
    names the steps, defined above, that must be done before: an event that comes earlier, or before the saga is started, waits
    for them, `early_within` so many seconds, before it is a dead letter; with `early="ignore"` one whose saga was not started
    is passed over. An event that comes when the saga compensates or has ended runs the undo of the step, and not the step;
    with `late="ignore"` it is noted. `by` is the role of the people who bring the event about: while the step may run and is
    not done, it is a task of theirs.

    `calling` is for what no transaction can take back: a vendor's API. That it will be called is committed first; then it is
    given the event while no transaction is open, again after a failure or a crash, and the method gets its answer as its
    third argument, as does its undo."""
    if problem := misfit("step", "by", by, str | None):
        raise ConfigurationError(problem)
    before = _steps("step", "after", after if isinstance(after, tuple) else (after,))
    return _marked(
        MethodMark(
            kind="step",
            events=_classes("step", *events),
            after=before,
            by=by,
            correlate=correlate,
            early=early,
            early_within=_patience("step", early_within),
            late=late,
            policy=_policy("step", policy),
            calling=_function("step", calling),
        )
    )


def join(*steps: Callable[..., object]) -> Callable[[Alone[S, R]], Alone[S, R]]:
    """A step that is done once, in the same turn as the last of the named ones, which are defined above."""
    if len(set(steps)) < 2:
        raise ConfigurationError("@join names the steps that it waits for, two or more: @join(room_committed, paid)")
    return _marked(MethodMark(kind="join", after=_steps("join", "steps", steps)))


@overload
def on(
    event: type[P],
    /,
    *,
    correlate: str | None = None,
    early: Early = "wait",
    early_within: float | None = None,
    policy: Policy | None = None,
) -> Callable[[With[S, P, R]], With[S, P, R]]: ...
@overload
def on(
    event: type[P],
    or_event: type[Q],
    /,
    *,
    correlate: str | None = None,
    early: Early = "wait",
    early_within: float | None = None,
    policy: Policy | None = None,
) -> Callable[[With[S, P | Q, R]], With[S, P | Q, R]]: ...
def on(
    *events: type,
    correlate: str | None = None,
    early: Early = "wait",
    early_within: float | None = None,
    policy: Policy | None = None,
) -> Callable[..., object]:
    """React to an event (or one of two) without a step that could be undone. `correlate` names the field in which this
    event carries the saga's id. One whose saga was not started waits for it, `early_within` so many seconds, before it is a
    dead letter; with `early="ignore"` it is passed over."""
    return _marked(
        MethodMark(
            kind="on",
            events=_classes("on", *events),
            correlate=correlate,
            early=early,
            early_within=_patience("on", early_within),
            policy=_policy("on", policy),
        )
    )


def late(event: type[P], /, *, correlate: str | None = None) -> Callable[[With[S, P, R]], With[S, P, R]]:
    """Take an event that comes when the saga compensates or has ended, as a payment that was captured after all; the method
    may do all that others may. Without it, the undo of the step that would have taken it in time is run, where there is one,
    and otherwise it is noted in the history. Beside it, another method may take the event in time."""
    return _marked(MethodMark(kind="late", events=_classes("late", event), correlate=correlate, early="ignore"))


@overload
def undo(
    step: With[S, P, R],
    /,
    *,
    until: type[object] | None = None,
    unless: type[object] | None = None,
    same: str | tuple[str, ...] = (),
    within: float = 60.0,
    correlate: str | None = None,
    policy: Policy | None = None,
) -> Callable[[With[T, P, V]], With[T, P, V]]: ...
@overload
def undo(
    step: Alone[S, R],
    /,
    *,
    until: type[object] | None = None,
    unless: type[object] | None = None,
    within: float = 60.0,
    correlate: str | None = None,
    policy: Policy | None = None,
) -> Callable[[Alone[T, V]], Alone[T, V]]: ...
@overload
def undo(
    step: Answered[S, P, A, R],
    /,
    *,
    until: type[object] | None = None,
    unless: type[object] | None = None,
    same: str | tuple[str, ...] = (),
    within: float = 60.0,
    correlate: str | None = None,
    policy: Policy | None = None,
) -> Callable[[Answered[T, P, A, V]], Answered[T, P, A, V]]: ...
@overload
def undo(
    step: With[S, P, R] | Answered[S, P, A, R],
    /,
    *,
    calling: Callable[..., object],
    until: type[object] | None = None,
    unless: type[object] | None = None,
    same: str | tuple[str, ...] = (),
    within: float = 60.0,
    correlate: str | None = None,
    policy: Policy | None = None,
) -> Callable[[Answered[T, P, B, V]], Answered[T, P, B, V]]: ...
def undo(
    step: Callable[..., object],
    /,
    *,
    calling: Callable[..., object] | None = None,
    until: type[object] | None = None,
    unless: type[object] | None = None,
    same: str | tuple[str, ...] = (),
    within: float = 60.0,
    correlate: str | None = None,
    policy: Policy | None = None,
) -> Callable[..., object]:
    """The compensation of a step, which is given the event of that step; that of a join, or of a start without an event, is
    given its turn alone, that of a step that calls outside also the answer. With `until` it is over when that event has come; if it does not come `within` so many seconds,
    compensation has failed; and so it has, at once, when the event `unless` comes, which says that it was refused. `same` names
    the field, or the fields, that both share with the event of the step: one about another payment of the same booking is
    noted, and ends nothing.

    `calling` is as that of a step: a function that is given the event of the step, and what the call of the step was answered,
    where it made one; the method is then given the answer to this one. If it raises `Reject`, compensation has failed."""
    if problem := misfit("undo", "within", within, Wait):
        raise ConfigurationError(problem)
    if not marks_of(step):
        raise ConfigurationError(
            f"@undo names the step that it undoes: write @undo(charge) above the method, not {_named(step)}"
        )
    events = () if until is None else _classes("undo", until)
    refused = None if unless is None else _classes("undo", unless)[0]
    if refused is not None and (until is None or until is unless):
        raise ConfigurationError(
            f"@undo(unless={refused.__name__}) is the other answer to the event that it waits for: name that one with until=…"
        )
    if problem := misfit("undo", "same", same, str | tuple[str, ...]):
        raise ConfigurationError(problem)
    fields = (same,) if isinstance(same, str) else same
    if fields and until is None:
        raise ConfigurationError(
            f"@undo(same={same!r}) is about the event that it waits for: name that one with until=…"
        )
    return _marked(
        MethodMark(
            kind="undo",
            events=events,
            unless=refused,
            same=fields,
            step=step,
            seconds=within,
            correlate=correlate,
            policy=_policy("undo", policy),
            calling=_function("undo", calling),
        )
    )


@overload
def deadline(seconds: float = ..., /, *, policy: Policy | None = None) -> Callable[[Alone[S, R]], Alone[S, R]]: ...
@overload
def deadline(
    *, working_days: int, calendar: Calendar | None = None, policy: Policy | None = None
) -> Callable[[Alone[S, R]], Alone[S, R]]: ...
@overload
def deadline(
    *, working_hours: float, calendar: Calendar | None = None, policy: Policy | None = None
) -> Callable[[Alone[S, R]], Alone[S, R]]: ...
def deadline(
    seconds: float | None = None,
    /,
    *,
    working_days: int | None = None,
    working_hours: float | None = None,
    calendar: Calendar | None = None,
    policy: Policy | None = None,
) -> Callable[[Alone[S, R]], Alone[S, R]]:
    """What to do when a deadline passes, so many seconds after `turn.set` armed it, or so much working time by a calendar,
    the service's unless one is named; with neither, `turn.set` says when. It keeps the moment that it was armed for when the
    calendar changes."""
    given: list[tuple[str, object, object]] = [
        ("seconds", seconds, Wait),
        ("working_days", working_days, Count),
        ("working_hours", working_hours, SomeSeconds),
        ("calendar", calendar, Calendar),
    ]
    problems = [misfit("deadline", name, value, hint) for name, value, hint in given if value is not None]
    if problem := next(filter(None, problems), ""):
        raise ConfigurationError(
            f"{problem}: write @deadline(600) above the method" if callable(given[0][1]) else problem
        )
    times = sum(time is not None for time in (seconds, working_days, working_hours))
    if times > 1:
        raise ConfigurationError(
            "@deadline says one time: write @deadline(600), in seconds, @deadline(working_days=3) or @deadline(working_hours=8)"
        )
    if calendar is not None and working_days is None and working_hours is None:
        raise ConfigurationError(
            "@deadline needs a calendar for working time alone: leave it out, or write working_days=…"
        )
    return _marked(
        MethodMark(
            kind="deadline",
            seconds=seconds or 0.0,
            working_days=working_days,
            working_hours=working_hours,
            calendar=calendar,
            untimed=times == 0,
            policy=_policy("deadline", policy),
        )
    )


def partial_retry(method: Alone[S, R], /) -> Alone[S, R]:
    """What an operator's retry of a partial saga runs; the saga is running again before it is called."""
    return _marked(MethodMark(kind="partial_retry"))(method)


def partial_resume(method: Alone[S, R], /) -> Alone[S, R]:
    """What runs when an operator says that the missing part of a partial saga was done by hand; the saga is completed
    after it. Without one, it is completed and nothing runs."""
    return _marked(MethodMark(kind="partial_resume"))(method)
