"""Signatures: what can be said of a marked method before it ever runs, from its annotations and its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterator, Sequence

import msgspec

from posthouse.contracts import is_event_class
from posthouse.events import Event
from posthouse.processes.saga.marks import MethodMark, marks_of

DECIDES_NO_MORE = ("undo", "partial_resume")
"""What runs when it is decided how the saga goes on."""
DECIDING = ("complete", "compensate", "partial", "set", "clear")


def signature_problems(name: str, function: Callable[..., object], mark: MethodMark) -> Iterator[str]:
    """Why a method would not do what its mark says: it is annotated for other events, or decides where nothing is decided."""
    parameters = list(inspect.signature(function).parameters)
    events = _events(mark)
    if events and len(parameters) > 2:
        yield from _event_problems(name, function, parameters[1], events)
    if mark.calling is not None and len(parameters) == 4:
        yield from _answer_problems(name, function, mark.calling)
    if mark.kind in DECIDES_NO_MORE and len(parameters) > 1:
        yield from _deciding_problems(name, function, mark, parameters)


def answer_hint(function: Callable[..., object], calling: Callable[..., object]) -> object:
    """The type of what a step is answered: as its method says, or else the function that is called."""
    answer = list(inspect.signature(function).parameters)[3]
    hint = _hint(function, answer, ())
    hint = _hint(calling, "return", ()) if hint is None else hint
    return typing.Any if hint is None else hint


def _answer_problems(name: str, function: Callable[..., object], calling: Callable[..., object]) -> Iterator[str]:
    """An answer is kept in the saga's history, for its undo."""
    hint = answer_hint(function, calling)
    if custom := _unkept(hint):
        yield (
            f"{name} is answered {custom}, which cannot be kept for its undo: let {getattr(calling, '__name__', calling)} return "
            "text, numbers, a Payload or a dataclass of them"
        )


def _unkept(hint: object) -> str:
    """What of a type cannot be written as JSON and read back; empty where all can."""
    try:
        msgspec.json.schema(hint)
    except TypeError:
        return _short(hint if typing.get_origin(hint) else getattr(hint, "__name__", hint))
    return ""


def _events(mark: MethodMark) -> Sequence[type]:
    """The events that a method may be given; of an undo those of its step."""
    if mark.kind == "undo":
        return [event for one in marks_of(mark.step) for event in one.events]
    return [] if mark.kind == "deadline" else [event for event in mark.events if is_event_class(event)]


def _event_problems(name: str, function: Callable[..., object], first: str, events: Sequence[type]) -> Iterator[str]:
    hint = _hint(function, first, events)
    if hint is None or hint is object or hint is typing.Any or isinstance(hint, typing.TypeVar):
        return
    inside = list(_classes(hint))
    said = [one for one in inside if isinstance(one, type) and one is not typing.Any]
    if hint is Event or len(said) < len(inside):  # a type variable, Any: whatever comes
        return
    wrong = [one for one in said if not any(issubclass(event, one) for event in events)]
    missing = [event for event in events if not any(issubclass(event, one) for one in said)]
    if typing.get_origin(hint) is not Event or wrong or missing:
        wanted = " | ".join(event.__name__ for event in events)
        shown = str(hint) if typing.get_origin(hint) else getattr(hint, "__name__", hint)
        why = "its payload is event.data" if hint in events else f"it is annotated as {_short(shown)}"
        yield f"{name} is given Event[{wanted}], and {why}: write `{first}: Event[{wanted}]`"


def _hint(function: Callable[..., object], parameter: str, events: Sequence[type]) -> object:
    """The annotation as a type; None where there is none, or its names cannot be found from here."""
    try:
        return typing.get_type_hints(function, localns={event.__name__: event for event in events}).get(parameter)
    except Exception:  # whatever evaluating an annotation may raise: the type checker knows more
        return None


def _classes(hint: object) -> Iterator[object]:
    """What a hint is about: `Event[A | B]` is about A and B."""
    arguments = typing.get_args(hint)
    if not arguments:
        yield hint
    for argument in arguments:
        yield from _classes(argument)


def _short(shown: object) -> str:
    """`Event[Paid]`, without the modules."""
    words = str(shown).replace("[", " [ ").replace("]", " ] ").replace("|", " | ").split()
    return "".join(w.rpartition(".")[2] if w != "|" else " | " for w in words)


def _deciding_problems(
    name: str, function: Callable[..., object], mark: MethodMark, parameters: Sequence[str]
) -> Iterator[str]:
    turn = parameters[2] if len(parameters) > 2 else parameters[1]
    for verb in dict.fromkeys(_said(function, turn)):
        yield (
            f"{name} calls {turn}.{verb}(), which has no effect there: what is marked with @{mark.kind} decides no more about the "
            "saga. Say it in the method that begins the compensation, or in a @late or @partial_retry method"
        )


def _said(function: Callable[..., object], turn: str) -> Iterator[str]:
    """The verbs of its turn that a function calls by itself and that decide something; none where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(called, ast.Attribute)
            and called.attr in DECIDING
            and isinstance(called.value, ast.Name)
            and called.value.id == turn
        ):
            yield called.attr
