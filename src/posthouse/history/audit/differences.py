"""Differences: which events were changed, removed, added or reordered, and which files beside them.

What was signed is one root. A copy of a tile, in either place or made again from the events, counts when it leads to that root: so
each tile is believed or not by itself, from the top down, and the leaves and entries under believed tiles say what has to be at
each position. Batches that do not hold it are then aligned with it. In memory: 32 bytes per event, and the batches that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from posthouse.history.audit.aligning import Change, Logged, There, align, told
from posthouse.history.audit.batches import (
    SALT,
    Batch,
    BatchError,
    entries,
    first_in,
    id_of,
    read_batch,
    read_bundle,
)
from posthouse.history.audit.checkpoints import Signed
from posthouse.history.audit.findings import Finding
from posthouse.history.audit.merkle import EMPTY, leaves, root
from posthouse.history.audit.place import Place
from posthouse.history.audit.tiles import HEIGHT, WIDTH, Edge, Missing, partial, tile_path
from posthouse.history.audit.truth import Read, Truth


class Range(msgspec.Struct, frozen=True):
    """The positions from one batch to the next; a path is None where no batch is."""

    first: int
    end: int
    path: str | None


def differences(limits: Mapping[Place, int], signed: Mapping[int, Signed], paths: Sequence[str]) -> list[Finding]:
    """Everything that is not as the largest checkpoint says; as the one before says, where nothing leads to that. `limits`: the places,
    each with the number of events that it has files of."""
    places = list(limits)
    ranges = list(_ranges(paths, max(signed, default=0)))
    again = _made_again(places[0], ranges)
    reads: list[Read] = [*(place.get for place in places), again.get]
    for size in sorted(signed, reverse=True):
        truth = Truth(reads, signed[size].checkpoint)
        if truth.found:
            return [
                *_beyond(signed, size),
                *_contradicted(truth, signed),
                *told(_changes(places[0], truth, ranges)),
                *_unreadable(places[0], ranges),
                *_unknown(truth),
                *_files(truth, limits, signed),
            ]
    return list(_beyond(signed, 0))


def unsigned(place: Place, paths: Sequence[str], end: int) -> Iterator[Finding]:
    """Batches behind everything that was signed which do not follow one another."""
    for path in paths:
        first = first_in(path)
        if first is None or first < end:
            continue
        try:
            batch = read_batch(place.get(path) or b"")
            words = ""
            if not batch.events:
                words = "holds no event: the log does not write such a file, and goes on once it is moved away"
            elif not batch.first == first == end:
                words = f"does not go on from event {end:,}, where the one before it ends"
            end = first + len(batch.events)
        except BatchError as error:
            words = f"cannot be read: {error}"
        if words:
            yield Finding("file", f"{path} in {place.name}, which nobody has signed yet, {words}", position=first)


def _ranges(paths: Sequence[str], end: int) -> Iterator[Range]:
    starts = [(first, path) for path in paths if (first := first_in(path)) is not None and first < end]
    if end and (not starts or starts[0][0] > 0):
        yield Range(0, starts[0][0] if starts else end, None)
    for at, (first, path) in enumerate(starts):
        yield Range(first, starts[at + 1][0] if at + 1 < len(starts) else end, path)


def _made_again(place: Place, ranges: Sequence[Range]) -> dict[str, bytes]:
    """The tiles that follow from the events, each batch where its name says that it begins."""
    edge, tiles = Edge(), dict[str, bytes]()
    for one in ranges:
        found = _leaves(place, one)
        count = one.end - one.first
        tiles |= edge.add([*found[:count], *[EMPTY] * (count - len(found))])
    return tiles | dict(edge.partial_tiles())


def _leaves(place: Place, one: Range) -> list[bytes]:
    try:
        return leaves(entries(_batch(place, one)))
    except BatchError:
        return []


def _batch(place: Place, one: Range) -> Batch:
    if one.path is None:
        raise BatchError("it is missing")
    return read_batch(place.get(one.path) or b"")


def _changes(place: Place, truth: Truth, ranges: Sequence[Range]) -> list[Change]:
    """What was done to events, from each run of batches that differ."""
    changes: list[Change] = []
    run: list[Range] = []
    for one in ranges:
        if one.first < truth.size and _leaves(place, one) != _signed_leaves(truth, one):
            run.append(one)
            continue
        changes += _aligned(place, truth, run)
        run = []
    return changes + _aligned(place, truth, run)


def _signed_leaves(truth: Truth, one: Range) -> list[bytes | None]:
    found: list[bytes | None] = []
    for index in range(one.first // WIDTH, (min(one.end, truth.size) + WIDTH - 1) // WIDTH):
        start = index * WIDTH
        width = min(WIDTH, truth.size - start)
        tile: Sequence[bytes | None] = truth.tile(0, index) or [None] * width
        found += tile[max(0, one.first - start) : max(0, one.end - start)]
    return found


def _aligned(place: Place, truth: Truth, run: Sequence[Range]) -> list[Change]:
    if not run:
        return []
    logged: list[Logged] = []
    there: list[There] = []
    known: dict[int, list[bytes | None]] = {}
    for one in run:
        batch = _whatever(place, one)
        salts = [batch.salts[at : at + SALT] for at in range(0, len(batch.salts), SALT)]
        for position, hash in enumerate(_signed_leaves(truth, one), one.first):
            if hash is not None:
                index, at = divmod(position, WIDTH)
                if index not in known:
                    known[index] = truth.entries(index)
                logged.append(Logged(position, hash, known[index][at], _nth(salts, position - one.first)))
        there += [
            There(one.first + at, _id(event), _nth(salts, at), event)
            for at, event in enumerate(batch.events)
            if _knowable(truth, one.first + at)
        ]
    return align(logged, there)


def _knowable(truth: Truth, position: int) -> bool:
    """Whether it is known what was signed there: what stands behind everything that was signed was added."""
    return position >= truth.size or truth.tile(0, position // WIDTH) is not None


def _whatever(place: Place, one: Range) -> Batch:
    try:
        return _batch(place, one)
    except BatchError:
        return Batch(one.first, b"", [])


def _nth(salts: Sequence[bytes], at: int) -> bytes | None:
    return salts[at] if at < len(salts) else None


def _id(event: bytes) -> str | None:
    try:
        return id_of(event)
    except BatchError:
        return None


def _beyond(signed: Mapping[int, Signed], size: int) -> Iterator[Finding]:
    """Events of which no copy of a tile leads to a checkpoint."""
    end = max(signed, default=0)
    if size < end:
        path = signed[end].path
        yield Finding(
            "unknown",
            f"events at positions {size:,} to {end - 1:,} are not what {path} signs, and no copy of their tiles is left that says "
            "which of them: a second place would have one",
            position=size,
        )


def _contradicted(truth: Truth, signed: Mapping[int, Signed]) -> Iterator[Finding]:
    for size, one in signed.items():
        try:
            if 0 < size < truth.size and root(size, truth.full) != one.checkpoint.root:
                words = f"{one.path} signs other events than the log of {truth.size:,} begins with"
                yield Finding("split", words, position=size)
        except Missing:
            continue


def _unreadable(place: Place, ranges: Sequence[Range]) -> Iterator[Finding]:
    """Files among the batches that are none, or none of their name."""
    for one in ranges:
        if one.path is None:
            continue
        try:
            first = _batch(place, one).first
            words = "" if first == one.first else f"was changed: it says that it begins with event {first:,}"
        except BatchError as error:
            words = f"cannot be read: {error}"
        if words:
            yield Finding("file", f"{one.path} in {place.name} {words}", position=one.first)


def _unknown(truth: Truth) -> Iterator[Finding]:
    """Tiles of leaves that nobody has."""
    for index in range((truth.size + WIDTH - 1) // WIDTH):
        if truth.tile(0, index) is None:
            first, last = index * WIDTH, min((index + 1) * WIDTH, truth.size) - 1
            yield Finding(
                "unknown",
                f"of the events at positions {first:,} to {last:,} at least one was changed, and no copy of {tile_path(0, index)} is "
                "left that says which: a second place would have one",
                position=first,
            )


def _files(truth: Truth, limits: Mapping[Place, int], sizes: Iterable[int]) -> Iterator[Finding]:
    """Tiles and bundles that are lost, or not what was signed; of earlier checkpoints only what is still there."""
    level = 0
    while truth.size >> HEIGHT * level:
        for index in range(truth.size >> HEIGHT * (level + 1)):
            end = (index + 1) << HEIGHT * (level + 1)
            for place, limit in limits.items():
                yield from _file(truth, place, (level, index, WIDTH), needed=end <= limit)
        level += 1
    for size in sizes:
        for tile in partial(size) if size <= truth.size else ():
            for place, limit in limits.items():
                yield from _file(truth, place, tile, needed=size == limit)


def _file(truth: Truth, place: Place, at: tuple[int, int, int], *, needed: bool) -> Iterator[Finding]:
    level, index, width = at
    known = truth.tile(level, index)
    tile = None if known is None else known[:width]
    for name in [tile_path(level, index, width)] + ([tile_path("entries", index, width)] if level == 0 else []):
        data = place.get(name)
        if data is None and needed:
            yield Finding("file", f"{name} is missing in {place.name}")
        elif data is not None and tile is not None and not _holds(name, data, tile):
            yield Finding("file", f"{name} in {place.name} was changed")


def _holds(path: str, data: bytes, tile: Sequence[bytes]) -> bool:
    if "/entries/" not in path:
        return data == b"".join(tile)
    try:
        return leaves(read_bundle(data)) == tile
    except BatchError:
        return False
