"""Bundle: a catalogue frozen into files. Pure: files are bytes by path, wherever they come from.

orders/order/placed/v1.json     one schema: service, aggregate (if there is one), verb, version
topics.json                     every topic with its owner, guarantee, producers and consumers
consumers.json                  what each handler reads, where there are handlers
catalogue.lock                  the content hash of each schema, now and earlier, and the terms of its event
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from posthouse.contracts.lock import EXTENSIONS, LOCK, Lock, decoded, misplaced, place_in
from posthouse.contracts.normal import canonical, sha256
from posthouse.contracts.schema import Schema
from posthouse.errors import ConfigurationError
from posthouse.governance.document import EventEntry, Reading, TopicEntry
from posthouse.governance.envelopes import is_envelope
from posthouse.governance.schema_files import file_of, schema_in, words_in

FOLDER = "event-schemas"
TOPICS = "topics.json"
CONSUMERS = "consumers.json"

Files = Mapping[str, bytes]
"""Contents by path below the bundle's folder, with slashes."""


class FrozenSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One schema file."""

    path: str
    service: str
    aggregate: str | None
    verb: str
    version: int
    schema: Schema
    words: str = ""
    """What the file says about the event beside its schema."""

    @property
    def unversioned(self) -> str:
        """The place without its version: what all versions of one fact have in common."""
        return self.path.rpartition("/")[0]


class TopicList(msgspec.Struct, frozen=True):
    """What topics.json holds."""

    topics: tuple[TopicEntry, ...] = ()


class ConsumerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What one handler of one consumer group reads."""

    handler: str
    service: str
    consumer: str
    reads: tuple[Reading, ...]


class ConsumerList(msgspec.Struct, frozen=True):
    """What consumers.json holds."""

    consumers: tuple[ConsumerEntry, ...] = ()


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen catalogue. An empty one stands for a folder that is not there yet."""

    schemas: Mapping[str, FrozenSchema] = {}
    topics: tuple[TopicEntry, ...] = ()
    consumers: tuple[ConsumerEntry, ...] = ()
    lock: Lock = Lock()
    envelopes: Mapping[str, bytes] = {}
    """What is around payloads, by path: a schema of its own each."""


def is_part(path: str) -> bool:
    """Whether a file of this name belongs to a bundle; others may lie beside them."""
    return path in (TOPICS, CONSUMERS, LOCK) or place_in(path) is not None or is_envelope(path)


def read_bundle(files: Files) -> Bundle:
    """What the files say. Raises ConfigurationError with a sentence for each that cannot be read."""
    problems: list[str] = []
    schemas: dict[str, FrozenSchema] = {}
    topics = decoded(files, TOPICS, TopicList, problems) or TopicList()
    consumers = decoded(files, CONSUMERS, ConsumerList, problems) or ConsumerList()
    lock = decoded(files, LOCK, Lock, problems) or Lock()
    problems += misplaced(lock)
    for path in sorted(files):
        place = place_in(path)
        if place is not None:
            locked = lock.schemas.get(path)
            try:
                schema = schema_in(path, files[path], locked.hash if locked else "")
                schemas[path] = _frozen(path, place, schema, words_in(path, files[path]))
            except ConfigurationError as error:
                problems += error.problems
    if problems:
        raise ConfigurationError(*problems)
    envelopes = {path: files[path] for path in sorted(files) if is_envelope(path)}
    return Bundle(schemas=schemas, topics=topics.topics, consumers=consumers.consumers, lock=lock, envelopes=envelopes)


def place_of(entry: EventEntry) -> str:
    """The path of an event's schema: `orders/order/placed/v1.json`."""
    names = [entry.service, *([entry.aggregate] if entry.aggregate else []), entry.verb]
    return f"{'/'.join(names)}/v{entry.version}{EXTENSIONS[entry.format]}"


def schema_file(entry: EventEntry) -> bytes:
    """What stands in an event's schema file."""
    schema = Schema(entry.format, entry.schema)
    place = entry.schema_uri.partition("#")[0]
    return file_of(schema, place=place, subject=entry.subject, description=entry.description)


def topics_file(topics: tuple[TopicEntry, ...]) -> bytes:
    return _laid_out(TopicList(topics))


def consumers_file(consumers: tuple[ConsumerEntry, ...]) -> bytes:
    return _laid_out(ConsumerList(consumers))


def lock_file(lock: Lock) -> bytes:
    return _laid_out(lock)


def topics_hash(topics: tuple[TopicEntry, ...]) -> str:
    """The hash of the meaning of topics.json."""
    return sha256(canonical(msgspec.to_builtins(topics)))


def _laid_out(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _frozen(path: str, place: re.Match[str], schema: Schema, words: str) -> FrozenSchema:
    return FrozenSchema(
        path=path,
        service=place["service"],
        aggregate=place["aggregate"],
        verb=place["verb"],
        version=int(place["version"]),
        schema=schema,
        words=words,
    )
