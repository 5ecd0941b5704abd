"""Listing: from services to the catalogue as one value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from posthouse.app import app_of
from posthouse.contracts import EventType, Flow
from posthouse.governance.document import (
    Document,
    EventEntry,
    FlowEntry,
    HandlerEntry,
    Reading,
    Reliability,
    SagaEntry,
    TopicEntry,
)
from posthouse.governance.entitled import entitled, rights_kept
from posthouse.governance.outline import may_say, saga_entry
from posthouse.receiving import Handler, dead_letter_topic
from posthouse.service import Service


def catalogue_of(services: Iterable[Service]) -> Document:
    """Everything that these services declare, sorted. No store and no broker is opened."""
    every = sorted(services, key=lambda service: service.name)
    sagas = {of.consumer: saga_entry(of) for service in every for of in service.declared.saga_types.values()}
    events = _with_successors(
        [_event(known, of) for of in every for known in of.declared.catalogue if _owns(of, known)]
    )
    topics = tuple(_topic(name, every, events) for name in sorted(_topics(every)))
    return Document(
        services=tuple(service.name for service in every),
        events=events,
        topics=topics,
        handlers=tuple(
            sorted(
                (
                    _handler(of, consumer, handler, sagas.get(consumer))
                    for of in every
                    for consumer, handler in _handlers(of)
                ),
                key=lambda entry: (entry.service, entry.consumer, entry.name),
            )
        ),
        flows=tuple(_flow(of, of.declared.flows[name]) for of in every for name in sorted(of.declared.flows)),
        sagas=tuple(sagas[consumer] for consumer in sorted(sagas)),
        rights=entitled(topics, rights_kept(every)),
    )


def _owns(service: Service, event_type: EventType[object]) -> bool:
    subject = event_type.subject
    return (subject.namespace, subject.service) == (service.namespace, service.name)


def _event(event_type: EventType[object], service: Service) -> EventEntry:
    subject, payload, terms = event_type.subject, event_type.payload, event_type.terms
    return EventEntry(
        subject=event_type.name,
        service=service.name,
        namespace=subject.namespace,
        aggregate=subject.aggregate,
        verb=subject.verb,
        version=subject.version,
        topic=event_type.topic,
        owner=terms.owner,
        key=event_type.key,
        retention=terms.retention,
        residency=terms.residency,
        cross_tenant=terms.cross_tenant,
        idempotency=terms.idempotency,
        content_type=payload.content_type,
        schema_uri=event_type.schema,
        hash=payload.schema.hash,
        format=payload.schema.format,
        schema=payload.schema.text,
        deprecated=terms.deprecated,
        successor=None,
        beside=service.declared.published_beside.get(event_type.name),
        description=event_type.description,
        envelope=service.envelope,
    )


def _flow(service: Service, flow: Flow) -> FlowEntry:
    starts, then, may = flow.starts.name, _names(flow.then), _names(flow.may)
    return FlowEntry(
        name=flow.name,
        service=service.name,
        subjects=(starts, *then, *may),
        starts=starts,
        then=then,
        may=may,
        description=flow.description,
    )


def _names(types: Iterable[EventType[object]]) -> tuple[str, ...]:
    return tuple(event_type.name for event_type in types)


def _with_successors(events: Iterable[EventEntry]) -> tuple[EventEntry, ...]:
    """Sorted, each with the next version of its subject that is declared."""
    ordered = sorted(events, key=lambda entry: (entry.unversioned, entry.version))
    later = {(a.unversioned, a.version): b.subject for a, b in pairwise(ordered) if a.unversioned == b.unversioned}
    return tuple(replace(entry, successor=later.get((entry.unversioned, entry.version))) for entry in ordered)


def _topics(services: Sequence[Service]) -> set[str]:
    """Those that are written or read; dead letters belong to their topic."""
    return {event_type.topic for service in services for event_type in service.declared.catalogue}


def _topic(name: str, services: Sequence[Service], events: Sequence[EventEntry]) -> TopicEntry:
    declared = [known for service in services for known in service.declared.catalogue if known.topic == name]
    own = [entry for entry in events if entry.topic == name]
    keys = sorted({known.key for known in declared if known.key is not None})
    return TopicEntry(
        name=name,
        owner=", ".join(sorted({entry.owner for entry in own} - {""})),
        ordering=tuple(keys),
        guarantee="ordered per key" if keys else "unordered",
        parallelism="one per key" if keys else "in flight",
        dead_letters=dead_letter_topic(name),
        subjects=tuple(sorted({known.name for known in declared})),
        producers=tuple(sorted({entry.service for entry in own})),
        consumers=tuple(sorted(_readers(name, services))),
    )


def _readers(topic: str, services: Sequence[Service]) -> Iterable[str]:
    for service in services:
        for consumer, handlers in service.declared.consumers.items():
            if any(known.topic == topic for handler in handlers.values() for known in handler.event_types):
                yield consumer


def _handlers(service: Service) -> Iterable[tuple[str, Handler]]:
    """Each handler once, however many events it takes."""
    for consumer, handlers in service.declared.consumers.items():
        for handler in {id(handler): handler for handler in handlers.values()}.values():
            if not all(known.internal for known in handler.event_types):
                yield consumer, handler


def _handler(service: Service, consumer: str, handler: Handler, saga: SagaEntry | None) -> HandlerEntry:
    """The methods of a saga are handlers too; what they say is read from their source."""
    policy = handler.policy
    said = {known.name for known in handler.uses.publishes}
    if saga is not None:
        said |= may_say(saga, [known.name for known in handler.event_types])
    return HandlerEntry(
        name=handler.name,
        service=service.name,
        consumer=consumer,
        reads=tuple(_reading(handler, known) for known in sorted(handler.event_types, key=lambda known: known.name)),
        publishes=tuple(sorted(said)),
        reliability=Reliability(
            max_attempts=policy.max_attempts,
            first_delay=policy.first_delay,
            last_delay=policy.last_delay,
            deadline=policy.deadline,
            order=policy.order,
            on_dead=policy.on_dead,
            in_flight=app_of(service).settings.in_flight,
        ),
    )


def _reading(handler: Handler, event_type: EventType[object]) -> Reading:
    """A fact of another service that is declared here is declared with the fields that are needed."""
    fields = None if event_type.name in handler.lifts else handler.uses.reads_of(event_type)
    if not event_type.external:
        return Reading(subject=event_type.name, fields=fields)
    declared = tuple(sorted(event_type.payload.fields))
    return Reading(
        subject=event_type.name,
        fields=declared if fields is None else fields,
        schema=event_type.payload.schema.text,
    )
