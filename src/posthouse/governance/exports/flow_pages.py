"""EventCatalog's flows: what one can step through, for declared flows and for sagas. Facts lead to the service that hears them,
and from there to what it says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from posthouse.clock import lasting
from posthouse.governance.document import Document, FlowEntry, MethodEntry, SagaEntry
from posthouse.governance.exports.flows import expected
from posthouse.governance.exports.front_matter import Value
from posthouse.governance.exports.names import safe
from posthouse.governance.exports.pages import FIRST, Fields, called, folder_of, page, version_of
from posthouse.governance.exports.prose import paragraphs
from posthouse.governance.exports.source import Source
from posthouse.governance.exports.states import states

GRAPH = "<NodeGraph />"
OPERATOR = "operator"
VERBS = {"partial_retry": "retry", "partial_resume": "resume"}


def flow_pages(source: Source) -> Iterator[tuple[str, str]]:
    """One page for each declared flow, and one for each saga, in the folder of its service."""
    document = source.document
    for flow in document.flows:
        yield _place(source, flow), _page(flow, _choreography(document, flow), GRAPH)
    for saga in document.sagas:
        yield _place(source, saga), _page(saga, _process(document, saga), GRAPH, states(saga))


def flow_links(source: Source, service: str) -> list[Fields]:
    """To the flows and sagas of a service."""
    processes: tuple[FlowEntry | SagaEntry, ...] = (*source.document.flows, *source.document.sagas)
    return [{"id": _id(one), "version": FIRST} for one in processes if one.service == service]


class Steps:
    """A graph, in the order in which its nodes are named."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes: dict[str, dict[str, Value]] = {}
        self._leads: dict[str, list[Fields]] = {}
        self._facts: dict[str, str] = {}

    @property
    def fields(self) -> list[Fields]:
        return [{**node, "next_steps": self._leads.get(id_, [])} for id_, node in self._nodes.items()]

    def add(self, id_: str, title: str, summary: str = "", **kind: Value) -> None:
        self._nodes[id_] = {"id": id_, "title": title, "summary": summary, **kind}

    def fact(self, subject: str, summary: str = "") -> str:
        """The id of a fact; it has a page if a listed service owns it."""
        if subject not in self._facts:
            self._facts[subject] = id_ = f"e{len(self._facts)}"
            entry = self._document.event(subject)
            known = {} if entry is None else {"message": {"id": safe(entry.unversioned), "version": version_of(entry)}}
            self.add(id_, subject, summary, **known)
        return self._facts[subject]

    def work(self, id_: str, title: str, service: str, summary: str) -> None:
        """Something that a service does."""
        listed = service in self._document.services
        self.add(id_, title, summary, **({"service": {"id": safe(service), "version": FIRST}} if listed else {}))

    def operator(self, id_: str, verb: str) -> None:
        """What people do by hand."""
        self.add(OPERATOR, "Operator", actor={"name": "Operator"})
        self.lead(OPERATOR, id_, verb)

    def lead(self, one: str, other: str, label: str = "") -> None:
        self._leads.setdefault(one, []).append({"id": other, "label": label})


def _choreography(document: Document, entry: FlowEntry) -> Steps:
    flow, steps = expected(document, entry), Steps(document)
    facts = {
        subject: steps.fact(subject, ", ".join(flow.remarks(subject)))
        for subject in (entry.starts, *flow.between, *entry.then, *entry.may)
    }
    for number, step in enumerate(flow.steps):
        id_ = f"h{number}"
        steps.work(id_, step.name.rpartition(".")[2], step.service, step.consumer)
        for reading in step.reads:
            if reading.subject in facts:
                steps.lead(facts[reading.subject], id_)
        for subject in step.publishes:
            if subject in facts:
                steps.lead(id_, facts[subject])
    return steps


def _process(document: Document, saga: SagaEntry) -> Steps:
    steps = Steps(document)
    ids = {method.name: f"m{number}" for number, method in enumerate(saga.methods)}
    undos = [ids[method.name] for method in reversed(saga.of_kind("undo"))]
    for method in saga.methods:
        _method(steps, saga, method, ids[method.name])
        for deadline in method.sets:
            if deadline in ids:
                steps.lead(ids[method.name], ids[deadline], "sets")
        if "compensate" in method.decides and undos:
            steps.lead(ids[method.name], undos[0], "compensate")
    if undos:
        steps.operator(undos[0], "cancel")
    for one, other in pairwise(undos):
        steps.lead(one, other, "then")
    return steps


def _method(steps: Steps, saga: SagaEntry, method: MethodEntry, id_: str) -> None:
    """What leads to it, itself, and what it says."""
    if method.kind in VERBS:
        steps.operator(id_, VERBS[method.kind])
    taken = [steps.fact(subject) for subject in method.takes]
    steps.work(id_, _title(method), saga.service, _summary(saga, method))
    for fact in taken:
        if method.kind == "undo":
            steps.lead(id_, fact, f"waits at most {lasting(method.seconds)} for")
        else:
            steps.lead(fact, id_)
    for subject in method.publishes:
        steps.lead(id_, steps.fact(subject))


def _title(method: MethodEntry) -> str:
    return f"{method.name} after {method.wait}" if method.kind == "deadline" else method.name


def _summary(saga: SagaEntry, method: MethodEntry) -> str:
    if method.undoes:
        return f"undoes {method.undoes}"
    return f"begins a saga, one for each {saga.correlate}" if method.kind == "starts" else ""


def _page(entry: FlowEntry | SagaEntry, steps: Steps, *parts: str) -> str:
    fields: Fields = {
        "id": _id(entry),
        "name": f"{entry.name} of {entry.service}",
        "version": FIRST,
        "summary": " ".join(entry.description.partition("\n\n")[0].split()),
        "steps": steps.fields,
    }
    return page(fields, paragraphs(entry.description), *parts)


def _place(source: Source, entry: FlowEntry | SagaEntry) -> str:
    return f"{folder_of(source, entry.service)}/flows/{called(_id(entry))}/index.mdx"


def _id(entry: FlowEntry | SagaEntry) -> str:
    """A flow and a saga of one service may have one name."""
    return safe(f"{entry.service}.{entry.name}{'.saga' if isinstance(entry, SagaEntry) else ''}")
