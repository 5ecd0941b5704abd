"""Exporting: a stream as one file, to be kept elsewhere before it is deleted.

One JSON object a line: where the stream stood, each event as it lies in the store (`body` in base64), and at the end how many there
are and the hash of all lines before. A file without its last line, or with another hash, is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from posthouse.clock import new_id
from posthouse.errors import ConfigurationError
from posthouse.store import Store, Transaction
from posthouse.store.streams import Stream, StreamEvent, StreamHead, StreamState

KIND = "posthouse-stream/1"
PAGE = 1_000
"""Events that are in memory at once."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: whose stream, and where it stood."""

    tenant: str
    aggregate: str
    id: str
    version: int
    base: int
    state: StreamState
    kind: str = KIND


class Closing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last line: how many events there are, and the hash of every line before."""

    events: int
    sha256: str


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    opening: Opening
    events: int
    sha256: str


async def export_stream(store: Store, tx: Transaction, stream: Stream, head: StreamHead, path: Path) -> Exported:
    """Write a stream that `tx` holds into a file that is not there yet, and read it again: once this returns it is on the disk, whole.
    A file that is there and says the same is as good. ConfigurationError where it says something else or cannot be written."""
    beside = path.parent / f".{path.name}.{new_id()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = await _write(beside, stream, head, _events(store, tx, stream))
        try:
            os.link(beside, path)
        except FileExistsError:
            return _same(path, written)
        _sync(path.parent)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}: make room, or name another file"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)
    return _same(path, written)


def read_export(path: Path) -> Exported:
    """What a file says it is. ConfigurationError for one that is truncated, changed, or none of these."""
    for found in _checked(path):
        last = found
    assert isinstance(last, Exported)
    return last


def events_in(path: Path) -> Iterator[StreamEvent]:
    """The events of a file; ConfigurationError at its end where it is not whole."""
    return (found for found in _checked(path) if isinstance(found, StreamEvent))


async def _events(store: Store, tx: Transaction, stream: Stream) -> AsyncIterator[StreamEvent]:
    after = 0
    while rows := await store.streams.read(tx, stream, after=after, limit=PAGE):
        for row in rows:
            yield row
        after = rows[-1].version


async def _write(path: Path, stream: Stream, head: StreamHead, events: AsyncIterator[StreamEvent]) -> Exported:
    opening = Opening(
        tenant=stream.tenant,
        aggregate=stream.aggregate,
        id=stream.id,
        version=head.version,
        base=head.base,
        state=head.state,
    )
    digest, count = hashlib.sha256(), 0
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:

        def add(value: object) -> None:
            line = msgspec.json.encode(value) + b"\n"
            digest.update(line)
            file.write(line)

        add(opening)
        async for event in events:
            add(event)
            count += 1
        closing = Closing(events=count, sha256=digest.hexdigest())
        file.write(msgspec.json.encode(closing) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return Exported(opening=opening, events=count, sha256=closing.sha256)


def _same(path: Path, wanted: Exported) -> Exported:
    found = read_export(path)
    if found != wanted:
        raise ConfigurationError(f"{path} is there already, and is another export: name another file")
    return found


def _checked(path: Path) -> Iterator[StreamEvent | Exported]:
    digest, count, opening = hashlib.sha256(), 0, None
    try:
        with path.open("rb") as file:
            before = file.readline()
            opening = msgspec.json.decode(before, type=Opening)
            if opening.kind != KIND:
                raise ConfigurationError(f"{path} is of the kind {opening.kind!r:.80}, and this is known here: {KIND}")
            digest.update(before)
            for line in file:
                if not line.startswith(b'{"events":'):
                    count += 1
                    digest.update(line)
                    yield msgspec.json.decode(line, type=StreamEvent)
                    continue
                closing = msgspec.json.decode(line, type=Closing)
                if (closing.events, closing.sha256) != (count, digest.hexdigest()) or file.read(1):
                    raise ConfigurationError(f"{path} was changed: it has another hash than its last line says")
                yield Exported(opening=opening, events=count, sha256=closing.sha256)
                return
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is no export of a stream, or is damaged: {error}") from error
    raise ConfigurationError(f"{path} is not whole: its last line is missing")


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
