"""Log: events are appended in batches, and put under a checkpoint now and then.

Everything is put where nothing is yet, and follows from the batches alone: so a crash at any step leaves a log that goes on, any
number of processes may append, and two that sign at the same time sign the beginnings of one tree. A batch is named after the
position of its first event; whoever comes second with a position finds it taken, reads what is there, and goes on behind it."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from itertools import islice

import msgspec

from posthouse.errors import AuditDamaged
from posthouse.history.audit.batches import (
    EVENTS,
    SALT,
    Batch,
    BatchError,
    batch_path,
    entries,
    first_in,
    read_batch,
    read_bundle,
    write_batch,
    write_bundle,
)
from posthouse.history.audit.checkpoints import ALL, NEWEST, Signed, checkpoint_path, newest, size_signed
from posthouse.history.audit.merkle import leaves, root
from posthouse.history.audit.notes import Checkpoint, NoteError, Verifier, sign
from posthouse.history.audit.place import Place
from posthouse.history.audit.tiles import HEIGHT, WIDTH, Edge, Missing, Tiles, partial, tile_path

AT_ONCE = 8
"""So many files are written side by side."""
REMEMBERED = 100_000
"""So many of the last events are known, at least: one that the broker delivers again is not logged again."""


class Signer(msgspec.Struct, frozen=True):
    """Who signs checkpoints: the name of the log, the private key, and every public one that has signed here before."""

    name: str
    seed: bytes
    keys: Sequence[Verifier]


class AuditLog:
    """The log in `place`. Blocking, and not for several threads at once."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._next: int | None = None
        self._known: dict[bytes, None] = {}

    def append(self, events: Sequence[bytes]) -> int:
        """Log these, each once; how many are new. They are there for good when this returns. `events`: as `travelled` makes them; the
        same id around other bytes is another event."""
        if self._next is None:
            self._begin()
        new = self._new(events)
        while new:
            assert self._next is not None
            batch = Batch(self._next, os.urandom(SALT * len(new)), list(new.values()))
            if self.place.put(batch_path(batch.first), write_batch(batch)):
                self._take(batch)
                break
            self._follow()
            new = self._new(events)
        return len(new)

    def size(self) -> int:
        """How many events there are."""
        if self._next is None:
            self._begin()
        else:
            self._follow()
        assert self._next is not None
        return self._next

    def _new(self, events: Sequence[bytes]) -> dict[bytes, bytes]:
        found = {sha256(event).digest(): event for event in events}
        return {digest: event for digest, event in found.items() if digest not in self._known}

    def _begin(self) -> None:
        """Find the end, and the events before it."""
        paths = [path for path in self.place.list(EVENTS) if first_in(path) is not None]
        start = len(paths)
        known = 0
        batches: list[Batch] = []
        while start and (known < REMEMBERED or len(batches) < 2):  # only the one before says where one belongs
            start -= 1
            batches.insert(0, self._batch(paths[start]))
            known += len(batches[0].events)
        self._next = batches[0].first if start else 0
        for batch in batches:
            if batch.first != self._next:
                raise AuditDamaged(
                    f"{batch_path(batch.first)} in {self.place.name} does not go on from event {self._next:,}, where the one before it ends: "
                    "nothing is appended before `posthouse audit verify` has said what was done, and it is undone"
                )
            self._take(batch)
        if self._next < (signed := size_signed(self.place)):
            raise AuditDamaged(
                f"the log in {self.place.name} ends with {self._next:,} events, though {signed:,} were signed: nothing is appended to it "
                "before the rest is brought back; `posthouse audit verify` names it"
            )

    def _follow(self) -> None:
        """Take what others have appended."""
        assert self._next is not None
        while (data := self.place.get(batch_path(self._next))) is not None:
            self._take(_read(batch_path(self._next), data))

    def _take(self, batch: Batch) -> None:
        self._known |= dict.fromkeys(sha256(event).digest() for event in batch.events)
        for digest in list(islice(self._known, max(0, len(self._known) - 2 * REMEMBERED))):
            del self._known[digest]
        self._next = batch.first + len(batch.events)

    def _batch(self, path: str) -> Batch:
        return _read(path, self.place.get(path) or b"")


def checkpoint(place: Place, signer: Signer, at: float) -> Signed:
    """Put what was appended under a checkpoint: tiles, bundles, then the note. One of the same size is signed again, since it says
    that nothing came. AuditDamaged where the end of the log is not what was signed last."""
    try:
        last = newest(place, signer.keys)
    except NoteError as error:
        raise AuditDamaged(f"the newest checkpoint in {place.name}: {error}") from error
    edge, waiting = _edge(place, last)
    _extend(place, edge, waiting)
    made = Checkpoint(signer.name, edge.size, edge.root())
    signed = Signed(checkpoint_path(edge.size, at), sign(made.text(), signer.name, signer.seed), made, at)
    _put(place, signed.path, signed.note.encode())
    _point(place, signer.keys)
    return signed


def seal(place: Place, second: Place | None, signer: Signer, at: float) -> Signed:
    """Sign, and copy to the second place; nothing is signed that the second place contradicts."""
    if second is not None:
        copy(place, second, signer.keys)
    signed = checkpoint(place, signer, at)
    if second is not None:
        copy(place, second, signer.keys)
    return signed


def copy(place: Place, second: Place, keys: Sequence[Verifier]) -> int:
    """Bring a second place up to date: entries, tiles and checkpoints, but no event. How many checkpoints were new to it.
    AuditDamaged where it holds a checkpoint that is not one of this log: then one of both was changed, or two logs write there."""
    try:
        ours, theirs = newest(place, keys), newest(second, keys)
    except NoteError as error:
        raise AuditDamaged(f"the newest checkpoint in {place.name} or {second.name}: {error}") from error
    if ours is None:
        if theirs is not None:
            raise AuditDamaged(f"{second.name} holds checkpoints, and {place.name} holds none: it was emptied")
        return 0
    size, before = ours.checkpoint.size, theirs.checkpoint.size if theirs else 0
    try:
        if theirs and (
            before > size or root(before, Tiles(place.get, size).full if before else _nothing) != theirs.checkpoint.root
        ):
            raise AuditDamaged(
                f"{second.name} holds a checkpoint of {before:,} events that {place.name} does not go on from: "
                "`posthouse audit verify` says where they part"
            )
        with _together(lambda path: _put(second, path, _needed(place, path))) as each:
            for path in _tiles_between(before, size):
                each(path)
    except Missing as error:
        raise AuditDamaged(f"{place.name}: {error}") from error
    known = set(second.list(ALL))
    fresh = [path for path in place.list(ALL) if path not in known]
    for path in fresh:
        _put(second, path, _needed(place, path))
    _point(second, keys)
    return len(fresh)


def _needed(place: Place, path: str) -> bytes:
    if (data := place.get(path)) is None:
        raise Missing(path, "is not there")
    return data


def _nothing(height: int, index: int) -> bytes:
    raise Missing("tile", "is of an empty tree")


def _edge(place: Place, last: Signed | None) -> tuple[Edge, list[bytes]]:
    """The tree under the last checkpoint, and the entries of the bundle that is not full yet."""
    if last is None:
        return Edge(), []
    size = last.checkpoint.size
    try:
        edge = Tiles(place.get, size).edge()
        if edge.root() != last.checkpoint.root:
            raise AuditDamaged(f"the tiles in {place.name} are not those that {last.path} signs")
        if not size % WIDTH:
            return edge, []
        path = tile_path("entries", size // WIDTH, size % WIDTH)
        found = read_bundle(place.get(path) or b"")
        if leaves(found) != edge.leaves():
            raise AuditDamaged(f"{path} in {place.name} does not hold what {last.path} signs")
    except (Missing, BatchError) as error:
        raise AuditDamaged(f"{place.name}: {error}") from error
    return edge, found


def _extend(place: Place, edge: Edge, waiting: list[bytes]) -> None:
    """Write the tiles and bundles of everything behind the edge."""
    bundle = edge.size // WIDTH
    with _together(lambda path, data: _put(place, path, data)) as put:
        while (data := place.get(path := batch_path(edge.size))) is not None:
            fresh = _entries(path, data)
            waiting += fresh
            for at, tile in edge.add(leaves(fresh)):
                put(at, tile)
            while len(waiting) >= WIDTH:
                put(tile_path("entries", bundle), write_bundle(waiting[:WIDTH]))
                del waiting[:WIDTH]
                bundle += 1
        for at, tile in edge.partial_tiles():
            put(at, tile)
        if waiting:
            put(tile_path("entries", bundle, len(waiting)), write_bundle(waiting))


@contextlib.contextmanager
def _together(work: Callable[..., None]) -> Iterator[Callable[..., None]]:
    """Calls of `work` side by side: each waits for a disk or a network. All are done at the end of the block, or the first that failed
    is raised."""
    begun: deque[Future[None]] = deque()
    with ThreadPoolExecutor(AT_ONCE) as threads:

        def call(*words: object) -> None:
            if len(begun) > 2 * AT_ONCE:
                begun.popleft().result()
            begun.append(threads.submit(work, *words))

        try:
            yield call
            for one in begun:
                one.result()
        finally:
            threads.shutdown(cancel_futures=True)


def _put(place: Place, path: str, data: bytes) -> None:
    """A file follows from the events: one that is there already is the same, or it is not what the events say."""
    if not place.put(path, data):
        raise AuditDamaged(f"{path} in {place.name} is there, and is not what the events say")


def _point(place: Place, keys: Sequence[Verifier]) -> None:
    """Have the file that tools look for hold the newest checkpoint, whoever else writes it."""
    while True:
        there = place.get(NEWEST)
        latest = newest(place, keys)
        if latest is None or there == latest.note.encode() or place.replace(NEWEST, latest.note.encode(), there):
            return


def _tiles_between(before: int, size: int) -> list[str]:
    """What a tree of `size` has and one of `before` has not; each level after those below it."""
    paths, level = [], 0
    while size >> HEIGHT * level:
        for index in range(before >> HEIGHT * (level + 1), size >> HEIGHT * (level + 1)):
            paths += [tile_path(level, index)] + ([tile_path("entries", index)] if level == 0 else [])
        level += 1
    for level, index, width in partial(size):
        paths += [tile_path(level, index, width)] + ([tile_path("entries", index, width)] if level == 0 else [])
    return paths


def _entries(path: str, data: bytes) -> list[bytes]:
    try:
        return entries(_read(path, data))
    except BatchError as error:
        raise AuditDamaged(f"{path}: {error}") from error


def _read(path: str, data: bytes) -> Batch:
    try:
        batch = read_batch(data)
    except BatchError as error:
        raise AuditDamaged(f"{path}: {error}") from error
    if not batch.events:
        raise AuditDamaged(f"{path} holds no event: this log writes no such file. Move it away, and it goes on")
    if batch.first != first_in(path):
        raise AuditDamaged(f"{path} begins with event {batch.first:,}: it was moved there")
    return batch
