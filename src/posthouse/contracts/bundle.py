"""Bundle: a catalogue frozen into files. Pure: files are bytes by path, wherever they come from.

orders/order/placed/v1.json     one schema: service, aggregate (if there is one), verb, version
topics.json                     every topic with its owner, guarantee, producers and consumers
consumers.json                  what each handler reads, where there are handlers
catalogue.lock                  the content hash of each schema, now and earlier, and the terms of its event
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from posthouse.contracts.document import EventEntry, Reading, TopicEntry
from posthouse.contracts.normal import canonical, sha256
from posthouse.contracts.schema import Schema
from posthouse.contracts.schema_files import EXTENSIONS, file_of, schema_in
from posthouse.contracts.terms import Retention
from posthouse.errors import ConfigurationError
from posthouse.events.limits import UNREADABLE

T = TypeVar("T")

FOLDER = "event-schemas"
TOPICS = "topics.json"
CONSUMERS = "consumers.json"
LOCK = "catalogue.lock"

Files = Mapping[str, bytes]
"""Contents by path below the bundle's folder, with slashes."""

_NAME = r"[a-z][a-z0-9_]*"
_PLACE = re.compile(
    rf"(?P<service>{_NAME})/(?:(?P<aggregate>{_NAME})/)?(?P<verb>{_NAME})/v(?P<version>[1-9][0-9]*)\.(?P<extension>\w+)"
)


class FrozenSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One schema file."""

    path: str
    service: str
    aggregate: str | None
    verb: str
    version: int
    schema: Schema

    @property
    def unversioned(self) -> str:
        """The place without its version: what all versions of one fact have in common."""
        return self.path.rpartition("/")[0]


class Locked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the lock says about one schema. `earlier` are hashes that this version had before; events that carry them may
    still be on their way. `writers` are the schemas of all these hashes where nobody can read the bytes without them:
    Avro's. `topic` and what follows are the event's terms; a lock of an older release has none, and its `topic` is empty."""

    subject: str
    hash: str
    earlier: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    topic: str = ""
    key: str | None = None
    owner: str = ""
    retention: Retention = "hot"
    residency: str | None = None
    beside: str | None = None


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """`schemas` by path; `topics` is the hash of topics.json."""

    version: int = 1
    schemas: Mapping[str, Locked] = {}
    topics: str = ""


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


def is_part(path: str) -> bool:
    """Whether a file of this name belongs to a bundle; others may lie beside them."""
    return path in (TOPICS, CONSUMERS, LOCK) or _place(path) is not None


def read_bundle(files: Files) -> Bundle:
    """What the files say. Raises ConfigurationError with a sentence for each that cannot be read."""
    problems: list[str] = []
    schemas: dict[str, FrozenSchema] = {}
    topics = _decoded(files, TOPICS, TopicList, problems) or TopicList()
    consumers = _decoded(files, CONSUMERS, ConsumerList, problems) or ConsumerList()
    lock = _decoded(files, LOCK, Lock, problems) or Lock()
    problems += _misplaced(lock)
    for path in sorted(files):
        place = _place(path)
        if place is not None:
            locked = lock.schemas.get(path)
            try:
                schemas[path] = _frozen(path, place, schema_in(path, files[path], locked.hash if locked else ""))
            except ConfigurationError as error:
                problems += error.problems
    if problems:
        raise ConfigurationError(*problems)
    return Bundle(schemas=schemas, topics=topics.topics, consumers=consumers.consumers, lock=lock)


def read_lock(text: bytes) -> Lock:
    """The lock alone: enough to know every hash. Raises ConfigurationError."""
    problems: list[str] = []
    lock = _decoded({LOCK: text}, LOCK, Lock, problems)
    problems += _misplaced(lock or Lock())
    if lock is None or problems:
        raise ConfigurationError(*problems)
    return lock


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


def _misplaced(lock: Lock) -> list[str]:
    """The lock is a file that others write too: what it names is a place of a schema, and never one elsewhere."""
    return [f"{LOCK} names {path!r}, which is no place of a schema" for path in lock.schemas if _place(path) is None]


def _place(path: str) -> re.Match[str] | None:
    found = _PLACE.fullmatch(path)
    return found if found is not None and f".{found['extension']}" in EXTENSIONS.values() else None


def _frozen(path: str, place: re.Match[str], schema: Schema) -> FrozenSchema:
    return FrozenSchema(
        path=path,
        service=place["service"],
        aggregate=place["aggregate"],
        verb=place["verb"],
        version=int(place["version"]),
        schema=schema,
    )


def _decoded(files: Files, name: str, kind: type[T], problems: list[str]) -> T | None:
    """The value in a file; None when it is not there, or cannot be read, which is then among the problems."""
    if name not in files:
        return None
    try:
        return msgspec.json.decode(files[name], type=kind)
    except UNREADABLE as error:
        problems.append(f"{name} cannot be read: {error}; resolve the merge or restore it, then freeze again")
        return None
