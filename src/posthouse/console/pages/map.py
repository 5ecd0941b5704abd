"""Map: services, topics, consumers and sagas as a graph, with what flows and what is stuck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from posthouse.console.asking import Ask
from posthouse.console.catalogue import Catalogue
from posthouse.console.pages.home import consumers_of, everyone
from posthouse.console.sampling import Sampler
from posthouse.console.troubles import Gravity, Trouble, troubles
from posthouse.governance.document import Document

Kind = Literal["service", "topic", "consumer", "saga", "read model"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is the kind and the name; `service` the one that it belongs to, empty for a topic whose service is not listed. `rate`: events
    per second that it writes (service), that are written to it (topic), or that it applies. None: nobody knows."""

    id: str
    kind: Kind
    name: str
    service: str
    about: Sequence[str]
    """Of a topic its events, of a consumer or a saga the topics that it reads."""
    rate: float | None = None
    lag: float | None = None
    waiting: int | None = None
    held: int = 0
    gravity: Gravity | None = None
    troubles: Sequence[str] = ()


class Edge(msgspec.Struct, frozen=True):
    """From who writes to a topic, or from a topic to who reads it. `rate` is what flows along it, None where nobody knows."""

    source: str
    target: str
    rate: float | None


class Map(msgspec.Struct, frozen=True, kw_only=True):
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    events: int


async def graph(ask: Ask) -> Map:
    """The whole graph, with the figures of the last look."""
    everyone(ask)
    sampler = ask.estate.part(Sampler)
    look = await sampler.look()
    document = await ask.estate.part(Catalogue).document()
    found = troubles(look)
    consumers = {one.name: one for one in consumers_of(look, sampler)}
    nodes: dict[str, Node] = {}
    for name in document.services:
        mine = [one for one in found if name in one.service.split(", ")]
        nodes[f"service:{name}"] = Node(
            id=f"service:{name}",
            kind="service",
            name=name,
            service=name,
            about=[entry.name for entry in document.topics if name in entry.producers],
            rate=sampler.rate("committed", f"service:{name}"),
            gravity=_gravest(mine),
            troubles=_words(mine),
        )
    for topic in document.topics:
        nodes[f"topic:{topic.name}"] = Node(
            id=f"topic:{topic.name}",
            kind="topic",
            name=topic.name,
            service=topic.producers[0] if topic.producers else "",
            about=topic.subjects,
            rate=sampler.rate("sent", f"topic:{topic.name}"),
            waiting=_int(look.value("outbox_unsent", topic=topic.name)),
        )
    readers = _readers(document)
    sagas = {entry.consumer: entry.name for entry in document.sagas}
    models = _models(ask)
    for name, topics in readers.items():
        known = consumers.get(name)
        service = name.partition(".")[0]
        mine = [one for one in found if one.of in (name, sagas.get(name)) and service in one.service.split(", ")]
        nodes[f"consumer:{name}"] = Node(
            id=f"consumer:{name}",
            kind="saga" if name in sagas else "read model" if name in models else "consumer",
            name=name,
            service=service,
            about=topics,
            rate=None if known is None else known.rate,
            lag=None if known is None else known.lag,
            waiting=_waiting([] if known is None else [one.in_flight for one in known.topics]),
            held=0 if known is None else sum(known.held.values()),
            gravity=_gravest(mine),
            troubles=_words(mine),
        )
    return Map(nodes=list(nodes.values()), edges=_edges(document, nodes, readers), events=len(document.events))


def _gravest(found: Sequence[Trouble]) -> Gravity | None:
    """They come in this order."""
    return found[0].gravity if found else None


def _words(found: Sequence[Trouble]) -> Sequence[str]:
    return [one.what for one in found[:5]]


def _readers(document: Document) -> Mapping[str, Sequence[str]]:
    """The topics that each consumer reads."""
    found: dict[str, list[str]] = {}
    for topic in document.topics:
        for name in topic.consumers:
            found.setdefault(name, []).append(topic.name)
    return found


def _models(ask: Ask) -> set[str]:
    return {
        projection.consumer
        for service in ask.estate.services.values()
        for projection in service.declared.projections.values()
    }


def _edges(document: Document, nodes: Mapping[str, Node], readers: Mapping[str, Sequence[str]]) -> list[Edge]:
    """Who writes and who reads. What a handler is known to publish comes from its consumer; else from its service."""
    topics = {subject: topic.name for topic in document.topics for subject in topic.subjects}
    said = {
        (handler.consumer, topics[subject])
        for handler in document.handlers
        for subject in handler.publishes
        if subject in topics
    }
    said |= {
        (saga.consumer, topics[subject])
        for saga in document.sagas
        for method in saga.methods
        for subject in method.publishes
        if subject in topics
    }
    edges = [
        Edge(f"service:{producer}", f"topic:{topic.name}", nodes[f"topic:{topic.name}"].rate)
        for topic in document.topics
        for producer in topic.producers
        if f"service:{producer}" in nodes
    ]
    edges += [
        Edge(f"topic:{topic}", f"consumer:{name}", nodes[f"topic:{topic}"].rate)
        for name, those in readers.items()
        for topic in those
    ]
    edges += [
        Edge(f"consumer:{name}", f"topic:{topic}", None) for name, topic in sorted(said) if f"consumer:{name}" in nodes
    ]
    return edges


def _waiting(known: Sequence[int | None]) -> int | None:
    return None if None in known or not known else sum(one for one in known if one is not None)


def _int(value: float | None) -> int | None:
    return None if value is None else int(value)


PAGES = {"/map": graph}
