"""Diagrams: a saga as a graph of steps, deadlines, undos and ends, with the place where one of them stands. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from posthouse.governance.document import MethodEntry, SagaEntry
from posthouse.governance.exports.states import ENDS
from posthouse.store.sagas import SagaRow, SagaStatus, SagaTurn

Kind = Literal["start", "step", "join", "on", "deadline", "undo", "end"]
Mark = Literal["", "done", "undone", "here", "failed", "next", "armed"]
"""done: it was. undone: it was, and was undone. here: it stands there. failed: it stands there, and cannot go on. next: it waits
for that. armed: the deadline is set."""

OVER: dict[SagaStatus, str] = {"completed": "completed", "compensated": "compensated", "cancelled": "compensated"}


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """`more` is what else is to know, a line each."""

    id: str
    kind: Kind
    label: str
    more: Sequence[str] = ()
    mark: Mark = ""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """From one node to another; `label` is what leads there."""

    source: str
    target: str
    label: str = ""


class Diagram(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]


def diagram(saga: SagaEntry, row: SagaRow | None = None, history: Sequence[SagaTurn] = ()) -> Diagram:
    """The saga as it was written; with a `row` also where that one stands."""
    nodes, edges = list(_nodes(saga)), list(_edges(saga))
    if row is not None:
        marks = _marks(saga, row, history)
        nodes = [msgspec.structs.replace(node, mark=marks.get(node.id, "")) for node in nodes]
    return Diagram(nodes=nodes, edges=edges)


def _nodes(saga: SagaEntry) -> Iterator[Node]:
    yield Node(id="start", kind="start", label="start")
    for method in saga.of_kind("starts", "step", "join"):
        kind: Kind = "join" if method.kind == "join" else "step"
        yield Node(id=f"step:{method.name}", kind=kind, label=method.name, more=_more(method))
    for method in saga.of_kind("on"):
        if method.decides:
            yield Node(id=f"on:{method.name}", kind="on", label=method.name, more=_more(method))
    for method in saga.of_kind("deadline"):
        yield Node(
            id=f"deadline:{method.name}",
            kind="deadline",
            label=method.name,
            more=[f"after {method.wait}", *_more(method)],
        )
    for method in saga.of_kind("undo"):
        wait = [f"until {_short(method.takes[0])} within {method.wait}"] if method.takes else []
        yield Node(
            id=f"undo:{method.undoes}",
            kind="undo",
            label=method.name,
            more=[f"undoes {method.undoes}", *wait, *_more(method)],
        )
    yield Node(id="completed", kind="end", label="completed")
    if _compensates(saga):
        yield Node(id="compensated", kind="end", label="compensated")
    if _decided(saga, "partial"):
        yield Node(id="partial", kind="end", label="partial", more=["waits for an operator"])


def _edges(saga: SagaEntry) -> Iterator[Edge]:
    steps = saga.of_kind("starts", "step", "join")
    undos = list(reversed(saga.of_kind("undo")))
    known = {method.name for method in steps}
    for place, method in enumerate(steps):
        before = [f"step:{name}" for name in method.after if name in known]
        before = before or (["start"] if place == 0 else [f"step:{steps[0].name}"])
        for source in before:
            yield Edge(source=source, target=f"step:{method.name}", label=_cause(method))
    for method in saga.of_kind("deadline"):
        for other in steps:
            if method.name in other.sets:
                yield Edge(source=f"step:{other.name}", target=f"deadline:{method.name}", label="sets")
    for method in saga.of_kind("on"):
        if method.decides:
            yield Edge(source=f"step:{steps[0].name}", target=f"on:{method.name}", label=_cause(method))
    back = f"undo:{undos[0].undoes}" if undos else "compensated"
    for method in (*steps, *saga.of_kind("on", "deadline")):
        node = f"{'step' if method in steps else method.kind}:{method.name}"
        for verdict in method.decides:
            yield Edge(source=node, target=back if verdict == "compensate" else ENDS[verdict])
    if undos and not any("compensate" in method.decides for method in saga.methods):
        yield Edge(source=f"step:{steps[0].name}", target=back, label="cancel (operator)")
    for one, following in zip(undos, [*undos[1:], None], strict=True):
        yield Edge(
            source=f"undo:{one.undoes}", target="compensated" if following is None else f"undo:{following.undoes}"
        )


def _marks(saga: SagaEntry, row: SagaRow, history: Sequence[SagaTurn]) -> dict[str, Mark]:
    steps, standing = saga.of_kind("starts", "step", "join"), set(row.steps)
    marks: dict[str, Mark] = {"start": "done"} if row.status != "awaited" else {"start": "here"}
    ever = {step for turn in history for step in turn.steps_done}
    marks |= {f"step:{name}": "done" if name in standing else "undone" for name in ever | standing}
    marks |= {f"undo:{name}": "done" for name in ever - standing if row.status != "running"}
    marks |= {f"deadline:{name}": "armed" for name in row.deadlines}
    marks |= {f"{kind}:{turn.method}": "done" for turn in history if (kind := _happened(saga, turn)) is not None}
    if row.undoing is not None:
        marks[f"undo:{row.undoing.step}"] = "failed" if row.status == "compensation_failed" else "here"
    if row.status in OVER:
        marks[OVER[row.status]] = "here"
    elif row.status == "partial":
        marks["partial"] = "failed"
    elif row.status == "running":
        out = {call.step for call in row.calls}
        marks |= {f"step:{name}": "here" for name in out}
        following = [one for one in steps if one.name not in standing | out and set(one.after) <= standing]
        marks |= {f"step:{one.name}": "next" for one in following}
        if not out and row.done:
            marks[f"step:{row.done[-1].step}"] = "here"
    return marks


def _happened(saga: SagaEntry, turn: SagaTurn) -> str | None:
    """Which kind of node, that is no step, a turn was about."""
    return next((one.kind for one in saga.of_kind("on", "deadline") if one.name == turn.method), None)


def _more(method: MethodEntry) -> list[str]:
    by = [f"by {method.by}"] if method.by else []
    says = [f"says {_short(subject)}" for subject in method.publishes]
    return [*by, *says, *(f"begins {name}" for name in method.begins)]


def _cause(method: MethodEntry) -> str:
    return " or ".join(_short(subject) for subject in method.takes)


def _short(subject: str) -> str:
    return ".".join(subject.split(".")[-3:])


def _compensates(saga: SagaEntry) -> bool:
    return _decided(saga, "compensate") or bool(saga.of_kind("undo"))


def _decided(saga: SagaEntry, verdict: str) -> bool:
    return any(verdict in method.decides for method in saga.methods)
