"""Thawing: from frozen files to what can be exported. Less than the code knows: see Source.complete."""

from __future__ import annotations

from posthouse.contracts.lock import Locked
from posthouse.governance.bundle import Bundle, FrozenSchema
from posthouse.governance.document import Document, EventEntry, TopicEntry
from posthouse.governance.exports.source import Source

CONTENT_TYPES = {"json": "application/json", "avro": "application/avro", "protobuf": "application/protobuf"}


def thawed(bundle: Bundle) -> Source:
    """Every event whose schema is there and locked, and every topic."""
    events = tuple(
        _event(frozen, bundle.lock.schemas[path], bundle.topics)
        for path, frozen in sorted(bundle.schemas.items())
        if path in bundle.lock.schemas
    )
    groups = {group.partition(".")[0] for topic in bundle.topics for group in topic.consumers}
    writers = {name for topic in bundle.topics for name in topic.producers}
    services = {entry.service for entry in events} | groups | writers
    document = Document(services=tuple(sorted(services)), events=events, topics=bundle.topics)
    return Source(document=document, complete=False)


def _event(frozen: FrozenSchema, locked: Locked, topics: tuple[TopicEntry, ...]) -> EventEntry:
    subject = locked.subject
    names = [frozen.service, *([frozen.aggregate] if frozen.aggregate else []), frozen.verb, f"v{frozen.version}"]
    place = "/".join(names)
    namespace = subject.removesuffix(".".join(names)).rstrip(".")
    topic = next((topic for topic in topics if subject in topic.subjects), None)
    return EventEntry(
        subject=subject,
        service=frozen.service,
        namespace=namespace or None,
        aggregate=frozen.aggregate,
        verb=frozen.verb,
        version=frozen.version,
        topic=topic.name if topic else subject.rsplit(".", 2)[0],
        owner=topic.owner if topic else "",
        key=None,
        retention="hot",
        residency=None,
        content_type=CONTENT_TYPES[frozen.schema.format],
        schema_uri=f"schemas://{place}#{frozen.schema.hash}",
        hash=frozen.schema.hash,
        format=frozen.schema.format,
        schema=frozen.schema.text,
        semver=locked.semver if locked.hash == frozen.schema.hash else "",
    )
