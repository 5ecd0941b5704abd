"""Freezing: from a catalogue and the bundle as it was to the bundle as it should be. Pure.

A bundle may hold more services than the catalogue at hand: what belongs to the others stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from posthouse.contracts.lock import LOCK, Lock, Locked
from posthouse.errors import ConfigurationError
from posthouse.governance.bundle import (
    CONSUMERS,
    TOPICS,
    Bundle,
    ConsumerEntry,
    Files,
    consumers_file,
    lock_file,
    place_of,
    schema_file,
    topics_file,
    topics_hash,
)
from posthouse.governance.document import Document, EventEntry, TopicEntry
from posthouse.governance.envelopes import envelopes_of
from posthouse.governance.schema_files import words_in
from posthouse.governance.semver import numbers, raised, text_of


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the services at hand, topics, consumers and lock; `stale` are schema files that no event has any more."""

    files: Files
    stale: Sequence[str]


def freeze(document: Document, before: Bundle, *, prune: bool = False) -> Frozen:
    """What the folder should hold. Stale schemas stay in the lock unless they are pruned: whoever still reads such events
    needs their hashes."""
    entries = by_place(document)
    stale = stale_places(document, before)
    kept = {path: locked for path, locked in before.lock.schemas.items() if not (prune and path in stale)}
    for path, entry in entries.items():
        kept[path] = _locked(path, entry, before)
    topics = merged_topics(document, before.topics)
    lock = Lock(schemas=dict(sorted(kept.items())), topics=topics_hash(topics))
    files = {path: schema_file(entry) for path, entry in entries.items()}
    files |= envelopes_of(document)
    files |= {TOPICS: topics_file(topics), LOCK: lock_file(lock)}
    consumers = merged_consumers(document, before.consumers)
    if consumers or before.consumers:
        files[CONSUMERS] = consumers_file(consumers)
    return Frozen(files=files, stale=stale)


def by_place(document: Document) -> dict[str, EventEntry]:
    """Events by the path of their schema. Raises ConfigurationError when two would share one."""
    entries: dict[str, EventEntry] = {}
    problems = []
    for entry in document.events:
        other = entries.setdefault(place_of(entry), entry)
        if other is not entry:
            problems.append(
                f"{other.subject} and {entry.subject} would share {place_of(entry)}: freeze the namespaces into folders "
                "of their own"
            )
    if problems:
        raise ConfigurationError(*problems)
    return entries


def stale_places(document: Document, bundle: Bundle) -> list[str]:
    """Frozen schemas of these services that none of them declares."""
    current = by_place(document)
    frozen = {*bundle.schemas, *bundle.lock.schemas}
    return sorted(path for path in frozen if _service_of(path) in document.services and path not in current)


def merged_topics(document: Document, before: Sequence[TopicEntry]) -> tuple[TopicEntry, ...]:
    """The topics of these services as they are declared, and what is known of the others."""
    merged = {topic.name: _without(topic, document.services) for topic in before}
    for topic in document.topics:
        merged[topic.name] = _joined(topic, merged.get(topic.name), document.services)
    return tuple(merged[name] for name in sorted(merged) if merged[name].producers or merged[name].consumers)


def merged_consumers(document: Document, before: Sequence[ConsumerEntry]) -> tuple[ConsumerEntry, ...]:
    """What the handlers of these services read, and what is known of the others."""
    others = [entry for entry in before if entry.service not in document.services]
    own = [
        ConsumerEntry(handler=entry.name, service=entry.service, consumer=entry.consumer, reads=entry.reads)
        for entry in document.handlers
    ]
    return tuple(sorted([*others, *own], key=lambda entry: (entry.service, entry.consumer, entry.handler)))


def with_terms(locked: Locked, entry: EventEntry) -> Locked:
    """The same with the terms that an event is declared with."""
    return replace(
        locked,
        topic=entry.topic,
        key=entry.key,
        owner=entry.owner,
        retention=entry.retention,
        residency=entry.residency,
        beside=entry.beside,
        idempotency=entry.idempotency,
    )


def _locked(path: str, entry: EventEntry, bundle: Bundle) -> Locked:
    writers = [entry.schema] if entry.format == "avro" else []
    before, file = bundle.lock.schemas.get(path), bundle.schemas.get(path)
    if before is None:
        first = text_of(numbers("", entry.version))
        return with_terms(Locked(subject=entry.subject, hash=entry.hash, writers=tuple(writers), semver=first), entry)
    earlier = [known for known in dict.fromkeys((*before.earlier, before.hash)) if known != entry.hash]
    semver = raised(
        numbers(before.semver, entry.version),
        schema=before.hash != entry.hash,
        words=file is not None and file.words != words_in(path, schema_file(entry)),
    )
    locked = replace(
        before,
        subject=entry.subject,
        hash=entry.hash,
        earlier=tuple(earlier),
        writers=tuple(dict.fromkeys((*before.writers, *writers))),
        semver=text_of(semver),
    )
    return with_terms(locked, entry)


def _without(topic: TopicEntry, services: Sequence[str]) -> TopicEntry:
    """What others say about a topic."""
    return replace(
        topic,
        producers=tuple(name for name in topic.producers if name not in services),
        consumers=tuple(group for group in topic.consumers if group.partition(".")[0] not in services),
    )


def _joined(topic: TopicEntry, others: TopicEntry | None, services: Sequence[str]) -> TopicEntry:
    """Who writes a topic says what it is; until one of these is known, its readers do."""
    if others is None:
        return topic
    written_here = any(name in services for name in topic.producers)
    shape = topic if written_here or not others.producers else others
    return replace(
        shape,
        producers=tuple(sorted({*topic.producers, *others.producers})),
        consumers=tuple(sorted({*topic.consumers, *others.consumers})),
    )


def _service_of(path: str) -> str:
    return path.partition("/")[0]
