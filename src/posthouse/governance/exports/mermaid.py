"""Mermaid: diagrams of who talks to whom, and of a flow."""

from __future__ import annotations

from collections.abc import Iterable

from posthouse.governance.document import Document
from posthouse.governance.exports.flows import Expected, Flow
from posthouse.governance.exports.routes import received

UNLISTED = ", not listed"

_PLAIN = frozenset(" ._-:/,")


def talk(document: Document) -> str:
    """Services, and an arrow for each pair that names what one hears of the other."""
    heard: dict[tuple[str, str], set[str]] = {}
    for route in received(document):
        for subject in route.subjects:
            entry = document.event(subject)
            speaker = entry.service if entry else _unlisted(subject, document)
            heard.setdefault((speaker, route.service), set()).add(_short(subject, speaker))
    parties = sorted({*document.services, *(name for pair in heard for name in pair)})
    ids = {name: f"s{number}" for number, name in enumerate(parties)}
    lines = [f'  {ids[name]}["{label(name)}"]' for name in parties]
    lines += [f'  {ids[a]} -->|"{_lines(heard[a, b])}"| {ids[b]}' for a, b in sorted(heard)]
    return _fenced("flowchart LR", lines)


def chain(flow: Flow) -> str:
    """Events as rounded boxes, handlers as square ones with the service that runs them."""
    events = {subject: f"e{number}" for number, subject in enumerate(flow.subjects)}
    steps = {f"h{number}": step for number, step in enumerate(flow.steps)}
    lines = [f'  {events[subject]}(["{label(subject)}"])' for subject in flow.subjects]
    lines += [f'  {id_}["{label(_last(step.name))}<br/>{label(step.consumer)}"]' for id_, step in steps.items()]
    for id_, step in steps.items():
        lines += [f"  {events[read.subject]} --> {id_}" for read in step.reads if read.subject in events]
        lines += [f"  {id_} --> {events[subject]}" for subject in step.publishes]
    return _fenced("flowchart LR", lines)


def choreography(flow: Expected) -> str:
    """A declared flow: the facts that must come, those that may (dashed), and those that no listed handler leads to."""
    entry = flow.entry
    facts = [entry.starts, *flow.between, *entry.then, *entry.may]
    events = {subject: f"e{number}" for number, subject in enumerate(facts)}
    steps = {f"h{number}": step for number, step in enumerate(flow.steps)}
    lines = [f'  {events[subject]}(["{label(subject)}{_remark(flow, subject)}"])' for subject in facts]
    lines += [f'  {id_}["{label(_last(step.name))}<br/>{label(step.consumer)}"]' for id_, step in steps.items()]
    for id_, step in steps.items():
        lines += [f"  {events[read.subject]} --> {id_}" for read in step.reads if read.subject in events]
        lines += [f"  {id_} --> {events[subject]}" for subject in step.publishes if subject in events]
    if dashed := [events[subject] for subject in facts if subject in {*entry.may, *flow.unheard, *flow.unlisted}]:
        lines += ["  classDef open stroke-dasharray: 5 5", f"  class {','.join(dashed)} open"]
    return _fenced("flowchart LR", lines)


def _remark(flow: Expected, subject: str) -> str:
    return "".join(f"<br/>{label(remark)}" for remark in flow.remarks(subject))


def label(said: str) -> str:
    """Text inside quotes: what is neither letter nor digit is written as a number."""
    return "".join(sign if sign.isalnum() or sign in _PLAIN else f"#{ord(sign)};" for sign in said)


def _unlisted(subject: str, document: Document) -> str:
    """The owner of an event that no listed service declares, by its subject. Of two names before the verb the first is a
    namespace only if somebody else has it."""
    names = subject.split(".")[:-2]
    namespaced = len(names) > 2 or any(entry.namespace == names[0] for entry in document.events if names)
    return ".".join(names[: 2 if namespaced else 1]) + UNLISTED


def _short(subject: str, service: str) -> str:
    return subject.partition(f"{service.removesuffix(UNLISTED)}.")[2] or subject


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _lines(subjects: Iterable[str]) -> str:
    return "<br/>".join(map(label, sorted(subjects)))


def _fenced(kind: str, lines: Iterable[str]) -> str:
    return "\n".join(["```mermaid", kind, *lines, "```"]) + "\n"
