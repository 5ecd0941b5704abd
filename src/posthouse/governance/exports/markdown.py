"""The catalogue as one page of Markdown: tables of what is said, heard and promised, and diagrams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from posthouse.governance.document import Document, EventEntry, HandlerEntry, RightsEntry, TopicEntry
from posthouse.governance.exports.flows import expected, flows
from posthouse.governance.exports.mermaid import chain, choreography, talk
from posthouse.governance.exports.prose import code, codes, paragraphs, table, text
from posthouse.governance.exports.source import Files, Source
from posthouse.governance.exports.states import states

FILE = "catalogue.md"
UNKNOWN = "not known"
EVENTS = ("Event", "What happened", "Owner", "Key", "Kept", "Stays in", "Topic", "Says it", "Hear it")
TOPICS = ("Topic", "Owner", "Order", "At the same time", "Delivery", "Dead letters", "Written by", "Read by")
RIGHTS = ("Topic", "May publish", "May read", "May replay", "Kept by")
CONSUMERS = ("Consumer", "Handler", "Hears", "Says", "Order", "Tries", "One run", "When dead", "Back-pressure")

DELIVERY = "at least once; applied once per consumer"


def markdown(source: Source) -> Files:
    return {FILE: "\n".join(_parts(source))}


def _parts(source: Source) -> Iterator[str]:
    document = source.document
    yield f"# Events of {text(source.title)}\n"
    if not source.complete:
        yield "Made from frozen files, which hold neither keys, retention, residency and deprecation of events nor handlers.\n"
    yield "## Events\n"
    yield table(EVENTS, [_event(source, entry) for entry in document.events])
    yield "## Topics and what they guarantee\n"
    yield table(TOPICS, [_topic(topic) for topic in document.topics])
    if document.rights:
        yield "## Who may what\n"
        yield table(RIGHTS, [_rights(entry) for entry in document.rights])
    if document.handlers:
        yield "## Consumers\n"
        yield table(CONSUMERS, [_handler(handler) for handler in document.handlers])
    yield "## Who talks to whom\n"
    yield talk(document)
    yield from _flows(document)
    for saga in document.sagas:
        yield f"## Saga {text(saga.name)} of {text(saga.service)}\n"
        if saga.description:
            yield f"{paragraphs(saga.description)}\n"
        yield states(saga)


def _flows(document: Document) -> Iterator[str]:
    """Those that were declared, then what follows from other events."""
    for entry in document.flows:
        yield f"## Flow {text(entry.name)} of {text(entry.service)}\n"
        if entry.description:
            yield f"{paragraphs(entry.description)}\n"
        yield choreography(expected(document, entry))
    declared = {entry.starts for entry in document.flows}
    for flow in flows(document):
        if flow.start not in declared:
            yield f"## Flow: {text(flow.start)}\n"
            yield chain(flow)


def _event(source: Source, entry: EventEntry) -> Sequence[str]:
    topic = next((topic for topic in source.document.topics if topic.name == entry.topic), None)
    readers = sorted({h.consumer for h in source.document.handlers if any(r.subject == entry.subject for r in h.reads)})
    if not source.complete:
        readers = list(topic.consumers) if topic else []
    return (
        f"{code(entry.subject)} {entry.semver}".rstrip(),
        text(_said(entry)),
        text(entry.owner) or "nobody",
        code(entry.key or "") if source.complete else UNKNOWN,
        entry.retention if source.complete else UNKNOWN,
        text(entry.residency or "anywhere") if source.complete else UNKNOWN,
        code(entry.topic),
        code(entry.service),
        codes(readers) or "nobody listed",
    )


def _said(entry: EventEntry) -> str:
    """The first paragraph of its description, and that it ends."""
    first = entry.description.partition("\n\n")[0]
    if entry.deprecated is None:
        return first
    instead = f", see {entry.successor}" if entry.successor else ""
    return f"Deprecated from {entry.deprecated.isoformat()}{instead}. {first}"


def _topic(topic: TopicEntry) -> Sequence[str]:
    order = f"per tenant and {' or '.join(map(code, topic.ordering))}" if topic.ordering else "none"
    together = "one of a key" if topic.parallelism == "one per key" else "as many as the consumer holds in flight"
    return (
        code(topic.name),
        text(topic.owner) or "nobody",
        order,
        together,
        DELIVERY,
        code(topic.dead_letters),
        codes(topic.producers) or "nobody listed",
        codes(topic.consumers) or "nobody listed",
    )


def _rights(entry: RightsEntry) -> Sequence[str]:
    return (
        code(entry.topic),
        codes(entry.publish) or "nobody listed",
        "whoever declares it" if entry.read is None else codes(entry.read) or "nobody",
        "whoever reads it" if entry.replay is None else codes(entry.replay) or "nobody",
        codes(entry.services),
    )


def _handler(handler: HandlerEntry) -> Sequence[str]:
    policy = handler.reliability
    pauses = f", pauses of {policy.first_delay:g} to {policy.last_delay:g} s" if policy.max_attempts > 1 else ""
    return (
        code(handler.consumer),
        code(handler.name),
        codes(reading.subject for reading in handler.reads),
        codes(handler.publishes) or "nothing",
        "per key" if policy.order == "key" else "none",
        f"{policy.max_attempts}{pauses}",
        f"at most {policy.deadline:g} s",
        "its key waits for an operator" if policy.on_dead == "stop" else "its key goes on without it",
        f"takes no more while {policy.in_flight:,} are in flight",
    )
