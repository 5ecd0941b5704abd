"""Proofs: what one event needs to be believed without the log: itself, its way to the root, and the checkpoint that signs it.

As texts that other tools read: a proof of an event is C2SP's tlog-proof, whose extra line holds salt and event; one that a
checkpoint goes on from another is what C2SP's tlog-witness asks for."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence

import msgspec

from posthouse.errors import AuditDamaged, AuditError
from posthouse.history.audit.batches import (
    DIGEST,
    EVENTS,
    ID,
    SALT,
    BatchError,
    Travelled,
    entry,
    first_in,
    id_of,
    read_batch,
    read_bundle,
    read_travelled,
)
from posthouse.history.audit.checkpoints import Signed, newest
from posthouse.history.audit.merkle import consistency, extends, includes, inclusion, leaf
from posthouse.history.audit.notes import Checkpoint, NoteError, Verifier, read_checkpoint
from posthouse.history.audit.place import Place
from posthouse.history.audit.tiles import WIDTH, Missing, Tiles, tile_path

FIRST_LINE = "c2sp.org/tlog-proof@v1"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class Proved(msgspec.Struct, frozen=True):
    """What a proof shows: this event was logged at this position, and that was signed."""

    event: Travelled
    position: int
    checkpoint: Checkpoint


def prove(place: Place, keys: Sequence[Verifier], id: str) -> str:
    """The proof of an event under the newest checkpoint. AuditError where it is not in the log, or not under a checkpoint yet;
    AuditDamaged where the files do not prove it."""
    signed = _newest(place, keys)
    position = _find(place, id, signed.checkpoint.size)
    salt, event = _event(place, position)
    try:
        path = inclusion(position, signed.checkpoint.size, Tiles(place.get, signed.checkpoint.size).full)
    except Missing as error:
        raise AuditDamaged(f"{place.name}: {error}: `posthouse audit verify` says what was done") from error
    lines = [FIRST_LINE, f"extra {_base64(salt + event)}", f"index {position}", *map(_base64, path)]
    text = "\n".join(lines) + f"\n\n{signed.note}"
    try:
        check(text, keys)
    except ValueError as error:
        raise AuditDamaged(f"{place.name}: {id} cannot be proven: {error}: run `posthouse audit verify`") from error
    return text


def check(proof: str, keys: Sequence[Verifier]) -> Proved:
    """What a proof shows. ValueError where it shows nothing; the message says why."""
    head, blank, note = proof.partition("\n\n")
    lines = head.split("\n")
    if not blank or len(lines) < 3 or lines[0] != FIRST_LINE:
        raise ValueError(f"it is no proof: it does not begin with {FIRST_LINE}")
    extra, index = lines[1].removeprefix("extra "), lines[2].removeprefix("index ")
    salted = _unbase64(extra)
    if not _NUMBER.fullmatch(index) or len(salted) <= SALT:
        raise ValueError("it is no proof of an event: its second line is to hold the event, the third its position")
    event = salted[SALT:]
    checkpoint = read_checkpoint(note, keys)
    hash = leaf(entry(salted[:SALT], event, id_of(event)))
    if not includes(hash, int(index), checkpoint.size, [_unbase64(line) for line in lines[3:]], checkpoint.root):
        raise ValueError("the event is not the one that was signed, or not at this position")
    return Proved(read_travelled(event), int(index), checkpoint)


def prove_extension(place: Place, keys: Sequence[Verifier], earlier: int) -> str:
    """The proof that the newest checkpoint goes on from the one of `earlier` events."""
    signed = _newest(place, keys)
    size = signed.checkpoint.size
    if not 0 <= earlier <= size:
        raise AuditError(
            f"the newest checkpoint in {place.name} is of {size:,} events: none is of {earlier:,} before it"
        )
    try:
        path = consistency(earlier, size, Tiles(place.get, size).full)
    except Missing as error:
        raise AuditDamaged(f"{place.name}: {error}: `posthouse audit verify` says what was done") from error
    return "\n".join([f"old {earlier}", *map(_base64, path)]) + f"\n\n{signed.note}"


def check_extension(proof: str, before: Checkpoint, keys: Sequence[Verifier]) -> Checkpoint:
    """The checkpoint that a proof shows to go on from `before`. ValueError where it shows nothing."""
    head, _, note = proof.partition("\n\n")
    old, *path = head.split("\n")
    after = read_checkpoint(note, keys)
    if old != f"old {before.size}":
        raise ValueError(f"it is no proof from a checkpoint of {before.size:,} events on")
    if not extends(before.size, before.root, after.size, after.root, [_unbase64(line) for line in path]):
        raise ValueError(f"the checkpoint of {after.size:,} events does not go on from that of {before.size:,}")
    return after


def _newest(place: Place, keys: Sequence[Verifier]) -> Signed:
    try:
        found = newest(place, keys)
    except NoteError as error:
        raise AuditDamaged(f"the newest checkpoint in {place.name}: {error}") from error
    if found is None:
        raise AuditError(f"{place.name} holds no checkpoint yet: `posthouse audit checkpoint` signs one")
    return found


def _find(place: Place, id: str, size: int) -> int:
    wanted = id.encode()[:ID]
    for index, bundle in _bundles(place, size):
        if wanted not in bundle:
            continue
        for at, one in enumerate(read_bundle(bundle)):
            if one[DIGEST:] == wanted:
                return index * WIDTH + at
    waits = any(wanted in (place.get(path) or b"") for path in place.list(EVENTS) if (first_in(path) or 0) >= size)
    if waits:
        raise AuditError(f"{id} is logged, and not under a checkpoint yet: `posthouse audit checkpoint` signs one")
    raise AuditError(f"{id} is not among the {size:,} events in {place.name}")


def _bundles(place: Place, size: int) -> Iterator[tuple[int, bytes]]:
    for index in range((size + WIDTH - 1) // WIDTH):
        width = min(WIDTH, size - index * WIDTH)
        path = tile_path("entries", index, width)
        found = place.get(path) or place.get(tile_path("entries", index))
        if found is None:
            raise AuditDamaged(f"{path} is missing in {place.name}: run `posthouse audit verify`")
        yield index, found


def _event(place: Place, position: int) -> tuple[bytes, bytes]:
    """Salt and event at a position."""
    path = max(
        (path for path in place.list(EVENTS) if (first := first_in(path)) is not None and first <= position), default=""
    )
    try:
        batch = read_batch(place.get(path) or b"")
    except BatchError as error:
        raise AuditDamaged(f"{path} in {place.name}: {error}") from error
    at = position - batch.first
    if not 0 <= at < len(batch.events):
        raise AuditDamaged(
            f"the event at position {position:,} is missing in {place.name}: run `posthouse audit verify`"
        )
    return batch.salts[at * SALT : (at + 1) * SALT], batch.events[at]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{text[:60]!r} is no base64") from None
