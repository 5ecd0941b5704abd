"""Lock: the content hash of each frozen schema, now and earlier, and the terms of its event. Enough to know every hash."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from posthouse.contracts.terms import Idempotency, Retention, SchemaFormat
from posthouse.errors import ConfigurationError
from posthouse.events.limits import UNREADABLE

T = TypeVar("T")

LOCK = "catalogue.lock"
EXTENSIONS: Mapping[SchemaFormat, str] = {"json": ".json", "avro": ".avsc", "protobuf": ".proto"}

Semver = Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9})?$")]
"""`1.2.0`: the version of an event's name, how often its schema changed under it, how often its words did since."""

_NAME = r"[a-z][a-z0-9_]*"
_PLACE = re.compile(
    rf"(?P<service>{_NAME})/(?:(?P<aggregate>{_NAME})/)?(?P<verb>{_NAME})/v(?P<version>[1-9][0-9]*)\.(?P<extension>\w+)"
)


class Locked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the lock says about one schema. `earlier` are hashes that this version had before; events that carry them may
    still be on their way. `writers` are the schemas of all these hashes where nobody can read the bytes without them:
    Avro's. `semver` is empty in a lock of an older release. `topic` and what follows are the event's terms; a lock of an older release has none, and its `topic` is empty."""

    subject: str
    hash: str
    earlier: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    semver: Semver = ""
    topic: str = ""
    key: str | None = None
    owner: str = ""
    retention: Retention = "hot"
    residency: str | None = None
    beside: str | None = None
    idempotency: Idempotency = "optional"


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """`schemas` by path; `topics` is the hash of topics.json."""

    version: int = 1
    schemas: Mapping[str, Locked] = {}
    topics: str = ""


def read_lock(text: bytes) -> Lock:
    """The lock alone: enough to know every hash. Raises ConfigurationError."""
    problems: list[str] = []
    lock = decoded({LOCK: text}, LOCK, Lock, problems)
    problems += misplaced(lock or Lock())
    if lock is None or problems:
        raise ConfigurationError(*problems)
    return lock


def misplaced(lock: Lock) -> list[str]:
    """The lock is a file that others write too: what it names is a place of a schema, and never one elsewhere."""
    return [f"{LOCK} names {path!r}, which is no place of a schema" for path in lock.schemas if place_in(path) is None]


def place_in(path: str) -> re.Match[str] | None:
    """The place of a schema below a bundle's folder; None for other files."""
    found = _PLACE.fullmatch(path)
    return found if found is not None and f".{found['extension']}" in EXTENSIONS.values() else None


def decoded(files: Mapping[str, bytes], name: str, kind: type[T], problems: list[str]) -> T | None:
    """The value in a file; None when it is not there, or cannot be read, which is then among the problems."""
    if name not in files:
        return None
    try:
        return msgspec.json.decode(files[name], type=kind)
    except UNREADABLE as error:
        problems.append(f"{name} cannot be read: {error}; resolve the merge or restore it, then freeze again")
        return None
