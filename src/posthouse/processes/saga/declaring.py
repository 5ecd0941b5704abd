"""Declaring: from a class with marked methods to a SagaType, or every reason why not."""

from __future__ import annotations

import inspect
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import NoneType, UnionType

import msgspec

from posthouse.contracts import EventType, event_type_of, is_event_class
from posthouse.errors import ConfigurationError, did_you_mean
from posthouse.processes.calendar import Calendar, Working
from posthouse.processes.saga.declared import EARLY_WITHIN, OPERATOR, OutsideCall, SagaType, Taken, Undo
from posthouse.processes.saga.marks import Early, Late, MethodMark, marks_of
from posthouse.processes.saga.saga import Renamed, Saga, renamed
from posthouse.processes.saga.signatures import answer_hint, signature_problems
from posthouse.receiving import Policy
from posthouse.store.sagas import End, Indexable

NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")

Marked = tuple[str, Callable[..., object], MethodMark]
"""The name of a method, the method, and what was said about it."""

EARLY: tuple[Early, ...] = ("wait", "ignore")
LATE: tuple[Late, ...] = ("undo", "ignore")


def saga_type_of(
    cls: type[Saga],
    name: str,
    *,
    service: str,
    correlate: str,
    policy: Policy,
    index: Sequence[str] = (),
    again: Sequence[End] = (),
    operator: str = OPERATOR,
    early_within: float = EARLY_WITHIN,
    calendar: Calendar | None = None,
) -> SagaType:
    """Read the class. Raises ConfigurationError with every problem at once."""
    if not _is_saga(cls):
        raise ConfigurationError(f"{cls!r} is no saga: derive it from posthouse.Saga")
    methods = list(_methods(cls))
    if problems := [
        *_problems(cls, name, correlate, methods, calendar),
        *_index_problems(cls, correlate, index),
        *_operator_problems(operator),
        *([f"early_within must be above 0 seconds, not {early_within:g}"] if early_within <= 0 else []),
    ]:
        raise ConfigurationError(*(f"{cls.__name__}: {problem}" for problem in problems))
    started = next(method for method in methods if method[2].kind == "starts")
    steps = [method for method in methods if method[2].kind in ("step", "join")]
    return SagaType(
        name=name,
        service=service,
        cls=cls,
        correlate=correlate,
        policy=policy,
        starts=started[0],
        started_by=next(_taken(started, correlate), None),
        steps=(started[0], *(name for name, _, _ in steps)),
        joins={name: _names_of(mark.after) for name, _, mark in methods if mark.kind == "join"},
        takes=tuple(
            take for m in methods if m[2].kind in ("step", "on") for take in _taken(m, correlate, early_within)
        ),
        lates=tuple(take for m in methods if m[2].kind == "late" for take in _taken(m, correlate)),
        undos={undo.step: undo for undo in (_undo(m, correlate) for m in methods if m[2].kind == "undo")},
        deadlines={name: _wait(mark, calendar) for name, _, mark in methods if mark.kind == "deadline"},
        partial_retry=next((name for name, _, mark in methods if mark.kind == "partial_retry"), None),
        partial_resume=next((name for name, _, mark in methods if mark.kind == "partial_resume"), None),
        description=inspect.cleandoc(cls.__dict__.get("__doc__") or ""),
        index=tuple(index),
        again=tuple(again),
        operator=operator,
        policies={name: mark.policy for name, _, mark in methods if mark.policy is not None},
        calls={
            name: OutsideCall(function=mark.calling, answer=answer_hint(function, mark.calling))
            for name, function, mark in methods
            if mark.calling is not None
        },
    )


def _methods(cls: type) -> Iterator[Marked]:
    """Marked methods, those of base classes first, each class in its own order."""
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    for name in names:
        function = getattr(cls, name)
        for mark in marks_of(function):
            yield name, function, mark


def _taken(method: Marked, correlate: str, within: float = EARLY_WITHIN) -> Iterator[Taken]:
    name, _, mark = method
    for event in mark.events:
        yield Taken(
            method=name,
            kind=mark.kind,
            event_type=event_type_of(event),
            correlate=mark.correlate or correlate,
            early=mark.early,
            early_within=within if mark.early_within is None else mark.early_within,
            after=_names_of(mark.after),
            late=mark.late,
            by=mark.by,
        )


def _undo(method: Marked, correlate: str) -> Undo:
    name, _, mark = method
    return Undo(
        step=_name_of(mark.step),
        method=name,
        until=event_type_of(mark.events[0]) if mark.events else None,
        unless=event_type_of(mark.unless) if mark.unless else None,
        within=mark.seconds if mark.events else 0.0,
        correlate=mark.correlate or correlate,
        same=mark.same,
    )


def _wait(mark: MethodMark, calendar: Calendar | None) -> float | Working | None:
    if mark.untimed:
        return None
    by = mark.calendar or calendar
    if not _is_by_calendar(mark) or by is None:
        return mark.seconds
    return Working(days=mark.working_days, hours=mark.working_hours, calendar=by)


def _is_by_calendar(mark: MethodMark) -> bool:
    return mark.working_days is not None or mark.working_hours is not None


def _name_of(step: object) -> str:
    return str(getattr(step, "__name__", step))


def _names_of(steps: Sequence[object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_name_of(step) for step in steps))


def _takes_event(mark: MethodMark) -> bool:
    return mark.kind in ("step", "on", "late") or (mark.kind == "starts" and bool(mark.events))


# What cannot work.


def _problems(
    cls: type[Saga], name: str, correlate: str, methods: Sequence[Marked], calendar: Calendar | None
) -> Iterator[str]:
    if not NAME.fullmatch(name):
        yield f"{name!r} is no name for a saga: write it in snake_case, as in 'check_in'"
    if cls.__struct_config__.frozen:
        yield "a saga is changed by its methods: leave frozen=True out"
    yield from _state_problems(cls)
    if correlate not in cls.__struct_fields__:
        yield f"it has no field {correlate!r} to be found by.{did_you_mean(correlate, cls.__struct_fields__)}"
    yield from _start_problems(cls, correlate, methods)
    for method in methods:
        yield from _method_problems(method, correlate)
        yield from signature_problems(*method)
        if _is_by_calendar(method[2]) and method[2].calendar is None and calendar is None:
            yield (
                f"{method[0]} counts working time, and there is no calendar: name one, @deadline(…, calendar=…), or one for "
                "the service, Service(…, calendar=…)"
            )
    yield from _clashes(methods)
    yield from _order_problems(methods)
    yield from _undo_problems(methods)


def _state_problems(cls: type[Saga]) -> Iterator[str]:
    """What keeps two releases from reading and keeping the fields of each other."""
    options = cls.__struct_config__
    for option in ("omit_defaults", "forbid_unknown_fields", "array_like"):
        if getattr(options, option):
            yield f"its state is stored whole and by name, for the release before and the next one: leave {option}=True out"
    stored = [field.encode_name for field in msgspec.structs.fields(cls)]
    times = Counter(renamed(cls).values())
    for name, was in renamed(cls).items():
        if was in stored:
            yield f"{name} was {was!r}, and there is a field that is stored under that name: give the old name one owner"
        if times[was] > 1:
            yield f"{name} is one of {times[was]} fields that were {was!r}: give the old name one owner"

    for owner, name in _renamed_inside(cls):
        yield f"{owner.__name__}.{name} has field(was=…), which only fields of the saga itself may have: give it a new name there"


def _renamed_inside(cls: type[Saga]) -> Iterator[tuple[type, str]]:
    """Fields of structs in the state that say what they were called."""
    seen: set[type] = {cls}
    to_look_at: list[object] = [field.type for field in msgspec.structs.fields(cls)]
    while to_look_at:
        kind = to_look_at.pop()
        to_look_at += typing.get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in seen:
            seen.add(kind)
            for field in msgspec.structs.fields(kind):
                to_look_at.append(field.type)
                if isinstance(field.default, Renamed):
                    yield kind, field.name


def _index_problems(cls: type[Saga], correlate: str, index: Sequence[str]) -> Iterator[str]:
    kinds = {field.name: field.type for field in msgspec.structs.fields(cls)}
    for field in index:
        if field == correlate:
            yield f"index names {field!r}, which is its id: it is found by that already"
        elif field not in kinds:
            yield f"index names {field!r}, which is no field of it.{did_you_mean(field, kinds)}"
        elif not _indexable(kinds[field]):
            yield f"index names {field!r}, which is {inspect.formatannotation(kinds[field])}: text, whole numbers, UUIDs and dates are indexed"
    if len(set(index)) < len(index):
        yield f"index names a field twice: {', '.join(index)}"


def _operator_problems(operator: str) -> Iterator[str]:
    if not operator.strip():
        yield "operator names the role of those who decide when it rests, as in operator='claims-desk'"


def _indexable(kind: object) -> bool:
    """Whether it is one of Indexable, or that or None."""
    kinds = [one for one in typing.get_args(kind) if one is not NoneType] if _is_union(kind) else [kind]
    return len(kinds) == 1 and kinds[0] in typing.get_args(Indexable)


def _is_union(kind: object) -> bool:
    return typing.get_origin(kind) in (typing.Union, UnionType)


def _start_problems(cls: type[Saga], correlate: str, methods: Sequence[Marked]) -> Iterator[str]:
    starting = [(name, mark) for name, _, mark in methods if mark.kind == "starts"]
    if len(starting) != 1:
        found = f": {', '.join(name for name, _ in starting)}" if starting else ""
        yield f"one method is marked with @starts, not {len(starting)}{found}"
    elif starting[0][1].events:
        wanting = [f.name for f in msgspec.structs.fields(cls) if f.required and f.name != correlate]
        if wanting:
            yield f"{starting[0][0]} is started by an event, so {', '.join(wanting)} need a default"


def _method_problems(method: Marked, correlate: str) -> Iterator[str]:
    name, function, mark = method
    for event in (*mark.events, *([mark.unless] if mark.unless else [])):
        if not _is_event(event):
            yield f"{name} names {event!r}, which is no event: declare it with @service.event or @service.external"
        elif (field := mark.correlate or correlate) not in (fields := _fields(event_type_of(event))):
            yield (
                f"{name}: {event.__name__} has no field {field!r} to find the saga by.{did_you_mean(field, fields)} "
                "Name the field with correlate=…"
            )
    if mark.by is not None and not mark.by.strip():
        yield f"{name}: by names the role of those who do it, as in by='claims-manager'"
    if mark.early not in EARLY:
        yield f"{name}: early={mark.early!r}.{did_you_mean(mark.early, EARLY)}"
    if mark.early_within is not None and mark.early_within <= 0:
        yield f"{name}: early_within must be above 0 seconds, not {mark.early_within:g}"
    if mark.late not in LATE:
        yield f"{name}: late={mark.late!r}.{did_you_mean(mark.late, LATE)}"
    if mark.kind == "deadline" and mark.seconds <= 0 and not _is_by_calendar(mark) and not mark.untimed:
        yield f"{name}: a deadline is above 0 seconds, not {mark.seconds:g}"
    if mark.kind == "undo" and mark.events and mark.seconds <= 0:
        yield f"{name}: within must be above 0 seconds, not {mark.seconds:g}"
    marks = marks_of(mark.step) if mark.kind == "undo" else (mark,)
    wanted = ["self", "event", "turn"] if any(map(_takes_event, marks)) else ["self", "turn"]
    wanted += ["answer"] if any(one.calling is not None for one in (mark, *marks)) else []
    if mark.kind == "undo" and mark.calling is not None and not any(map(_takes_event, marks)):
        yield f"{name} calls outside, and {_name_of(mark.step)} has no event to call about: let the undo say a fact instead"
    if len(inspect.signature(function).parameters) != len(wanted):
        found = ", ".join(inspect.signature(function).parameters)
        why = f", as {_name_of(mark.step)} {'has no event' if len(wanted) == 2 else 'does'}" if mark.step else ""
        yield f"{name}({found}) is marked with @{mark.kind} and takes ({', '.join(wanted)}){why}"


def _is_saga(cls: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, Saga)


def _is_event(cls: object) -> bool:
    return isinstance(cls, type) and is_event_class(cls)


def _fields(event_type: EventType[object]) -> list[str]:
    """The attributes of a payload, by whichever library it was declared."""
    return [*event_type.payload.fields, *(n for base in event_type.payload.cls.__mro__ for n in _annotated(base))]


def _annotated(cls: type) -> Sequence[str]:
    return list(getattr(cls, "__annotations__", {}))


def _clashes(methods: Sequence[Marked]) -> Iterator[str]:
    for kinds in (("starts", "step", "on"), ("late",)):
        takers: dict[type, list[str]] = {}
        for name, _, mark in methods:
            for event in mark.events if mark.kind in kinds else ():
                takers.setdefault(event, []).append(name)
        for event, names in takers.items():
            if len(names) > 1:
                yield f"{' and '.join(names)} both take {event.__name__}: one method takes an event"
    ignoring = {event: name for name, _, mark in methods if mark.late == "ignore" for event in mark.events}
    for name, _, mark in methods:
        for event in mark.events if mark.kind == "late" else ():
            if event in ignoring:
                yield f"{name} takes {event.__name__} late, and {ignoring[event]} says late='ignore': leave one of them out"
    for name, times in Counter(name for name, _, _ in methods).items():
        if times > 1:
            yield f"{name} is marked {times} times: a method has one purpose"
    for kind, verb in (("partial_retry", "retry"), ("partial_resume", "resume")):
        if len(several := [name for name, _, mark in methods if mark.kind == kind]) > 1:
            yield f"{' and '.join(several)} are both marked with @{kind}: one method is what a {verb} runs"


def _steps(methods: Sequence[Marked]) -> dict[str, Callable[..., object]]:
    return {name: function for name, function, mark in methods if mark.kind in ("starts", "step", "join")}


def _order_problems(methods: Sequence[Marked]) -> Iterator[str]:
    """A step is named after it was defined, so that no two wait for each other."""
    steps = _steps(methods)
    for name, _, mark in methods:
        for before in mark.after:
            if (step := _name_of(before)) not in steps:
                yield f"{name} waits for {step}, which is no step of this saga.{did_you_mean(step, steps)}"
            elif steps[step] is not before:
                yield f"{name} waits for {getattr(before, '__qualname__', step)}, which is the step of another class"


def _undo_problems(methods: Sequence[Marked]) -> Iterator[str]:
    steps = _steps(methods)
    undone: Counter[str] = Counter()
    for name, _, mark in methods:
        if mark.kind != "undo":
            continue
        step = _name_of(mark.step)
        undone[step] += 1
        if steps.get(step) is not mark.step:
            yield f"{name} undoes {step}, which is no step of this saga.{did_you_mean(step, steps)}"
        yield from _same_problems(name, mark)
    for step, times in undone.items():
        if times > 1:
            yield f"{step} has {times} undos: put what they do into one"


def _same_problems(name: str, mark: MethodMark) -> Iterator[str]:
    """What keeps facts from being told apart by the fields that they share with the event of the step."""
    facts = [fact for fact in (*mark.events, mark.unless) if fact is not None and _is_event(fact)]
    done_by = [event for one in marks_of(mark.step) if _takes_event(one) for event in one.events if _is_event(event)]
    if mark.same and not done_by:
        yield f"{name}: same={mark.same[0]!r} is compared with the event of {_name_of(mark.step)}, which has none"
    for field in mark.same if done_by else ():
        kinds = {event: _kind_of(event, field) for event in (*done_by, *facts)}
        wanting = [event for event in kinds if field not in _fields(event_type_of(event))]
        for event in wanting:
            known = _fields(event_type_of(event))
            yield f"{name}: same={field!r} is no field of {event.__name__}.{did_you_mean(field, known)}"
        one, *others = done_by[:1] + facts
        for other in others if not wanting else ():
            if kinds[one] and kinds[other] and not kinds[one] & kinds[other]:
                yield (
                    f"{name}: same={field!r} is {_words(kinds[one])} in {one.__name__} and {_words(kinds[other])} in "
                    f"{other.__name__}: they are never the same"
                )


def _kind_of(event: type, field: str) -> set[object]:
    """What a field may hold, None left out; nothing where the class does not say."""
    try:
        kind = typing.get_type_hints(event).get(field)
    except Exception:  # annotations that only a checker can read
        return set()
    kinds = typing.get_args(kind) if _is_union(kind) else (kind,)
    return {one for one in kinds if one not in (None, NoneType)}


def _words(kinds: set[object]) -> str:
    return " or ".join(sorted(inspect.formatannotation(kind) for kind in kinds))
