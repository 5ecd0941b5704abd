"""States: a saga as a Mermaid state diagram, its steps in their order and its undos in reverse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posthouse.clock import lasting
from posthouse.governance.document import MethodEntry, SagaEntry
from posthouse.governance.exports.mermaid import label

ENDS = {"complete": "completed", "compensate": "compensating", "partial": "partial"}


def states(saga: SagaEntry) -> str:
    """Steps inside `running`, undos inside `compensating`; an arrow for each thing that leads from one to the other. A step
    stands behind those that it waits for; one that waits for none is taken when its event comes."""
    lines = ["stateDiagram-v2", "  [*] --> running"]
    lines += _composite("running", _steps(saga))
    lines += _decisions(saga)
    undos = list(reversed(saga.of_kind("undo")))
    if _can(saga, "compensate") or undos:
        lines += _composite("compensating", _undos(undos))
        lines += [
            "  running --> compensating: cancel (operator)",
            "  compensating --> compensated: all undone",
            "  compensating --> compensation_failed: an undo fails for good",
            "  compensation_failed --> compensating: retry, resume (operator)",
            "  compensated --> [*]",
        ]
    if _can(saga, "partial"):
        again = saga.of_kind("partial_retry")
        lines += [f"  partial --> running: {_said(f'retry (operator): {again[0].name}')}"] if again else []
        by_hand = "".join(f": {method.name}" for method in saga.of_kind("partial_resume"))
        lines += [f"  partial --> completed: {_said(f'resume (operator){by_hand}')}"]
    lines += ["  completed --> [*]"]
    return "\n".join(["```mermaid", *lines, "```"]) + "\n"


def _steps(saga: SagaEntry) -> Iterator[str]:
    """Each step behind those that it waits for, or else behind the start; a join behind a bar."""
    steps = saga.of_kind("starts", "step", "join")
    ids = {method.name: f"s{number}" for number, method in enumerate(steps)}
    yield f"[*] --> s0: {_said(_cause(steps[0]) or 'start_saga')}"
    for method in steps:
        yield f"{ids[method.name]}: {_said(_works(method))}"
    for method in steps[1:]:
        to, before = ids[method.name], [ids[name] for name in method.after if name in ids] or ["s0"]
        if len(before) > 1:
            yield f"state j{to} <<join>>"
            yield from (f"{one} --> j{to}" for one in before)
            before = [f"j{to}"]
        cause = f": {_said(_cause(method))}" if method.takes else ""
        yield from (f"{one} --> {to}{cause}" for one in before)
    for method in saga.of_kind("deadline"):
        armed = [other.name for other in steps if method.name in other.sets]
        for name in armed:
            yield f"note left of {ids[name]}: {_said(f'sets {_why(method)}')}"
    for method in saga.of_kind("on"):
        if not method.decides:
            yield f"note right of {ids[steps[-1].name]}: {_said(f'on {_cause(method)}: {_works(method)}')}"
    for method in saga.of_kind("late"):
        yield f"note right of {ids[steps[-1].name]}: {_said(f'late {_cause(method)}: {_works(method)}')}"


def _undos(undos: Sequence[MethodEntry]) -> Iterator[str]:
    if not undos:
        yield "u0: nothing to undo"
    for number, method in enumerate(undos):
        wait = f", until {method.takes[0]} within {lasting(method.seconds)}" if method.takes else ""
        wait += f", unless {method.takes[1]}" if len(method.takes) > 1 else ""
        yield f"u{number}: {_said(f'{_works(method)}, undoes {method.undoes}{wait}')}"
        if number:
            yield f"u{number - 1} --> u{number}"


def _decisions(saga: SagaEntry) -> Iterator[str]:
    """Every method that may decide about the saga as a whole."""
    for method in saga.of_kind("starts", "step", "join", "on", "deadline", "partial_retry"):
        for verdict in method.decides:
            yield f"  running --> {ENDS[verdict]}: {_said(_why(method))}"


def _why(method: MethodEntry) -> str:
    if method.kind == "deadline":
        return f"{method.name} after {method.wait}"
    return f"{method.name} ({_cause(method)})" if method.takes else method.name


def _cause(method: MethodEntry) -> str:
    return " or ".join(method.takes)


def _works(method: MethodEntry) -> str:
    said = [subject.split(".")[-3:] for subject in method.publishes]
    by = f" by {method.by}" if method.by else ""
    says = f", says {', '.join('.'.join(words) for words in said)}" if said else ""
    begins = f", begins {', '.join(method.begins)}" if method.begins else ""
    return f"{method.name}{by}{says}{begins}"


def _can(saga: SagaEntry, verdict: str) -> bool:
    return any(verdict in method.decides for method in saga.methods)


def _composite(name: str, inner: Iterator[str]) -> list[str]:
    return [f"  state {name} {{", *(f"    {line}" for line in inner), "  }"]


def _said(text: str) -> str:
    """A label: a colon would end it, and so does a semicolon, which `label` writes as part of a number."""
    return label(text).replace(":", "#58;")
