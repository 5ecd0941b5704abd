"""Batches: the events of the log, each with the salt under which it was hashed, in the order of their positions. Pure.

What is hashed of an event is what travelled: its id, topic, key, headers and body, as one array of MessagePack. Its entry in the
log is SHA-256 of salt and array, and the id: nothing of it can be guessed once the salt is gone, and it takes the same room
whatever the event was. Entries lie in bundles of up to 256, as C2SP's tlog-tiles has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from posthouse.broker import Frame

SALT = 16
DIGEST = 32
EVENTS = "events/"
"""Where batches are: a batch is called after the position of its first event, so that no two can begin at the same one."""
ID = 1000
"""So many bytes of an id are in its entry, at most."""
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)
_encode = msgspec.msgpack.encode


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Events as they were logged together: the position of the first one, the salts one after the other, and what is hashed."""

    first: int
    salts: bytes
    events: Sequence[bytes]


class Travelled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is hashed of an event. Headers are sorted by name."""

    id: str
    topic: str
    key: str | None
    headers: Sequence[tuple[str, str]]
    body: bytes


class _Named(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: str


_batch = msgspec.msgpack.Decoder(Batch).decode
_named = msgspec.msgpack.Decoder(_Named).decode
_travelled = msgspec.msgpack.Decoder(Travelled).decode


class BatchError(ValueError):
    """Bytes that are no batch, or no event of one."""


def travelled(frame: Frame) -> bytes:
    """What is hashed of a frame."""
    return _encode((frame.id, frame.topic, frame.key, sorted(frame.headers.items()), frame.body))


def read_travelled(event: bytes) -> Travelled:
    """What was hashed of an event, apart."""
    try:
        return _travelled(event)
    except UNREADABLE as error:
        raise BatchError(f"it is no event: {error}") from error


def id_of(event: bytes) -> str:
    """The id of an event; BatchError where it has none."""
    try:
        return _named(event).id
    except UNREADABLE as error:
        raise BatchError(f"it is no event: {error}") from error


def batch_path(first: int) -> str:
    return f"{EVENTS}{first:016d}"


def first_in(path: str) -> int | None:
    """The position that a batch is called after; None for a file that is none."""
    name = path.removeprefix(EVENTS)
    return int(name) if len(name) == 16 and name.isascii() and name.isdecimal() else None


def write_batch(batch: Batch) -> bytes:
    return _encode(batch)


def read_batch(data: bytes) -> Batch:
    """BatchError for bytes that are none."""
    try:
        return _batch(data)
    except UNREADABLE as error:
        raise BatchError(f"it is no batch of events: {error}") from error


def entry(salt: bytes, event: bytes, id: str) -> bytes:
    """The entry of an event."""
    return sha256(salt + event).digest() + id.encode()[:ID]


def entries(batch: Batch) -> list[bytes]:
    """Those of a batch. BatchError where salts and events do not fit together."""
    if len(batch.salts) != SALT * len(batch.events):
        raise BatchError(f"it has {len(batch.events)} events, and not one salt for each")
    salts = batch.salts
    try:
        return [
            sha256(salts[at : at + SALT] + event).digest() + _named(event).id.encode()[:ID]
            for at, event in zip(range(0, len(salts), SALT), batch.events, strict=True)
        ]
    except UNREADABLE as error:
        raise BatchError(f"one of its events cannot be read: {error}") from error


def write_bundle(entries: Iterable[bytes]) -> bytes:
    """Entries as tlog-tiles has them: two bytes of length before each."""
    return b"".join([len(one).to_bytes(2, "big") + one for one in entries])


def read_bundle(bundle: bytes) -> list[bytes]:
    """The entries in a bundle. BatchError where it was cut."""
    found, at = [], 0
    while at < len(bundle):
        end = at + 2 + int.from_bytes(bundle[at : at + 2], "big")
        if end > len(bundle) or at + 2 > len(bundle):
            raise BatchError("the bundle of entries was cut")
        found.append(bundle[at + 2 : end])
        at = end
    return found
