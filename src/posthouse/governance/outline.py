"""Outline: what the methods of a saga say and decide, read from their source. For diagrams and the catalogue, never for running."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import FunctionType

import msgspec

from posthouse.contracts import EventType, event_type_of, is_event_class
from posthouse.governance.document import MethodEntry, MethodKind, SagaEntry
from posthouse.processes import Saga, SagaType
from posthouse.processes.calendar import Working

VERDICTS = frozenset(("complete", "compensate", "partial"))


class MethodOutline(msgspec.Struct, kw_only=True):
    """What was found in a method and in the functions of its package that it calls. It may say less than this in a run, and,
    where an event or a deadline is chosen by more than its name, more."""

    publishes: set[str] = msgspec.field(default_factory=set)
    begins: set[str] = msgspec.field(default_factory=set)
    sets: set[str] = msgspec.field(default_factory=set)
    clears: set[str] = msgspec.field(default_factory=set)
    verdicts: set[str] = msgspec.field(default_factory=set)


def saga_entry(of: SagaType) -> SagaEntry:
    """A saga as it stands in the catalogue."""
    found = outlines(of)

    def entry(
        name: str,
        kind: MethodKind,
        takes: Iterable[str] = (),
        undoes: str = "",
        seconds: float = 0.0,
        working: str = "",
    ) -> MethodEntry:
        outline = found[name]
        return MethodEntry(
            name=name,
            kind=kind,
            takes=tuple(takes),
            after=of.needs.get(name, ()),
            undoes=undoes,
            seconds=seconds,
            working=working,
            by=of.people.get(name, ""),
            publishes=tuple(sorted(outline.publishes)),
            begins=tuple(sorted(outline.begins)),
            sets=tuple(sorted(outline.sets)),
            clears=tuple(sorted(outline.clears)),
            decides=tuple(sorted(outline.verdicts)),
        )

    taken: dict[tuple[str, MethodKind], list[str]] = {}
    for take in (*of.takes, *of.lates):
        taken.setdefault((take.method, take.kind), []).append(take.event_type.name)
    started = [] if of.started_by is None else [of.started_by.event_type.name]
    return SagaEntry(
        name=of.name,
        service=of.service,
        consumer=of.consumer,
        correlate=of.correlate,
        methods=(
            entry(of.starts, "starts", started),
            *(entry(name, kind, subjects) for (name, kind), subjects in taken.items()),
            *(entry(name, "join") for name in of.joins),
            *(
                entry(name, "deadline", working=str(wait))
                if isinstance(wait, Working)
                else entry(name, "deadline", seconds=wait or 0.0)
                for name, wait in of.deadlines.items()
            ),
            *(
                entry(undo.method, "undo", [answer.name for answer in undo.answers], undo.step, undo.within)
                for undo in of.undos.values()
            ),
            *([entry(of.partial_retry, "partial_retry")] if of.partial_retry else []),
            *([entry(of.partial_resume, "partial_resume")] if of.partial_resume else []),
        ),
        description=of.description,
    )


def may_say(saga: SagaEntry, subjects: Collection[str]) -> set[str]:
    """What may follow from events without another event: what the methods publish that take them, what the deadlines that
    these set publish and the joins that follow them, and, where one of them compensates, what the undos do."""
    undos = [undo.name for undo in saga.of_kind("undo")]
    waiting = [method.name for method in saga.methods if not set(method.takes).isdisjoint(subjects)]
    seen: set[str] = set()
    said: set[str] = set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for entry in saga.methods:
            if entry.name == name:
                said.update(entry.publishes)
                undoing = undos if "compensate" in entry.decides or entry.kind == "undo" else []
                joins = [join.name for join in saga.of_kind("join") if name in join.after]
                waiting += [after for after in (*entry.sets, *undoing, *joins) if after not in seen]
    return said


def outlines(of: SagaType) -> Mapping[str, MethodOutline]:
    """By method: the start, steps, reactions, undos, deadlines and the rest. Methods without source are empty."""
    names = [
        *of.steps,
        *(take.method for take in (*of.takes, *of.lates)),
        *(undo.method for undo in of.undos.values()),
        *of.deadlines,
        *(name for name in (of.partial_retry, of.partial_resume) if name),
    ]
    return {name: _Reader(of).read(name) for name in dict.fromkeys(names)}


class _Reader:
    def __init__(self, of: SagaType) -> None:
        self._of = of
        self._found = MethodOutline()
        self._seen: set[object] = set()

    def read(self, method: str) -> MethodOutline:
        self._follow(getattr(self._of.cls, method, None))
        return self._found

    def _follow(self, function: object) -> None:
        function = inspect.unwrap(function) if callable(function) else None
        if not isinstance(function, FunctionType) or function in self._seen:
            return
        self._seen.add(function)
        for call in _calls(function):
            self._note(call, function)

    def _note(self, call: ast.Call, function: FunctionType) -> None:
        called = call.func
        name = called.attr if isinstance(called, ast.Attribute) else ""
        deadlines = [arg.attr for arg in call.args if isinstance(arg, ast.Attribute) and arg.attr in self._of.deadlines]
        if name in VERDICTS and isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            self._found.verdicts.add(name)
        elif name == "set":
            self._found.sets.update(deadlines)
        elif name == "clear":
            self._found.clears.update(deadlines)
        target = self._resolve(called, function)
        if isinstance(target, type) and is_event_class(target):
            event_type: EventType[object] = event_type_of(target)
            if event_type.subject.service == self._of.service:
                self._found.publishes.add(event_type.name)
        elif isinstance(target, type) and issubclass(target, Saga):
            self._found.begins.add(target.__name__)
        elif isinstance(target, FunctionType) and _package(target) == _package(function):
            self._follow(target)

    def _resolve(self, called: ast.expr, function: FunctionType) -> object:
        """What a name stands for: `OrderPlaced`, `events.OrderPlaced`, `self.helper`."""
        if isinstance(called, ast.Name):
            return _variables(function).get(called.id)
        if isinstance(called, ast.Attribute):
            if isinstance(called.value, ast.Name) and called.value.id == "self":
                return getattr(self._of.cls, called.attr, None)
            return getattr(self._resolve(called.value, function), called.attr, None)
        return None


def _package(function: FunctionType) -> str:
    """The user's own code is followed, libraries are not."""
    return function.__module__.partition(".")[0]


def _variables(function: FunctionType) -> Mapping[str, object]:
    """Global names, and those of functions around it."""
    cells: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return {**function.__globals__, **cells}


def _calls(function: Callable[..., object]) -> Iterator[ast.Call]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return
    for definition in tree.body:
        if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in definition.body:
                yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))
