"""Checkpoints in a place: each under its size and its moment, and the newest once more where tools look for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from posthouse.history.audit.notes import Checkpoint, NoteError, Verifier, read_checkpoint
from posthouse.history.audit.place import Place

NEWEST = "checkpoint"
ALL = "checkpoints/"
_NAME = re.compile(r"checkpoints/(\d{16})-(\d{8}T\d{6}Z)")
_MOMENT = "%Y%m%dT%H%M%SZ"


class Signed(msgspec.Struct, frozen=True):
    """A checkpoint as it lies in a place, and when it was signed, as its name says."""

    path: str
    note: str
    checkpoint: Checkpoint
    at: float


def checkpoint_path(size: int, at: float) -> str:
    return f"{ALL}{size:016d}-{datetime.fromtimestamp(at, UTC).strftime(_MOMENT)}"


def newest(place: Place, keys: Sequence[Verifier]) -> Signed | None:
    """The largest that was signed. NoteError where it is not by one of the keys."""
    paths = [path for path in place.list(ALL) if _NAME.fullmatch(path)]
    return read(place, paths[-1], keys) if paths else None


def size_signed(place: Place) -> int:
    """Of how many events the largest is, by its name alone: nobody has to have a key for that."""
    return max((int(named[1]) for path in place.list(ALL) if (named := _NAME.fullmatch(path))), default=0)


def read(place: Place, path: str, keys: Sequence[Verifier]) -> Signed:
    """One of them. NoteError for what is no checkpoint by one of the keys, or not the one that its name says."""
    named = _NAME.fullmatch(path)
    if named is None:
        raise NoteError("its name is none of a checkpoint")
    try:
        note = (place.get(path) or b"").decode()
    except UnicodeDecodeError:
        raise NoteError("it is no text") from None
    found = read_checkpoint(note, keys)
    if found.size != int(named[1]):
        raise NoteError(f"it is one of {found.size:,} events, under a name that says {int(named[1]):,}")
    at = datetime.strptime(named[2], _MOMENT).replace(tzinfo=UTC).timestamp()
    return Signed(path, note, found, at)
