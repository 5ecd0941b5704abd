"""Routes: who says what where, and who hears it."""

from __future__ import annotations

from typing import NamedTuple

from posthouse.governance.document import Document, TopicEntry


class Route(NamedTuple):
    """Subjects between one topic and one party. `party` is a service for what is sent and a consumer group for what is
    received; `service` is the service in both cases."""

    party: str
    service: str
    topic: str
    subjects: tuple[str, ...]


def sent(document: Document) -> list[Route]:
    """What each service says to each topic, sorted."""
    found: dict[tuple[str, str], list[str]] = {}
    for entry in document.events:
        found.setdefault((entry.service, entry.topic), []).append(entry.subject)
    return [Route(name, name, topic, tuple(sorted(found[name, topic]))) for name, topic in sorted(found)]


def received(document: Document) -> list[Route]:
    """What each consumer group takes from each topic, sorted. Of a group whose handlers are not known it is everything."""
    return sorted(_taken(document, topic, group) for topic in document.topics for group in topic.consumers)


def topics_by_name(document: Document) -> dict[str, TopicEntry]:
    return {topic.name: topic for topic in document.topics}


def service_of(document: Document, group: str) -> str:
    """The service of a consumer group: `stock` of the service `billing` is `billing.stock` where only its name is known."""
    known = (handler.service for handler in document.handlers if handler.consumer == group)
    return next(known, group.partition(".")[0])


def _taken(document: Document, topic: TopicEntry, group: str) -> Route:
    handlers = [handler for handler in document.handlers if handler.consumer == group]
    read = {reading.subject for handler in handlers for reading in handler.reads}
    subjects = tuple(sorted(subject for subject in topic.subjects if not handlers or subject in read))
    return Route(group, service_of(document, group), topic.name, subjects)
