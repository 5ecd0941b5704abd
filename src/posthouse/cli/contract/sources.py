"""What `posthouse contract verify` reads: schemas of producers, samples and pacts, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from posthouse.contracts.schema import Schema
from posthouse.errors import ConfigurationError
from posthouse.events.limits import UNREADABLE
from posthouse.governance.bundle import Bundle
from posthouse.governance.document import Document, EventEntry
from posthouse.governance.pacts import Expectation, read_pact


class Producer(msgspec.Struct, frozen=True):
    """The service that owns an event, and its schema."""

    service: str
    schema: Schema


class Sample(msgspec.Struct, frozen=True):
    """A message in a file: `samples/orders/order/placed/v1/gift.json` is one of `orders/order/placed/v1`."""

    file: Path
    place: str
    message: object


def producers(bundle: Bundle, code: Document | None) -> dict[str, Producer]:
    """Events by subject: as frozen, and as the code says where it is at hand."""
    frozen = {
        bundle.lock.schemas[path].subject: Producer(schema.service, schema.schema)
        for path, schema in bundle.schemas.items()
        if path in bundle.lock.schemas
    }
    own = {entry.subject: Producer(entry.service, Schema(entry.format, entry.schema)) for entry in _events(code)}
    return {**frozen, **own}


def places(bundle: Bundle, code: Document | None) -> dict[str, str]:
    """Subjects by the place of their schema, `orders/order/placed/v1`."""
    frozen = {path.rpartition(".")[0]: locked.subject for path, locked in bundle.lock.schemas.items()}
    own = {entry.schema_uri.partition("#")[0].removeprefix("schemas://"): entry.subject for entry in _events(code)}
    return {**frozen, **own}


def samples(folder: Path) -> Iterator[Sample]:
    """All that lie below a folder. Raises ConfigurationError for one that is not JSON."""
    for file in sorted(folder.rglob("*.json")):
        yield Sample(file, file.parent.relative_to(folder).as_posix(), _decoded(file))


def pacts(folder: Path) -> Iterator[Expectation]:
    """What all pact files below a folder expect. Raises ConfigurationError, also when there are none."""
    files = sorted(folder.rglob("*.json"))
    if not files:
        raise ConfigurationError(f"{folder} holds no pacts: write some with `posthouse contract write {folder} TARGET`")
    for file in files:
        yield from read_pact(str(file), _bytes(file))


def _events(code: Document | None) -> tuple[EventEntry, ...]:
    return code.events if code is not None else ()


def _decoded(file: Path) -> object:
    try:
        return msgspec.json.decode(_bytes(file))
    except UNREADABLE as error:
        raise ConfigurationError(f"{file} is not JSON: {error}") from error


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
